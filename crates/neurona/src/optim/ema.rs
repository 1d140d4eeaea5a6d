//! A moving average of the weights.

use super::Optimizer;
use super::shadow::{Shadow, by_inner};
use super::slots::kept;
use crate::graph::cell::Cell;
use crate::io::StateDict;
use crate::tensor::no_grad;
use crate::{Error, Result, Tensor};

/// An optimizer that also keeps an exponential moving average of the weights, updated in the step's own plan:
/// average ← decay · average + (1 − decay) · weights. It starts as the weights are now. Statistics of
/// batch-norm layers are not averaged.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Ema, Optimizer, Sgd}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut optimizer = Ema::new(Sgd::new(vec![w.clone()], 1.0), 0.75)?;
/// w.get()?.sum()?.backward()?;
/// optimizer.step()?;
/// assert_eq!(w.get()?.item::<f32>()?, 0.0);
/// optimizer.apply()?; // evaluate with the average
/// assert_eq!(w.get()?.item::<f32>()?, 0.75);
/// optimizer.restore()?; // and go on training
/// assert_eq!(w.get()?.item::<f32>()?, 0.0);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Ema<O> {
    inner: O,
    decay: f64,
    warm_up: bool,
    shadow: Shadow,
    /// The weights, while the model has the average.
    weights: Option<Vec<Tensor>>,
}

impl<O: Optimizer> Ema<O> {
    /// The average of what this optimizer trains.
    pub fn new(inner: O, decay: f64) -> Result<Self> {
        let shadow = Shadow::of(&inner)?;
        Ok(Ema { inner, decay, warm_up: false, shadow, weights: None })
    }

    /// With a decay that begins low and grows with the count t of updates: min(decay, (1 + t) / (10 + t)).
    pub fn warm_up(mut self) -> Self {
        self.warm_up = true;
        self
    }

    /// The optimizer inside.
    pub fn inner(&mut self) -> &mut O {
        &mut self.inner
    }

    /// Gives the model the average; [`Ema::restore`] takes it back.
    pub fn apply(&mut self) -> Result<()> {
        if self.weights.is_some() {
            return Err(Error::Argument("the average is applied already; call restore first".into()));
        }
        // Kept where they are: given back they have the addresses that captured plans know.
        let weights = self.parameters().iter().map(|p| kept(&p.get()?)).collect::<Result<Vec<_>>>()?;
        for (parameter, average) in self.inner.parameters().iter().zip(self.shadow.cells()) {
            parameter.set(&average.get()?)?;
        }
        self.weights = Some(weights);
        Ok(())
    }

    /// Gives the model its own weights again.
    pub fn restore(&mut self) -> Result<()> {
        let weights = self.weights.take();
        let Some(weights) = weights else {
            return Err(Error::Argument("the average is not applied; there is nothing to restore".into()));
        };
        self.inner.parameters().iter().zip(&weights).try_for_each(|(p, w)| p.set(w))
    }

    /// The average by the parameters' names.
    pub fn average(&self) -> Result<StateDict> {
        self.shadow.named()
    }
}

impl<O: Optimizer> Optimizer for Ema<O> {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        if self.weights.is_some() {
            return Err(Error::Argument("the model has the average now; call restore before training on".into()));
        }
        let mut cells = self.inner.stage()?;
        self.shadow.steps += 1;
        let t = self.shadow.steps as f64;
        let decay = if self.warm_up { self.decay.min((1.0 + t) / (10.0 + t)) } else { self.decay };
        no_grad(|| self.shadow.follow(&self.inner, 1.0 - decay))?;
        cells.extend_from_slice(self.shadow.cells());
        Ok(cells)
    }

    by_inner!();
}
