//! Several optimizers as one.

use super::Optimizer;
use crate::Result;
use crate::graph::cell::Cell;
use crate::nn::Parameter;

/// Several optimizers over one model (say, one for filters and one for the rest), run as one plan.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Adam, Composite, Optimizer, Sgd}};
/// let (a, b) = (Parameter::new(&Tensor::from([1.0f32]))?, Parameter::new(&Tensor::from([1.0f32]))?);
/// let mut both = Composite::new(vec![
///     Box::new(Sgd::new(vec![a.clone()], 0.5)),
///     Box::new(Adam::new(vec![b.clone()], 0.5)),
/// ]);
/// (a.get()? * b.get()?)?.sum()?.backward()?;
/// both.step()?;
/// assert_eq!(a.get()?.item::<f32>()?, 0.5);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct Composite {
    parts: Vec<Box<dyn Optimizer>>,
    parameters: Vec<Parameter>,
}

impl Composite {
    /// All of these.
    pub fn new(parts: Vec<Box<dyn Optimizer>>) -> Self {
        let parameters = parts.iter().flat_map(|p| p.parameters().iter().cloned()).collect();
        Composite { parts, parameters }
    }

    /// The optimizers it is made of.
    pub fn parts(&mut self) -> &mut [Box<dyn Optimizer>] {
        &mut self.parts
    }
}

impl Optimizer for Composite {
    fn stage(&mut self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for part in &mut self.parts {
            cells.extend(part.stage()?);
        }
        Ok(cells)
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The first one's.
    fn lr(&self) -> f64 {
        self.parts.first().map_or(0.0, |p| p.lr())
    }

    /// Sets the first one's and scales the others in the same proportion.
    fn set_lr(&mut self, lr: f64) {
        let factor = if self.lr() == 0.0 { 1.0 } else { lr / self.lr() };
        self.parts.iter_mut().for_each(|p| p.set_lr(p.lr() * factor));
    }
}
