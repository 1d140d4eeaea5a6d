//! A straight line.

use super::{Schedule, part};

/// The learning rate times a factor that goes in a straight line from `start` to `end` over `steps` steps and then
/// stays: `torch.optim.lr_scheduler.LinearLR`.
///
/// ```
/// use neurona::schedule::{Linear, Schedule};
/// let schedule = Linear::new(0.5, 1.0, 0.0, 10);
/// assert_eq!((schedule.lr(0), schedule.lr(5), schedule.lr(99)), (0.5, 0.25, 0.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    lr: f64,
    start: f64,
    end: f64,
    steps: u64,
}

impl Linear {
    /// The learning rate, its factors at the start and at the end, and how many steps lie between.
    pub fn new(lr: f64, start: f64, end: f64, steps: u64) -> Self {
        Linear { lr, start, end, steps }
    }
}

impl Schedule for Linear {
    fn lr(&self, step: u64) -> f64 {
        self.lr * (self.start + (self.end - self.start) * part(step, self.steps))
    }
}
