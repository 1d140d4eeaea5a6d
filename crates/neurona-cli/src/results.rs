//! How well a network did: what results.json holds, and what pictures and report are made from.

use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The final evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Which images it was measured on: "test", or "val" when the data has no test images.
    pub split: String,
    /// How many.
    pub images: usize,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The share that was recognised.
    pub accuracy: f64,
    /// The share whose class was among the five likeliest.
    pub top5: f64,
    /// The mean cross-entropy.
    pub loss: f64,
    /// Precision, recall and F1, averaged over the classes.
    pub mean: Scores,
    /// The same for each class.
    pub per_class: Vec<ClassScores>,
    /// How often each class (row) was taken for each (column).
    pub confusion: Vec<Vec<usize>>,
    /// Whether it is as sure as it is right.
    pub calibration: Calibration,
    /// The wrong answers it was surest of, the surest first.
    pub mistakes: Vec<Mistake>,
}

/// Precision, recall and F1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Of those taken for the class, the share that is of it.
    pub precision: f64,
    /// Of those of the class, the share that was taken for it.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
}

/// How well one class was told apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// Its name.
    pub name: String,
    /// Its images.
    pub count: usize,
    /// The scores.
    #[serde(flatten)]
    pub scores: Scores,
}

/// How sure the network is, against how often it is right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The mean distance between the two, weighted by images: the expected calibration error.
    pub error: f64,
    /// From no confidence to full, in equal steps.
    pub bins: Vec<Bin>,
}

/// The answers of about one confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// How many.
    pub count: usize,
    /// How sure they were, on average.
    pub confidence: f64,
    /// The share that was right.
    pub accuracy: f64,
}

/// A wrong answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// The image's place in its set.
    pub index: usize,
    /// Its file, or what else it is called.
    pub file: String,
    /// The class it is of.
    pub truth: usize,
    /// The class it was taken for.
    pub guess: usize,
    /// How sure the network was.
    pub confidence: f64,
    /// The likeliest classes with their probabilities.
    pub probabilities: Vec<(usize, f64)>,
}

/// One class taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confused {
    /// How often.
    pub times: usize,
    /// What it was.
    pub truth: usize,
    /// What it was taken for.
    pub guess: usize,
}

impl Results {
    /// Reads results.json; what does not fit together is refused, so that nobody downstream has to look again.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, e))?;
        let wrong = |problem: String| Failure::Told(format!("{}: {problem}", path.display()));
        let results: Results = serde_json::from_str(&text).map_err(|e| wrong(format!("is not a result: {e}")))?;
        match results.fits_together() {
            true => Ok(results),
            false => Err(wrong("has classes and tables that do not fit together".to_string())),
        }
    }

    fn fits_together(&self) -> bool {
        let n = self.classes.len();
        let known = |class: usize| class < n;
        self.per_class.len() == n
            && self.confusion.len() == n
            && self.confusion.iter().all(|row| row.len() == n)
            && self
                .mistakes
                .iter()
                .all(|m| known(m.truth) && known(m.guess) && m.probabilities.iter().all(|(class, _)| known(*class)))
    }

    /// As text for results.json.
    pub fn json(&self) -> Outcome<String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Failure::Told(format!("results: {e}")))?;
        Ok(text + "\n")
    }

    /// The confusion matrix as a table.
    pub fn confusion_csv(&self) -> String {
        let head = self.classes.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(",");
        let rows = self.classes.iter().zip(&self.confusion).map(|(name, row)| {
            let counts = row.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            format!("{},{counts}\n", quoted(name))
        });
        format!("true class,{head}\n{}", rows.collect::<String>())
    }

    /// How many were recognised.
    pub fn right(&self) -> usize {
        self.confusion.iter().enumerate().map(|(class, row)| row[class]).sum()
    }

    /// The confusions made most often.
    pub fn worst(&self, most: usize) -> Vec<Confused> {
        let cells = self.confusion.iter().enumerate().flat_map(|(truth, row)| {
            row.iter().enumerate().map(move |(guess, times)| Confused { times: *times, truth, guess })
        });
        let mut wrong: Vec<Confused> = cells.filter(|c| c.truth != c.guess && c.times > 0).collect();
        // Equal counts stay in the order of the classes.
        wrong.sort_by_key(|c| std::cmp::Reverse(c.times));
        wrong.truncate(most);
        wrong
    }
}

/// A cell of a CSV file. Names are the user's: they may hold commas and quotes.
pub fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Results for as many classes, with some confusion between neighbours.
    pub(crate) fn sample(n: usize) -> Results {
        let classes: Vec<String> = (0..n).map(|i| format!("class {i}")).collect();
        let count = |truth: usize, guess: usize| match guess {
            g if g == truth => 80 + truth % 20,
            g if g == (truth + 1) % n => 3 + truth % 7,
            _ => 0,
        };
        let confusion: Vec<Vec<usize>> = (0..n).map(|t| (0..n).map(|g| count(t, g)).collect()).collect();
        let per_class = classes.iter().zip(&confusion).enumerate().map(|(i, (name, row))| {
            let recall = row[i] as f64 / row.iter().sum::<usize>() as f64;
            let scores = Scores { precision: 0.9, recall, f1: 2.0 * 0.9 * recall / (0.9 + recall) };
            ClassScores { name: name.clone(), count: row.iter().sum(), scores }
        });
        let mistakes = (0..24).map(|i| Mistake {
            index: i,
            file: format!("pets/{i}.jpg"),
            truth: i % n,
            guess: (i + 1) % n,
            confidence: 0.99 - 0.01 * i as f64,
            probabilities: vec![((i + 1) % n, 0.99 - 0.01 * i as f64), (i % n, 0.01)],
        });
        let bins = (0..10).map(|i| Bin { count: 10 * i, confidence: 0.05 + 0.1 * i as f64, accuracy: 0.09 * i as f64 });
        Results {
            split: "test".into(),
            images: confusion.iter().flatten().sum(),
            accuracy: 0.93,
            top5: 0.99,
            loss: 0.31,
            mean: Scores { precision: 0.9, recall: 0.91, f1: 0.905 },
            per_class: per_class.collect(),
            calibration: Calibration { error: 0.031, bins: bins.collect() },
            mistakes: mistakes.collect(),
            classes,
            confusion,
        }
    }

    #[test]
    fn the_worst_come_first_and_names_are_quoted() {
        let mut results = sample(3);
        results.confusion = vec![vec![8, 2, 0], vec![3, 7, 0], vec![0, 0, 10]];
        let worst: Vec<_> = results.worst(3).iter().map(|c| (c.times, c.truth, c.guess)).collect();
        assert_eq!((worst, results.right()), (vec![(3, 1, 0), (2, 0, 1)], 25));
        results.classes[1] = "a, \"b\"".into();
        let csv = results.confusion_csv();
        assert_eq!(csv.lines().nth(2), Some("\"a, \"\"b\"\"\",3,7,0"), "{csv}");
    }

    #[test]
    fn files_that_do_not_fit_together_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        std::fs::write(&path, sample(4).json().unwrap()).unwrap();
        assert_eq!(Results::read(&path).unwrap(), sample(4));
        for break_it in [
            |r: &mut Results| drop(r.confusion.pop()),
            |r: &mut Results| r.mistakes[0].guess = 99,
            |r: &mut Results| r.mistakes[0].probabilities[0].0 = 99,
            |r: &mut Results| drop(r.classes.pop()),
        ] {
            let mut bad = sample(4);
            break_it(&mut bad);
            std::fs::write(&path, bad.json().unwrap()).unwrap();
            assert!(Results::read(&path).is_err());
        }
    }
}
