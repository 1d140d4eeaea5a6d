//! Who is taken for whom.

use super::Report;
use crate::{Error, Result};

/// How often each class was taken for each other.
///
/// ```
/// use neurona::metrics::Confusion;
/// let mut confusion = Confusion::new(2);
/// confusion.add(&[0, 0, 1, 1], &[0, 1, 1, 1])?;
/// assert_eq!(confusion.counts(), [[1, 1], [0, 2]]);
/// assert_eq!((confusion.accuracy(), confusion.class_accuracy(0)), (0.75, 0.5));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    counts: Vec<Vec<u64>>,
}

/// A mistake that was made more than once, perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confused {
    /// How often.
    pub count: u64,
    /// What it was.
    pub label: usize,
    /// What it was taken for.
    pub guess: usize,
}

impl Confusion {
    /// Nothing seen yet.
    pub fn new(classes: usize) -> Self {
        Confusion { counts: vec![vec![0; classes]; classes] }
    }

    /// Takes labels and guesses into account. When one is no class nothing has changed.
    pub fn add(&mut self, labels: &[usize], guesses: &[usize]) -> Result<()> {
        if labels.len() != guesses.len() {
            return Err(Error::Argument(format!("{} labels do not fit {} guesses", labels.len(), guesses.len())));
        }
        let classes = self.classes();
        for (what, list) in [("label", labels), ("guess", guesses)] {
            if let Some((i, class)) = list.iter().enumerate().find(|(_, class)| **class >= classes) {
                return Err(Error::Argument(format!("{what} {class} at place {i} is none of {classes} classes")));
            }
        }
        labels.iter().zip(guesses).for_each(|(label, guess)| self.counts[*label][*guess] += 1);
        Ok(())
    }

    /// How many classes are told apart.
    pub fn classes(&self) -> usize {
        self.counts.len()
    }

    /// By true class, then by guess.
    pub fn counts(&self) -> &[Vec<u64>] {
        &self.counts
    }

    /// Images of a class.
    pub fn of_class(&self, class: usize) -> u64 {
        self.counts.get(class).map_or(0, |row| row.iter().sum())
    }

    /// Images taken for a class.
    pub fn taken_for(&self, class: usize) -> u64 {
        self.counts.iter().filter_map(|row| row.get(class)).sum()
    }

    /// Images of a class that were recognised.
    pub fn right_of(&self, class: usize) -> u64 {
        self.counts.get(class).and_then(|row| row.get(class)).copied().unwrap_or(0)
    }

    /// All images.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// All images that were recognised.
    pub fn right(&self) -> u64 {
        (0..self.classes()).map(|class| self.right_of(class)).sum()
    }

    /// The share of all images that was recognised; 0 when there are none.
    pub fn accuracy(&self) -> f64 {
        share(self.right(), self.total())
    }

    /// The share of a class that was recognised; 0 when it has no images.
    pub fn class_accuracy(&self, class: usize) -> f64 {
        share(self.right_of(class), self.of_class(class))
    }

    /// The mistakes made most often, at most this many. Of equals, those of the first class come first.
    pub fn worst(&self, most: usize) -> Vec<Confused> {
        let all = self.counts.iter().enumerate().flat_map(|(label, row)| {
            row.iter().enumerate().map(move |(guess, count)| Confused { count: *count, label, guess })
        });
        let mut mistakes: Vec<Confused> = all.filter(|m| m.label != m.guess && m.count > 0).collect();
        mistakes.sort_by_key(|m| std::cmp::Reverse(m.count));
        mistakes.truncate(most);
        mistakes
    }

    /// Precision, recall and F1 of each class, and their averages.
    pub fn report(&self) -> Report {
        Report::new(self)
    }

    /// As a table: a line for each true class, a column for each guess.
    pub fn csv(&self, classes: &[String]) -> String {
        let name = |class: usize| match classes.get(class) {
            Some(name) if name.contains([',', '"', '\n', '\r']) => format!("\"{}\"", name.replace('"', "\"\"")),
            Some(name) => name.clone(),
            None => class.to_string(),
        };
        let head: String = (0..self.classes()).map(|class| format!(",{}", name(class))).collect();
        let line = |(class, row): (usize, &Vec<u64>)| {
            let counts: String = row.iter().map(|count| format!(",{count}")).collect();
            format!("{}{counts}\n", name(class))
        };
        format!("true\\guess{head}\n{}", self.counts.iter().enumerate().map(line).collect::<String>())
    }
}

/// A part of a whole; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[&[u64]]) -> Confusion {
        Confusion { counts: counts.iter().map(|row| row.to_vec()).collect() }
    }

    #[test]
    fn counts_and_shares() {
        let c = of(&[&[8, 2, 0], &[3, 7, 0], &[0, 0, 10]]);
        assert_eq!((c.of_class(1), c.taken_for(1), c.total(), c.right()), (10, 9, 30, 25));
        assert_eq!(c.class_accuracy(0), 0.8);
        let worst = c.worst(3);
        assert_eq!(worst[0], Confused { count: 3, label: 1, guess: 0 });
        assert_eq!((worst.len(), worst[1].count, c.worst(1).len()), (2, 2, 1));
        assert_eq!((Confusion::new(0).accuracy(), Confusion::new(0).worst(3).len()), (0.0, 0));
        assert_eq!((c.of_class(9), c.taken_for(9), c.class_accuracy(9)), (0, 0, 0.0));
    }

    #[test]
    fn what_is_no_class_changes_nothing() {
        let mut c = Confusion::new(2);
        assert_eq!(c.add(&[0, 2], &[0, 0]).unwrap_err().to_string(), "label 2 at place 1 is none of 2 classes");
        assert_eq!(c.add(&[0], &[7]).unwrap_err().to_string(), "guess 7 at place 0 is none of 2 classes");
        assert!(c.add(&[0], &[]).is_err());
        assert_eq!(c, Confusion::new(2));
    }

    #[test]
    fn names_in_tables_are_quoted() {
        let names = ["a,b".to_string(), "say \"x\"".to_string()];
        let table = of(&[&[1, 2], &[3, 4]]).csv(&names);
        assert_eq!(table, "true\\guess,\"a,b\",\"say \"\"x\"\"\"\n\"a,b\",1,2\n\"say \"\"x\"\"\",3,4\n");
    }
}
