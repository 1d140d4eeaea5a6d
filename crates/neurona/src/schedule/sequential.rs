//! Schedules one after the other.

use super::Schedule;

/// One schedule up to a step, then the next, each counting from its own beginning:
/// `torch.optim.lr_scheduler.SequentialLR`.
///
/// ```
/// use neurona::schedule::{Exponential, Schedule, Sequential};
/// let schedule = Sequential::new(0.1).then(20, Exponential::new(1.0, 0.5));
/// assert_eq!((schedule.lr(19), schedule.lr(20), schedule.lr(21)), (0.1, 1.0, 0.5));
/// ```
pub struct Sequential {
    /// Each with the step at which it begins, in order.
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl Sequential {
    /// Beginning with this one.
    pub fn new(first: impl Schedule + 'static) -> Self {
        Sequential { parts: vec![(0, Box::new(first))] }
    }

    /// From `step` on with another one.
    pub fn then(mut self, step: u64, next: impl Schedule + 'static) -> Self {
        let place = self.parts.partition_point(|(begin, _)| *begin <= step);
        self.parts.insert(place, (step, Box::new(next)));
        self
    }
}

impl Schedule for Sequential {
    fn lr(&self, step: u64) -> f64 {
        let place = self.parts.partition_point(|(begin, _)| *begin <= step).max(1) - 1;
        let (begin, schedule) = &self.parts[place];
        schedule.lr(step - begin)
    }
}
