//! Half cosines, one after the other.

use super::{Schedule, cosine};

/// Half a cosine down over `steps` steps, then from the top again; each round `times` as long as the one before:
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
///
/// ```
/// use neurona::schedule::{CosineRestarts, Schedule};
/// let schedule = CosineRestarts::new(1.0, 10).times(2);
/// assert_eq!((schedule.lr(0), schedule.lr(10), schedule.lr(20), schedule.lr(30)), (1.0, 1.0, 0.5, 1.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CosineRestarts {
    lr: f64,
    end: f64,
    steps: u64,
    times: u64,
}

impl CosineRestarts {
    /// Rounds of this many steps, from this learning rate down to 0.
    pub fn new(lr: f64, steps: u64) -> Self {
        CosineRestarts { lr, end: 0.0, steps: steps.max(1), times: 1 }
    }

    /// Down to this learning rate.
    pub fn down_to(mut self, end: f64) -> Self {
        self.end = end;
        self
    }

    /// With every round this many times as long as the one before.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times.max(1);
        self
    }
}

impl Schedule for CosineRestarts {
    fn lr(&self, step: u64) -> f64 {
        let (mut begin, mut round) = (0u64, self.steps);
        if self.times == 1 {
            begin = step - step % round;
        }
        while step - begin >= round {
            begin += round;
            round = round.saturating_mul(self.times);
        }
        cosine(self.lr, self.end, (step - begin) as f64 / round as f64)
    }
}
