//! A factor at chosen steps.

use super::Schedule;

/// Multiplied by `gamma` at each milestone: `torch.optim.lr_scheduler.MultiStepLR`. A milestone given twice counts
/// twice.
///
/// ```
/// use neurona::schedule::{MultiStep, Schedule};
/// let schedule = MultiStep::new(1.0, &[100, 150], 0.5);
/// assert_eq!((schedule.lr(99), schedule.lr(100), schedule.lr(150)), (1.0, 0.5, 0.25));
/// ```
#[derive(Clone, Debug)]
pub struct MultiStep {
    lr: f64,
    milestones: Vec<u64>,
    gamma: f64,
}

impl MultiStep {
    /// From this learning rate on.
    pub fn new(lr: f64, milestones: &[u64], gamma: f64) -> Self {
        MultiStep { lr, milestones: milestones.to_vec(), gamma }
    }
}

impl Schedule for MultiStep {
    fn lr(&self, step: u64) -> f64 {
        let passed = self.milestones.iter().filter(|m| **m <= step).count();
        self.lr * self.gamma.powf(passed as f64)
    }
}
