//! RMSprop.

use super::{Optimizer, Slots};
use crate::Result;
use crate::graph::cell::Cell;
use crate::nn::Parameter;
use crate::ops::rmsprop_step::{Options, RmsPropStep};

/// RMSprop, as `torch.optim.RMSprop`.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Optimizer, RmsProp}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut rmsprop = RmsProp::new(vec![w.clone()], 0.01);
/// w.get()?.sum()?.backward()?;
/// rmsprop.step()?;
/// assert!((w.get()?.item::<f32>()? - 0.9).abs() < 1e-6);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct RmsProp {
    slots: Slots,
    lr: f64,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

impl RmsProp {
    /// With PyTorch's defaults: alpha 0.99, epsilon 1e-8.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        RmsProp {
            slots: Slots::new(parameters),
            lr,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
        }
    }

    /// With this smoothing of the mean square.
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }

    /// With this number added to the denominator.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With L2 weight decay.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// With momentum.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Dividing by the deviation of the gradient instead of its root mean square.
    pub fn centered(mut self) -> Self {
        self.centered = true;
        self
    }
}

impl Optimizer for RmsProp {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let options = Options { centered: self.centered, momentum: self.momentum != 0.0, maximize: false };
        let states = 1 + options.centered as usize + options.momentum as usize;
        let numbers = vec![self.lr, self.alpha, self.eps, self.weight_decay, self.momentum];
        self.slots.stage(RmsPropStep { options }, states, |_| numbers.clone())
    }

    fn parameters(&self) -> &[Parameter] {
        &self.slots.parameters
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}
