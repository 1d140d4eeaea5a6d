//! Schedules that apply together.

use super::Schedule;

/// The product of several schedules: `torch.optim.lr_scheduler.ChainedScheduler`. One of them has the learning rate;
/// give the others the rate 1, so that they are factors.
///
/// ```
/// use neurona::schedule::{Chained, Exponential, Linear, Schedule};
/// let schedule = Chained::new(vec![Box::new(Exponential::new(0.5, 0.5)), Box::new(Linear::new(1.0, 0.5, 1.0, 4))]);
/// assert_eq!((schedule.lr(0), schedule.lr(2)), (0.25, 0.5 * 0.25 * 0.75));
/// ```
pub struct Chained {
    schedules: Vec<Box<dyn Schedule>>,
}

impl Chained {
    /// All of these together.
    pub fn new(schedules: Vec<Box<dyn Schedule>>) -> Self {
        Chained { schedules }
    }
}

impl Schedule for Chained {
    fn lr(&self, step: u64) -> f64 {
        self.schedules.iter().map(|s| s.lr(step)).product()
    }
}
