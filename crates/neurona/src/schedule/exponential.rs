//! A factor every step.

use super::Schedule;

/// Multiplied by `gamma` every step: `torch.optim.lr_scheduler.ExponentialLR`.
///
/// ```
/// use neurona::schedule::{Exponential, Schedule};
/// assert_eq!(Exponential::new(1.0, 0.5).lr(3), 0.125);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    lr: f64,
    gamma: f64,
}

impl Exponential {
    /// From this learning rate on.
    pub fn new(lr: f64, gamma: f64) -> Self {
        Exponential { lr, gamma }
    }
}

impl Schedule for Exponential {
    fn lr(&self, step: u64) -> f64 {
        self.lr * self.gamma.powf(step as f64)
    }
}
