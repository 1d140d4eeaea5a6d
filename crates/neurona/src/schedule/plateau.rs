//! Lower when nothing gets better.

/// Multiplied by a factor when a loss (or another measure) has not improved for a while:
/// `torch.optim.lr_scheduler.ReduceLROnPlateau`. It depends on what was measured, not on the step, so it is told the
/// measure after every epoch.
///
/// ```
/// use neurona::schedule::Plateau;
/// let mut plateau = Plateau::new(1.0).patience(1).factor(0.5);
/// let lrs: Vec<f64> = [3.0, 2.0, 2.0, 2.0, 2.0, 1.0].into_iter().map(|loss| plateau.step(loss)).collect();
/// assert_eq!(lrs, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plateau {
    lr: f64,
    factor: f64,
    patience: u64,
    threshold: f64,
    absolute: bool,
    cooldown: u64,
    min_lr: f64,
    eps: f64,
    highest: bool,
    best: f64,
    bad: u64,
    cooling: u64,
}

impl Plateau {
    /// From this learning rate on, with PyTorch's defaults: a tenth after more than 10 measures that are not lower
    /// than the lowest so far by at least 0.01 %.
    pub fn new(lr: f64) -> Self {
        Plateau {
            lr,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            absolute: false,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            highest: false,
            best: f64::INFINITY,
            bad: 0,
            cooling: 0,
        }
    }

    /// With this factor.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// After more than this many measures without improvement.
    pub fn patience(mut self, patience: u64) -> Self {
        self.patience = patience;
        self
    }

    /// A measure that improves by less than this share does not count.
    pub fn threshold(mut self, threshold: f64) -> Self {
        (self.threshold, self.absolute) = (threshold, false);
        self
    }

    /// A measure that improves by less than this amount does not count.
    pub fn absolute_threshold(mut self, threshold: f64) -> Self {
        (self.threshold, self.absolute) = (threshold, true);
        self
    }

    /// Not counting this many measures after a reduction.
    pub fn cooldown(mut self, cooldown: u64) -> Self {
        self.cooldown = cooldown;
        self
    }

    /// Never below this learning rate.
    pub fn min_lr(mut self, min_lr: f64) -> Self {
        self.min_lr = min_lr;
        self
    }

    /// For a measure that should be high: an accuracy.
    pub fn for_highest(mut self) -> Self {
        (self.highest, self.best) = (true, f64::NEG_INFINITY);
        self
    }

    /// The learning rate now.
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// What has changed since it was made: the learning rate, the best measure, and two counts.
    pub fn state(&self) -> [f64; 4] {
        [self.lr, self.best, self.bad as f64, self.cooling as f64]
    }

    /// Goes on from what [`Plateau::state`] gave.
    ///
    /// ```
    /// use neurona::schedule::Plateau;
    /// let mut first = Plateau::new(1.0).patience(1);
    /// first.step(3.0);
    /// first.step(3.0);
    /// let mut second = Plateau::new(1.0).patience(1);
    /// second.restore(first.state());
    /// assert_eq!(first.step(3.0), second.step(3.0));
    /// ```
    pub fn restore(&mut self, [lr, best, bad, cooling]: [f64; 4]) {
        (self.lr, self.best, self.bad, self.cooling) = (lr, best, bad as u64, cooling as u64);
    }

    /// Takes a measure into account and gives the learning rate from here on.
    pub fn step(&mut self, measure: f64) -> f64 {
        let better = match (self.highest, self.absolute) {
            (false, false) => measure < self.best * (1.0 - self.threshold),
            (false, true) => measure < self.best - self.threshold,
            (true, false) => measure > self.best * (1.0 + self.threshold),
            (true, true) => measure > self.best + self.threshold,
        };
        if better {
            (self.best, self.bad) = (measure, 0);
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            (self.cooling, self.bad) = (self.cooling - 1, 0);
        }
        if self.bad > self.patience {
            let lower = (self.lr * self.factor).max(self.min_lr);
            if self.lr - lower > self.eps {
                self.lr = lower;
            }
            (self.cooling, self.bad) = (self.cooldown, 0);
        }
        self.lr
    }
}
