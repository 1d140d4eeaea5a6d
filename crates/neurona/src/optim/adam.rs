//! Adam and AdamW.

use super::{Optimizer, Slots};
use crate::Result;
use crate::graph::cell::Cell;
use crate::nn::Parameter;
use crate::ops::adam_step::{AdamStep, Options};

/// Adam, as `torch.optim.Adam`; AdamW with [`Adam::decoupled`].
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Adam, Optimizer}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut adam = Adam::new(vec![w.clone()], 0.001);
/// w.get()?.sum()?.backward()?;
/// adam.step()?;
/// assert!((w.get()?.item::<f32>()? - 0.999).abs() < 1e-6);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Adam {
    slots: Slots,
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    options: Options,
}

impl Adam {
    /// With PyTorch's defaults: betas 0.9 and 0.999, epsilon 1e-8, no weight decay.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        let options = Options::default();
        Adam { slots: Slots::new(parameters), lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, options }
    }

    /// With these decay rates of the moments.
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.betas = (first, second);
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

    /// With weight decay apart from the gradient: AdamW.
    pub fn decoupled(mut self) -> Self {
        self.options.decoupled = true;
        self
    }

    /// With the greatest second moment so far.
    pub fn amsgrad(mut self) -> Self {
        self.options.amsgrad = true;
        self
    }
}

impl Optimizer for Adam {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let (lr, (b1, b2), eps, decay) = (self.lr, self.betas, self.eps, self.weight_decay);
        self.slots.stage(AdamStep { options: self.options }, 2 + self.options.amsgrad as usize, |step| {
            vec![lr, b1, b2, eps, decay, step as f64]
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
