//! A factor every so many steps.

use super::Schedule;

/// Multiplied by `gamma` every `size` steps: `torch.optim.lr_scheduler.StepLR`.
///
/// ```
/// use neurona::schedule::{Schedule, Step};
/// let schedule = Step::new(1.0, 30, 0.1);
/// assert_eq!((schedule.lr(29), schedule.lr(30)), (1.0, 0.1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Step {
    lr: f64,
    size: u64,
    gamma: f64,
}

impl Step {
    /// From this learning rate on.
    pub fn new(lr: f64, size: u64, gamma: f64) -> Self {
        Step { lr, size: size.max(1), gamma }
    }
}

impl Schedule for Step {
    fn lr(&self, step: u64) -> f64 {
        self.lr * self.gamma.powf((step / self.size) as f64)
    }
}
