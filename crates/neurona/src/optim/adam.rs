//! Adam and AdamW.

use super::slots::by_slots;
use super::{Group, Optimizer, Slots};
use crate::Result;
use crate::graph::cell::Cell;
use crate::nn::Parameter;
use crate::ops::adam_step::{AdamStep, Options};

/// Adam, as `torch.optim.Adam`; AdamW is [`Adam::adamw`].
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
    betas: (f64, f64),
    eps: f64,
    options: Options,
}

impl Adam {
    /// With PyTorch's defaults: betas 0.9 and 0.999, epsilon 1e-8, no weight decay.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        Adam::with_groups(vec![Group::new(parameters)], lr)
    }

    /// With groups that have a learning rate or a weight decay of their own.
    pub fn with_groups(groups: Vec<Group>, lr: f64) -> Self {
        Adam { slots: Slots::new(groups, lr), betas: (0.9, 0.999), eps: 1e-8, options: Options::default() }
    }

    /// AdamW with PyTorch's defaults: as [`Adam::new`], with decoupled weight decay of 0.01.
    ///
    /// ```
    /// use neurona::{Tensor, nn::Parameter, optim::{Adam, Optimizer}};
    /// let w = Parameter::new(&Tensor::from([1.0f32]))?;
    /// let mut adamw = Adam::adamw(vec![w.clone()], 0.1).weight_decay(0.5);
    /// w.get()?.mul_scalar(0.0)?.sum()?.backward()?;
    /// adamw.step()?;
    /// assert_eq!(w.get()?.item::<f32>()?, 0.95);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn adamw(parameters: Vec<Parameter>, lr: f64) -> Self {
        Adam::new(parameters, lr).decoupled().weight_decay(0.01)
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
        self.slots.weight_decay = weight_decay;
        self
    }

    /// With weight decay apart from the gradient, as AdamW has it.
    pub fn decoupled(mut self) -> Self {
        self.options.decoupled = true;
        self
    }

    /// With the greatest second moment so far.
    pub fn amsgrad(mut self) -> Self {
        self.options.amsgrad = true;
        self
    }

    fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = vec!["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
        kinds.truncate(2 + self.options.amsgrad as usize);
        kinds
    }
}

impl Optimizer for Adam {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let ((b1, b2), eps) = (self.betas, self.eps);
        self.slots.stage(AdamStep { options: self.options }, self.kinds().len(), |step, lr, decay| {
            [lr, b1, b2, eps, decay, step as f64]
        })
    }

    by_slots!();
}
