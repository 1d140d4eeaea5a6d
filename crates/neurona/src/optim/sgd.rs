//! Stochastic gradient descent.

use super::slots::by_slots;
use super::{Group, Optimizer, Slots};
use crate::Result;
use crate::graph::cell::Cell;
use crate::nn::Parameter;
use crate::ops::sgd_step::{Options, SgdStep};

/// Stochastic gradient descent, with momentum, Nesterov's variant and weight decay, as `torch.optim.SGD`.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Optimizer, Sgd}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut sgd = Sgd::new(vec![w.clone()], 0.1).momentum(0.9);
/// w.get()?.sum()?.backward()?;
/// sgd.step()?;
/// assert_eq!(w.get()?.to_vec::<f32>()?, [0.9]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Sgd {
    slots: Slots,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
}

impl Sgd {
    /// Plain gradient descent with this learning rate.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        Sgd::with_groups(vec![Group::new(parameters)], lr)
    }

    /// With groups that have a learning rate or a weight decay of their own.
    pub fn with_groups(groups: Vec<Group>, lr: f64) -> Self {
        let slots = Slots::new(groups, lr);
        Sgd { slots, momentum: 0.0, dampening: 0.0, nesterov: false, maximize: false }
    }

    /// With momentum.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// With dampening of the momentum.
    pub fn dampening(mut self, dampening: f64) -> Self {
        self.dampening = dampening;
        self
    }

    /// With L2 weight decay.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.slots.weight_decay = weight_decay;
        self
    }

    /// With Nesterov's look ahead.
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.nesterov = nesterov;
        self
    }

    /// Uphill instead of downhill.
    pub fn maximize(mut self, maximize: bool) -> Self {
        self.maximize = maximize;
        self
    }

    fn kinds(&self) -> Vec<&'static str> {
        if self.momentum != 0.0 { vec!["momentum_buffer"] } else { vec![] }
    }
}

impl Optimizer for Sgd {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let options = Options { momentum: self.momentum != 0.0, nesterov: self.nesterov, maximize: self.maximize };
        let (momentum, dampening) = (self.momentum, self.dampening);
        self.slots.stage(SgdStep { options }, options.momentum as usize, |step, lr, decay| {
            [lr, momentum, dampening, decay, step as f64]
        })
    }

    by_slots!();
}
