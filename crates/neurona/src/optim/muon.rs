//! Muon.

use super::slots::by_slots;
use super::{Group, Optimizer, Slots};
use crate::graph::cell::Cell;
use crate::nn::Parameter;
use crate::tensor::no_grad;
use crate::{Error, Result, Tensor};

/// Momentum whose update is orthogonalised by a Newton–Schulz iteration, for matrices and filters; a filter bank
/// `[out, in, h, w]` is taken as the matrix `[out, in·h·w]`. Biases and other vectors need another optimizer beside
/// it, in one [`Composite`](super::Composite).
///
/// ```
/// use neurona::nn::{Linear, Module, Parameter};
/// use neurona::optim::{Composite, Muon, Optimizer, Sgd};
/// let net = Linear::new(4, 2)?;
/// let (filters, rest): (Vec<Parameter>, _) = net.parameters().into_iter().partition(Muon::suits);
/// let muon = Muon::new(filters, 0.24).momentum(0.6).iterations(3).renormalise(1);
/// let mut both = Composite::new(vec![Box::new(muon), Box::new(Sgd::new(rest, 0.05))]);
/// both.set_lr(0.12); // and half as fast for the rest
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Muon {
    slots: Slots,
    momentum: f64,
    nesterov: bool,
    iterations: usize,
    coefficients: (f64, f64, f64),
    eps: f64,
    renormalise: u64,
    match_shape: bool,
}

impl Muon {
    /// With the usual settings: momentum 0.95 with Nesterov's look ahead, five iterations with the coefficients
    /// 3.4445, −4.7750 and 2.0315, no weight decay, no renormalisation.
    pub fn new(parameters: Vec<Parameter>, lr: f64) -> Self {
        Muon::with_groups(vec![Group::new(parameters)], lr)
    }

    /// With groups that have a learning rate or a weight decay of their own.
    pub fn with_groups(groups: Vec<Group>, lr: f64) -> Self {
        Muon {
            slots: Slots::new(groups, lr),
            momentum: 0.95,
            nesterov: true,
            iterations: 5,
            coefficients: (3.4445, -4.7750, 2.0315),
            eps: 1e-7,
            renormalise: 0,
            match_shape: false,
        }
    }

    /// Whether a parameter is a matrix or a filter bank.
    pub fn suits(parameter: &Parameter) -> bool {
        parameter.shape().len() >= 2
    }

    /// With this momentum.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// With or without Nesterov's look ahead.
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.nesterov = nesterov;
        self
    }

    /// With this many Newton–Schulz iterations.
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.iterations = iterations;
        self
    }

    /// With these coefficients of the iteration X ← a·X + b·(XXᵀ)X + c·(XXᵀ)²X.
    pub fn coefficients(mut self, a: f64, b: f64, c: f64) -> Self {
        self.coefficients = (a, b, c);
        self
    }

    /// With this number added to the norm that the iteration starts by dividing by.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Scaling each parameter to the Frobenius norm √(out channels) before every n-th update, the first one
    /// included; 0 is never.
    pub fn renormalise(mut self, every: u64) -> Self {
        self.renormalise = every;
        self
    }

    /// With weight decay apart from the gradient.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.slots.weight_decay = weight_decay;
        self
    }

    /// Multiplying the learning rate by √max(1, out/rest), as `torch.optim.Muon` does.
    pub fn match_shape(mut self, on: bool) -> Self {
        self.match_shape = on;
        self
    }

    fn kinds(&self) -> Vec<&'static str> {
        vec!["momentum_buffer"]
    }

    /// The matrix with the same singular vectors and singular values near 1.
    fn orthogonalise(&self, x: &Tensor) -> Result<Tensor> {
        let (a, b, c) = self.coefficients;
        let tall = x.shape()[0] > x.shape()[1];
        let mut x = x.div(&frobenius(x)?.add_scalar(self.eps)?)?;
        if tall {
            x = x.t()?;
        }
        for _ in 0..self.iterations {
            let square = x.matmul(&x.t()?)?;
            let factor = (square.mul_scalar(b)? + square.matmul(&square)?.mul_scalar(c)?)?;
            x = (x.mul_scalar(a)? + factor.matmul(&x)?)?;
        }
        if tall { x.t() } else { Ok(x) }
    }

    /// The next parameter and the next momentum.
    fn update(&self, i: usize, parameter: &Tensor, gradient: &Tensor, momentum: &Tensor) -> Result<[Tensor; 2]> {
        let shape = parameter.shape();
        let rows = shape[0];
        let rest: usize = shape[1..].iter().product();
        let (lr, decay) = self.slots.rates(i);
        let momentum = (momentum.mul_scalar(self.momentum)? + gradient)?;
        let along = if self.nesterov { (gradient + momentum.mul_scalar(self.momentum)?)? } else { momentum.clone() };
        let move_by = self.orthogonalise(&along.reshape([rows, rest])?)?.reshape(shape)?;
        let mut value = parameter.clone();
        if self.renormalise > 0 && (self.slots.steps(i) - 1).is_multiple_of(self.renormalise) {
            let norm = frobenius(&value)?.clamp_min(self.eps)?;
            value = value.mul(&((rows as f64).sqrt() / &norm)?)?;
        }
        if decay != 0.0 {
            value = value.mul_scalar(1.0 - lr * decay)?;
        }
        let scale = if self.match_shape { (rows as f64 / rest.max(1) as f64).max(1.0).sqrt() } else { 1.0 };
        Ok([(value - move_by.mul_scalar(lr * scale)?)?, momentum])
    }
}

fn frobenius(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.sum()?.sqrt()
}

impl Optimizer for Muon {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        if let Some(i) = self.slots.parameters.iter().position(|p| !Muon::suits(p)) {
            let (name, shape) = (self.slots.name(i), self.slots.parameters[i].shape());
            let problem = format!("Muon is for matrices and filters; give {name} {shape} to another optimizer");
            return Err(Error::Argument(problem));
        }
        let mut written = Vec::new();
        for (i, gradient) in self.slots.due() {
            let parameter = self.slots.parameters[i].cell().clone();
            let momentum = self.slots.state(i, 1)?[0].clone();
            let value = parameter.get()?;
            let state = momentum.get_on(value.device())?;
            let [value, moved] = no_grad(|| self.update(i, &value, &gradient, &state))?;
            parameter.stage(value)?;
            momentum.stage(moved)?;
            written.extend([parameter, momentum]);
        }
        Ok(written)
    }

    by_slots!();
}
