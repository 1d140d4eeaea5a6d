//! Down along a power.

use super::{Schedule, part};

/// The learning rate times (1 − step/steps) to a power, and then 0: `torch.optim.lr_scheduler.PolynomialLR`.
///
/// ```
/// use neurona::schedule::{Polynomial, Schedule};
/// let schedule = Polynomial::new(1.0, 10, 2.0);
/// assert_eq!((schedule.lr(0), schedule.lr(5), schedule.lr(10)), (1.0, 0.25, 0.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Polynomial {
    lr: f64,
    steps: u64,
    power: f64,
}

impl Polynomial {
    /// From this learning rate to 0 in this many steps.
    pub fn new(lr: f64, steps: u64, power: f64) -> Self {
        Polynomial { lr, steps, power }
    }
}

impl Schedule for Polynomial {
    fn lr(&self, step: u64) -> f64 {
        self.lr * (1.0 - part(step, self.steps)).powf(self.power)
    }
}
