//! How well a network does on images it has not seen.

use neurona::data::ImageSet;
use neurona::nn::Forward;
use neurona::{Result, no_grad};

/// Images to a batch; the result does not depend on it.
const BATCH: usize = 250;

/// How often each class was taken for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    /// By true class, then by guess.
    pub counts: Vec<Vec<usize>>,
}

impl Confusion {
    /// Images of a class.
    pub fn total(&self, class: usize) -> usize {
        self.counts[class].iter().sum()
    }

    /// The share of a class that was recognised.
    pub fn class_accuracy(&self, class: usize) -> f64 {
        self.counts[class][class] as f64 / self.total(class).max(1) as f64
    }

    /// Images, and how many of them were recognised.
    pub fn totals(&self) -> (usize, usize) {
        let all = self.counts.iter().flatten().sum();
        (all, (0..self.counts.len()).map(|c| self.counts[c][c]).sum())
    }

    /// The share of all images that was recognised.
    pub fn accuracy(&self) -> f64 {
        let (all, right) = self.totals();
        right as f64 / all.max(1) as f64
    }

    /// The mistakes made most often: how often, true class, guess.
    pub fn worst(&self, most: usize) -> Vec<(usize, usize, usize)> {
        let mut mistakes: Vec<(usize, usize, usize)> = Vec::new();
        for (class, guesses) in self.counts.iter().enumerate() {
            let wrong = guesses.iter().enumerate().filter(|(guess, n)| *guess != class && **n > 0);
            mistakes.extend(wrong.map(|(guess, n)| (*n, class, guess)));
        }
        // Equal counts stay in the order of the classes.
        mistakes.sort_by_key(|(n, _, _)| std::cmp::Reverse(*n));
        mistakes.truncate(most);
        mistakes
    }
}

/// The mean loss on a set and who was taken for whom. Leaves the network in evaluation mode.
pub fn confusion(net: &impl Forward, images: &ImageSet) -> Result<(f64, Confusion)> {
    net.eval();
    let classes = images.classes().len();
    let mut counts = vec![vec![0; classes]; classes];
    let mut loss_sum = 0.0;
    let places: Vec<usize> = (0..images.len()).collect();
    for places in places.chunks(BATCH) {
        let (x, y) = images.batch(places)?;
        let (loss, guesses) = no_grad(|| {
            let out = net.forward(&x)?;
            Ok::<_, neurona::Error>((out.cross_entropy(&y)?, out.argmax(1)?))
        })?;
        for (place, guess) in places.iter().zip(guesses.to_vec::<i64>()?) {
            counts[images.labels()[*place] as usize][guess as usize] += 1;
        }
        loss_sum += loss.item::<f64>()? * places.len() as f64;
    }
    Ok((loss_sum / images.len().max(1) as f64, Confusion { counts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares() {
        let c = Confusion { counts: vec![vec![8, 2, 0], vec![3, 7, 0], vec![0, 0, 10]] };
        assert_eq!((c.total(1), c.totals()), (10, (30, 25)));
        assert_eq!(c.class_accuracy(0), 0.8);
        assert_eq!(c.worst(3), [(3, 1, 0), (2, 0, 1)]);
        assert_eq!(Confusion { counts: vec![] }.accuracy(), 0.0);
    }
}
