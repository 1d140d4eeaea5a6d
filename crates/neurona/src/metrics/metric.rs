//! Measures that a trainer takes on the validation set besides loss and accuracy.

use super::{Confusion, Logits, TopK};
use crate::Result;

/// A measure of one's own, gathered over the batches of a validation set.
///
/// ```
/// use neurona::metrics::{Logits, Metric};
/// use neurona::Result;
///
/// /// The share of images that are taken for class 0.
/// struct Zeros(u64, u64);
///
/// impl Metric for Zeros {
///     fn name(&self) -> String {
///         "zeros".into()
///     }
///     fn reset(&mut self) {
///         (self.0, self.1) = (0, 0);
///     }
///     fn add(&mut self, logits: &Logits, _labels: &[usize]) -> Result<()> {
///         self.0 += logits.guesses().iter().filter(|guess| **guess == 0).count() as u64;
///         self.1 += logits.len() as u64;
///         Ok(())
///     }
///     fn value(&self) -> f64 {
///         self.0 as f64 / self.1.max(1) as f64
///     }
/// }
/// # let _ = Zeros(0, 0);
/// ```
pub trait Metric: Send {
    /// What it is called; in tables `val_` stands before it.
    fn name(&self) -> String;

    /// Forgets what it has seen.
    fn reset(&mut self);

    /// Takes a batch into account.
    fn add(&mut self, logits: &Logits, labels: &[usize]) -> Result<()>;

    /// The measure so far.
    fn value(&self) -> f64;
}

/// `top5`, for instance.
impl Metric for TopK {
    fn name(&self) -> String {
        format!("top{}", self.k())
    }
    fn reset(&mut self) {
        *self = TopK::new(self.k());
    }
    fn add(&mut self, logits: &Logits, labels: &[usize]) -> Result<()> {
        TopK::add(self, logits, labels)
    }
    fn value(&self) -> f64 {
        self.share()
    }
}

/// `macro_f1`: the mean F1 of all classes.
impl Metric for Confusion {
    fn name(&self) -> String {
        "macro_f1".into()
    }
    fn reset(&mut self) {
        *self = Confusion::new(self.classes());
    }
    fn add(&mut self, logits: &Logits, labels: &[usize]) -> Result<()> {
        Confusion::add(self, labels, &logits.guesses())
    }
    fn value(&self) -> f64 {
        self.report().macro_average.f1
    }
}
