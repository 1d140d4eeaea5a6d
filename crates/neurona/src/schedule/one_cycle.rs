//! Up and down once.

use super::{Schedule, cosine};

/// Up to the highest learning rate and down to almost nothing: `torch.optim.lr_scheduler.OneCycleLR` (of the
/// learning rate; momentum stays as it is). After its last step it stays where it is.
///
/// ```
/// use neurona::schedule::{OneCycle, Schedule};
/// let schedule = OneCycle::new(1.0, 101);
/// assert!((schedule.lr(0) - 0.04).abs() < 1e-12 && (schedule.lr(100) - 4e-6).abs() < 1e-12);
/// assert!(schedule.lr(29) > 0.99);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OneCycle {
    lr: f64,
    steps: u64,
    rise: f64,
    div: f64,
    final_div: f64,
    linear: bool,
    three_phase: bool,
}

impl OneCycle {
    /// The highest learning rate, and how many steps there are in all. PyTorch's defaults: cosine lines, rising for
    /// 30 % of the steps, from a 25th, to a 10,000th of that.
    pub fn new(lr: f64, steps: u64) -> Self {
        OneCycle { lr, steps: steps.max(1), rise: 0.3, div: 25.0, final_div: 1e4, linear: false, three_phase: false }
    }

    /// Rising for this share of the steps.
    pub fn rise(mut self, share: f64) -> Self {
        self.rise = share;
        self
    }

    /// Starting at the highest rate divided by this.
    pub fn div_factor(mut self, div: f64) -> Self {
        self.div = div;
        self
    }

    /// Ending at the first rate divided by this.
    pub fn final_div_factor(mut self, final_div: f64) -> Self {
        self.final_div = final_div;
        self
    }

    /// In straight lines.
    pub fn linear(mut self) -> Self {
        self.linear = true;
        self
    }

    /// Going down to the first rate as long as it went up, and only then to the last.
    pub fn three_phase(mut self) -> Self {
        self.three_phase = true;
        self
    }
}

impl Schedule for OneCycle {
    fn lr(&self, step: u64) -> f64 {
        let (first, last) = (self.lr / self.div, self.lr / self.div / self.final_div);
        let (total, rise) = (self.steps as f64, self.rise * self.steps as f64);
        let end = total - 1.0;
        let step = (step as f64).min(end);
        // Where each phase ends, and the rates at its ends.
        let two = [(rise - 1.0, first, self.lr), (end, self.lr, last), (end, last, last)];
        let three = [(rise - 1.0, first, self.lr), (2.0 * rise - 2.0, self.lr, first), (end, first, last)];
        let mut begin = 0.0;
        for (end, from, to) in if self.three_phase { three } else { two } {
            if step <= end {
                let part = if end > begin { (step - begin) / (end - begin) } else { 1.0 };
                return if self.linear { from + (to - from) * part } else { cosine(from, to, part) };
            }
            begin = end;
        }
        last
    }
}
