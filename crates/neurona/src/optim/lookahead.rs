//! Lookahead: slow weights that follow fast ones.

use super::Optimizer;
use super::shadow::{Shadow, by_inner};
use crate::Result;
use crate::graph::cell::Cell;
use crate::tensor::no_grad;

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
    shadow: Shadow,
}

impl<O: Optimizer> Lookahead<O> {
    /// Over this optimizer, every `every` steps (at least 1), going the part `alpha` of the way.
    pub fn new(inner: O, every: u64, alpha: f64) -> Result<Self> {
        let shadow = Shadow::of(&inner)?;
        Ok(Lookahead { inner, every: every.max(1), alpha, shadow })
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
        self.shadow.steps += 1;
        if !self.shadow.steps.is_multiple_of(self.every) {
            return Ok(cells);
        }
        let slow = no_grad(|| self.shadow.follow(&self.inner, self.alpha))?;
        for (parameter, value) in self.inner.parameters().iter().zip(slow) {
            parameter.cell().stage(value)?;
            cells.push(parameter.cell().clone());
        }
        cells.extend_from_slice(self.shadow.cells());
        Ok(cells)
    }

    by_inner!();
}
