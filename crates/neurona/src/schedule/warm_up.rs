//! A straight line up, and then another schedule.

use super::{Schedule, part};

/// A straight line up to where another schedule begins, and then that schedule: `SequentialLR` of a `LinearLR` and
/// another scheduler.
///
/// ```
/// use neurona::schedule::{Cosine, Schedule, WarmUp};
/// let schedule = WarmUp::new(Cosine::new(1.0, 100), 10).from(0.2);
/// assert!((schedule.lr(5) - 0.6).abs() < 1e-12);
/// assert_eq!((schedule.lr(0), schedule.lr(10), schedule.lr(60)), (0.2, 1.0, 0.5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WarmUp<S> {
    schedule: S,
    steps: u64,
    factor: f64,
}

impl<S: Schedule> WarmUp<S> {
    /// Before this schedule, over this many steps, from a hundredth of where it begins.
    pub fn new(schedule: S, steps: u64) -> Self {
        WarmUp { schedule, steps, factor: 0.01 }
    }

    /// From this share of where the schedule begins.
    pub fn from(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn lr(&self, step: u64) -> f64 {
        match step.checked_sub(self.steps) {
            Some(later) => self.schedule.lr(later),
            None => self.schedule.lr(0) * (self.factor + (1.0 - self.factor) * part(step, self.steps)),
        }
    }
}
