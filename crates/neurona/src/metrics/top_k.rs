//! Whether the right class is among the best guesses.

use super::{Logits, confusion::share};
use crate::{Error, Result};

/// The share of images whose class is among the `k` most likely.
///
/// ```
/// use neurona::{Tensor, metrics::{Logits, TopK}};
/// let mut top2 = TopK::new(2);
/// top2.add(&Logits::read(&Tensor::from([[3.0f32, 2.0, 1.0], [3.0, 2.0, 1.0]]))?, &[1, 2])?;
/// assert_eq!(top2.share(), 0.5);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    k: usize,
    right: u64,
    total: u64,
}

impl TopK {
    /// Among this many.
    pub fn new(k: usize) -> Self {
        TopK { k, right: 0, total: 0 }
    }

    /// Takes a batch into account. Of classes that are equally likely, the first come first.
    pub fn add(&mut self, logits: &Logits, labels: &[usize]) -> Result<()> {
        if labels.len() != logits.len() || labels.iter().any(|label| *label >= logits.classes()) {
            let (n, classes) = (logits.len(), logits.classes());
            return Err(Error::Argument(format!("needs {n} labels that are each one of {classes} classes")));
        }
        for (row, &label) in logits.rows().zip(labels) {
            let value = row[label];
            let before = row.iter().enumerate().filter(|(i, v)| **v > value || (**v == value && *i < label)).count();
            // A network that says NaN has said nothing.
            self.right += u64::from(before < self.k && !value.is_nan());
        }
        self.total += labels.len() as u64;
        Ok(())
    }

    /// How many guesses each image has.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The share so far; 0 when nothing was seen.
    pub fn share(&self) -> f64 {
        share(self.right, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn ties_nan_and_more_guesses_than_classes() -> Result<()> {
        let logits = Logits::read(&Tensor::from([[1.0f32, 1.0, 1.0], [f32::NAN, 2.0, 0.0], [0.0, 1.0, 2.0]]))?;
        let share = |k: usize, labels: [usize; 3]| {
            let mut top = TopK::new(k);
            top.add(&logits, &labels).map(|()| top.share())
        };
        assert_eq!(share(1, [0, 1, 2])?, 1.0);
        assert_eq!(share(2, [2, 0, 0])?, 0.0);
        assert_eq!(share(9, [2, 1, 0])?, 1.0);
        assert!(share(1, [3, 0, 0]).is_err());
        assert_eq!(TopK::new(5).share(), 0.0);
        Ok(())
    }
}
