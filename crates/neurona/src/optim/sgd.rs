//! Stochastic gradient descent.

use super::{Optimizer, Slots};
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
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
}

impl Sgd {
    /// Plain gradient descent with this learning rate.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        Sgd {
            slots: Slots::new(parameters),
            lr,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
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
        self.weight_decay = weight_decay;
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
}

impl Optimizer for Sgd {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let options = Options { momentum: self.momentum != 0.0, nesterov: self.nesterov, maximize: self.maximize };
        let (lr, momentum, dampening, decay) = (self.lr, self.momentum, self.dampening, self.weight_decay);
        self.slots.stage(SgdStep { options }, options.momentum as usize, |step| {
            vec![lr, momentum, dampening, decay, step as f64]
        })
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
