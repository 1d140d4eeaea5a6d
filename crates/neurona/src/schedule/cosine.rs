//! Down along half a cosine.

use super::Schedule;

/// Half a cosine down over `steps` steps: `torch.optim.lr_scheduler.CosineAnnealingLR`. As in PyTorch it goes up
/// again after that.
///
/// ```
/// use neurona::schedule::{Cosine, Schedule};
/// let schedule = Cosine::new(1.0, 100).down_to(0.5);
/// assert_eq!((schedule.lr(0), schedule.lr(50), schedule.lr(100)), (1.0, 0.75, 0.5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cosine {
    lr: f64,
    end: f64,
    steps: u64,
}

impl Cosine {
    /// From this learning rate down to 0.
    pub fn new(lr: f64, steps: u64) -> Self {
        Cosine { lr, end: 0.0, steps: steps.max(1) }
    }

    /// Down to this learning rate.
    pub fn down_to(mut self, end: f64) -> Self {
        self.end = end;
        self
    }
}

impl Schedule for Cosine {
    fn lr(&self, step: u64) -> f64 {
        super::cosine(self.lr, self.end, step as f64 / self.steps as f64)
    }
}
