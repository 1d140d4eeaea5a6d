//! Losses scaled up so that small gradients are not lost in 16 bits.

use super::{Optimizer, all_finite};
use crate::graph::cell::Cell;
use crate::graph::engine;
use crate::io::StateDict;
use crate::nn::Parameter;
use crate::tensor::no_grad;
use crate::{Error, Result, Tensor};

/// Scales losses up before `backward` and gradients down before the step, as `torch.amp.GradScaler`: f16 has no numbers
/// below 6e-8. A step whose gradients are not all finite is left out, and the scale falls; after many good steps it
/// rises.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{GradScaler, Optimizer, Sgd}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut sgd = Sgd::new(vec![w.clone()], 0.5);
/// let mut scaler = GradScaler::new();
/// for factor in [f32::INFINITY, 1.0] {
///     sgd.zero_grad();
///     let loss = w.get()?.mul_scalar(factor as f64)?.sum()?;
///     scaler.scale(&loss)?.backward()?;
///     let stepped = scaler.step(&mut sgd)?;
///     scaler.update()?;
///     assert_eq!(stepped, factor.is_finite());
/// }
/// assert_eq!(w.get()?.to_vec::<f32>()?, [0.5]);
/// assert_eq!(scaler.factor(), 32768.0);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GradScaler {
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    /// Good steps since the scale last changed.
    growth_tracker: u64,
    optimizers: Vec<Seen>,
}

/// An optimizer whose gradients have been scaled down since the last update.
#[derive(Clone, Debug)]
struct Seen {
    /// Its first parameter.
    key: usize,
    /// Whether all its gradients are finite.
    finite: Tensor,
    stepped: bool,
}

impl Default for GradScaler {
    fn default() -> Self {
        GradScaler::new()
    }
}

impl GradScaler {
    /// PyTorch's: begins at 65536, doubles after 2000 good steps, halves after a bad one.
    pub fn new() -> Self {
        GradScaler {
            scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            growth_tracker: 0,
            optimizers: Vec::new(),
        }
    }

    /// Beginning with this scale.
    pub fn init_scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Multiplied by this after a row of good steps.
    pub fn growth_factor(mut self, factor: f64) -> Self {
        self.growth_factor = factor;
        self
    }

    /// Multiplied by this after a bad step.
    pub fn backoff_factor(mut self, factor: f64) -> Self {
        self.backoff_factor = factor;
        self
    }

    /// How many good steps make a row (at least one).
    pub fn growth_interval(mut self, steps: u64) -> Self {
        self.growth_interval = steps.max(1);
        self
    }

    /// What losses are multiplied with now.
    pub fn factor(&self) -> f64 {
        self.scale
    }

    /// The loss to call `backward` on.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        loss.mul_scalar(self.scale)
    }

    /// Scales an optimizer's gradients down, for whoever wants to clip them; [`GradScaler::step`] does it otherwise.
    /// Nothing is computed yet.
    pub fn unscale<O: Optimizer + ?Sized>(&mut self, optimizer: &mut O) -> Result<()> {
        let key = key(optimizer);
        if self.optimizers.iter().any(|seen| seen.key == key) {
            let problem = "the gradients of this optimizer were scaled down already; call update after its step";
            return Err(Error::Argument(problem.into()));
        }
        let gradients = no_grad(|| {
            let scaled = |p: &Parameter| {
                let gradient = p.grad()?.mul_scalar(1.0 / self.scale);
                Some(gradient.and_then(|gradient| p.set_grad(&gradient).map(|()| gradient)))
            };
            optimizer.parameters().iter().filter_map(scaled).collect::<Result<Vec<Tensor>>>()
        })?;
        self.optimizers.push(Seen { key, finite: all_finite(&gradients)?, stepped: false });
        Ok(())
    }

    /// Updates the parameters when all gradients are finite; says whether it did.
    #[track_caller]
    pub fn step<O: Optimizer + ?Sized>(&mut self, optimizer: &mut O) -> Result<bool> {
        self.step_with(optimizer, &[])
    }

    /// The same; these cells' staged writes are computed with the gradients.
    pub(crate) fn step_with<O: Optimizer + ?Sized>(&mut self, optimizer: &mut O, cells: &[Cell]) -> Result<bool> {
        let key = key(optimizer);
        if !self.optimizers.iter().any(|seen| seen.key == key) {
            self.unscale(optimizer)?;
        }
        let Some(seen) = self.optimizers.iter_mut().find(|seen| seen.key == key && !seen.stepped) else {
            return Err(Error::Argument("step was called twice for one optimizer; call update in between".into()));
        };
        engine::force(std::slice::from_ref(&seen.finite), cells)?;
        seen.stepped = true;
        let finite = seen.finite.item::<bool>()?;
        if finite {
            let cells = optimizer.stage()?;
            engine::force(&[], &cells)?;
        }
        Ok(finite)
    }

    /// Changes the scale by how the steps since the last call went.
    pub fn update(&mut self) -> Result<()> {
        if self.optimizers.is_empty() {
            return Err(Error::Argument("there was no step since the last update".into()));
        }
        let mut finite = true;
        for seen in std::mem::take(&mut self.optimizers) {
            finite &= seen.finite.item::<bool>()?;
        }
        if !finite {
            (self.scale, self.growth_tracker) = (self.scale * self.backoff_factor, 0);
            return Ok(());
        }
        self.growth_tracker += 1;
        if self.growth_tracker == self.growth_interval {
            let grown = self.scale * self.growth_factor;
            // Losses are f32: the scale must be one too.
            self.scale = if (grown as f32).is_finite() { grown } else { self.scale };
            self.growth_tracker = 0;
        }
        Ok(())
    }

    /// What it must remember when training goes on in another process, under PyTorch's names.
    pub fn state_dict(&self) -> StateDict {
        let numbers = [
            ("scale", self.scale),
            ("growth_factor", self.growth_factor),
            ("backoff_factor", self.backoff_factor),
            ("growth_interval", self.growth_interval as f64),
            ("_growth_tracker", self.growth_tracker as f64),
        ];
        numbers.into_iter().map(|(name, value)| (name, Tensor::scalar(value))).collect()
    }

    /// Takes over what [`GradScaler::state_dict`] gave. When it fails nothing has changed.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = super::slots::Reader::new(state);
        let names = ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"];
        let values: Vec<f64> = names.iter().filter_map(|name| reader.number(name)).collect();
        reader.finish()?;
        if let [scale, growth_factor, backoff_factor, growth_interval, growth_tracker] = values[..] {
            (self.scale, self.growth_factor, self.backoff_factor) = (scale, growth_factor, backoff_factor);
            (self.growth_interval, self.growth_tracker) = (growth_interval as u64, growth_tracker as u64);
        }
        Ok(())
    }
}

fn key<O: Optimizer + ?Sized>(optimizer: &O) -> usize {
    optimizer.parameters().first().map_or(0, |p| std::sync::Arc::as_ptr(&p.cell().0) as usize)
}
