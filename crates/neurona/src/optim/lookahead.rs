//! Lookahead: slow weights that follow fast ones.

use super::slots::{Reader, names, part, plain};
use super::Optimizer;
use crate::graph::cell::Cell;
use crate::io::StateDict;
use crate::nn::Parameter;
use crate::tensor::no_grad;
use crate::{Result, Tensor};

/// An optimizer whose weights return, every k steps, to slow weights that have moved a part of the way:
/// slow ← slow + α · (fast − slow), fast ← slow. It is part of the step's own plan.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Lookahead, Optimizer, Sgd}};
/// let w = Parameter::new(&Tensor::from([1.0f32]))?;
/// let mut optimizer = Lookahead::new(Sgd::new(vec![w.clone()], 0.5), 2, 0.25)?;
/// for seen in [0.5, 0.75, 0.25, 0.5] {
///     optimizer.zero_grad();
///     w.get()?.sum()?.backward()?;
///     optimizer.step()?;
///     assert_eq!(w.get()?.item::<f32>()?, seen);
/// }
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Lookahead<O> {
    inner: O,
    every: u64,
    alpha: f64,
    slow: Vec<Cell>,
    names: Vec<String>,
    steps: u64,
}

impl<O: Optimizer> Lookahead<O> {
    /// Over this optimizer, every `every` steps (at least 1), going the part `alpha` of the way.
    pub fn new(inner: O, every: u64, alpha: f64) -> Result<Self> {
        let slow = inner.parameters().iter().map(|p| Cell::new(&p.get()?, false)).collect::<Result<_>>()?;
        let names = names(inner.parameters());
        Ok(Lookahead { inner, every: every.max(1), alpha, slow, names, steps: 0 })
    }

    /// Changes the part of the way that the slow weights go. It is an input of the plan.
    pub fn set_alpha(&mut self, alpha: f64) {
        self.alpha = alpha;
    }

    /// The optimizer inside.
    pub fn inner(&mut self) -> &mut O {
        &mut self.inner
    }
}

impl<O: Optimizer> Optimizer for Lookahead<O> {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let mut cells = self.inner.stage()?;
        self.steps += 1;
        if self.steps % self.every != 0 {
            return Ok(cells);
        }
        no_grad(|| {
            for (parameter, slow) in self.inner.parameters().iter().zip(&self.slow) {
                let old = slow.get()?;
                let apart = (parameter.get()? - &old)?;
                let new = (&old + apart.mul_scalar(self.alpha)?)?;
                slow.stage(new.clone())?;
                parameter.cell().stage(new)?;
                cells.extend([slow.clone(), parameter.cell().clone()]);
            }
            Ok(cells)
        })
    }

    fn parameters(&self) -> &[Parameter] {
        self.inner.parameters()
    }

    fn lr(&self) -> f64 {
        self.inner.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.inner.set_lr(lr);
    }

    /// The slow weights and the state of the optimizer inside.
    fn state_dict(&self) -> Result<StateDict> {
        let inner = self.inner.state_dict()?.into_iter().map(|(name, value)| Ok((format!("optimizer.{name}"), value)));
        let named = self.names.iter().zip(&self.slow);
        let slow = named.map(|(name, cell)| Ok((format!("slow.{name}"), plain(&cell.get()?)?)));
        let steps = plain(&Tensor::scalar(self.steps as i64)).map(|value| ("steps".to_string(), value));
        inner.chain(slow).chain([steps]).collect()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let own: StateDict = state.iter().filter(|(n, _)| !n.starts_with("optimizer.")).map(|(n, t)| (n, t.clone())).collect();
        let mut reader = Reader::new(&own);
        let steps = reader.number("steps");
        let named = self.names.iter().zip(&self.slow);
        let values: Vec<_> = named.map(|(n, cell)| reader.tensor(&format!("slow.{n}"), &cell.meta())).collect();
        reader.finish()?;
        self.inner.load_state_dict(&part(state, "optimizer."))?;
        for (cell, value) in self.slow.iter().zip(values) {
            value.iter().try_for_each(|value| cell.set(value))?;
        }
        self.steps = steps.unwrap_or(0.0) as u64;
        Ok(())
    }
}
