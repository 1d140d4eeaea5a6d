//! RMSprop.

use super::slots::by_slots;
use super::{Group, Optimizer, Slots};
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
    alpha: f64,
    eps: f64,
    momentum: f64,
    centered: bool,
}

impl RmsProp {
    /// With PyTorch's defaults: alpha 0.99, epsilon 1e-8.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        RmsProp::with_groups(vec![Group::new(parameters)], lr)
    }

    /// With groups that have a learning rate or a weight decay of their own.
    pub fn with_groups(groups: Vec<Group>, lr: f64) -> Self {
        RmsProp { slots: Slots::new(groups, lr), alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false }
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
        self.slots.weight_decay = weight_decay;
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

    fn kinds(&self) -> Vec<&'static str> {
        let all = [("square_avg", true), ("grad_avg", self.centered), ("momentum_buffer", self.momentum != 0.0)];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }
}

impl Optimizer for RmsProp {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let options = Options { centered: self.centered, momentum: self.momentum != 0.0, maximize: false };
        let (alpha, eps, momentum) = (self.alpha, self.eps, self.momentum);
        let states = self.kinds().len();
        self.slots.stage(RmsPropStep { options }, states, |_, lr, decay| [lr, alpha, eps, decay, momentum])
    }

    by_slots!();
}
