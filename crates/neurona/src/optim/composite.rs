//! Several optimizers as one.

use super::Optimizer;
use super::slots::{part, within};
use crate::graph::cell::Cell;
use crate::io::StateDict;
use crate::nn::Parameter;
use crate::{Error, Result};

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
    /// The parts' learning rates at the start.
    bases: Vec<f64>,
    parameters: Vec<Parameter>,
}

impl Composite {
    /// All of these.
    pub fn new(parts: Vec<Box<dyn Optimizer>>) -> Self {
        let parameters = parts.iter().flat_map(|p| p.parameters().iter().cloned()).collect();
        let bases = parts.iter().map(|p| p.lr()).collect();
        Composite { parts, bases, parameters }
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

    /// Sets the first one's, and the others' in the proportion they had when the composite was made.
    fn set_lr(&mut self, lr: f64) {
        let first = self.bases.first().copied().unwrap_or(0.0);
        for (i, (part, base)) in self.parts.iter_mut().zip(&self.bases).enumerate() {
            let factor = if first == 0.0 { 1.0 } else { lr / first };
            part.set_lr(if i == 0 { lr } else { base * factor });
        }
    }

    /// The state of each, under its place.
    fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        for (i, part) in self.parts.iter().enumerate() {
            for (name, value) in part.state_dict()? {
                state.insert(format!("{i}.{name}"), value);
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let before = self.state_dict()?;
        let count = self.parts.len();
        let known =
            |name: &str| name.split_once('.').and_then(|(i, _)| i.parse().ok()).is_some_and(|i: usize| i < count);
        let unexpected: Vec<String> = state.names().filter(|name| !known(name)).map(String::from).collect();
        if !unexpected.is_empty() {
            return Err(Error::StateDict { missing: vec![], unexpected, mismatched: vec![] });
        }
        let mut load = |state: &StateDict| {
            let mut parts = self.parts.iter_mut().enumerate();
            parts.try_for_each(|(i, p)| {
                let prefix = format!("{i}.");
                p.load_state_dict(&part(state, &prefix)).map_err(|error| within(&prefix, error))
            })
        };
        load(state).map_err(|error| match load(&before) {
            Ok(()) => error,
            Err(worse) => worse,
        })
    }
}
