//! Optimizers, with PyTorch's names, formulas and defaults.

mod adam;
mod composite;
mod rmsprop;
mod sgd;

pub use adam::Adam;
pub use composite::Composite;
pub use rmsprop::RmsProp;
pub use sgd::Sgd;

use crate::graph::cell::Cell;
use crate::graph::engine;
use crate::nn::Parameter;
use crate::ops::Op;
use crate::tensor::{DType, Meta, Number, no_grad};
use crate::{Result, Tensor};
use std::collections::BTreeMap;

/// Changes parameters by their gradients.
pub trait Optimizer: Send {
    /// Adds the update to the graph of each parameter that has a gradient, and returns the cells it will
    /// write. [`Optimizer::step`] runs them; [`Composite`] runs those of several optimizers together.
    fn stage(&mut self) -> Result<Vec<Cell>>;

    /// The parameters it changes.
    fn parameters(&self) -> &[Parameter];

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate. It is an input of the plan: changing it every step costs nothing.
    fn set_lr(&mut self, lr: f64);

    /// Updates the parameters. Loss, gradients, new parameters and statistics are computed together here.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let cells = self.stage()?;
        engine::force(&[], &cells)
    }

    /// Forgets the gradients, so that the next `backward` starts from zero.
    fn zero_grad(&mut self) {
        self.parameters().iter().for_each(Parameter::zero_grad);
    }
}

/// What all optimizers share: parameters, their state, and how often each was updated.
pub(crate) struct Slots {
    pub parameters: Vec<Parameter>,
    state: Vec<Vec<Cell>>,
    steps: Vec<u64>,
}

impl Slots {
    pub fn new(parameters: Vec<Parameter>) -> Self {
        let count = parameters.len();
        Slots { parameters, state: vec![Vec::new(); count], steps: vec![0; count] }
    }

    /// Stages one update of all parameters that have a gradient: `states` cells of state each, and the
    /// numbers that `numbers` gives for the count of steps (the first is 1).
    pub fn stage(&mut self, op: impl Into<Op>, states: usize, numbers: impl Fn(u64) -> Vec<f64>) -> Result<Vec<Cell>> {
        let op = op.into();
        // Parameters that were frozen for a while have taken fewer steps; the rest go in one sweep.
        let mut groups: BTreeMap<u64, Vec<(usize, Tensor)>> = BTreeMap::new();
        for (i, parameter) in self.parameters.iter().enumerate() {
            if let Some(gradient) = parameter.grad() {
                self.steps[i] += 1;
                groups.entry(self.steps[i]).or_default().push((i, gradient));
            }
        }
        let mut written = Vec::new();
        for (step, group) in groups {
            let mut operands = Vec::with_capacity(group.len() * (2 + states) + 1);
            let first = written.len();
            for (i, gradient) in group {
                let parameter = self.parameters[i].cell();
                let value = parameter.get()?;
                while self.state[i].len() < states {
                    self.state[i].push(Cell::zeros(value.meta().clone(), value.device()));
                }
                operands.extend([value, gradient]);
                written.push(parameter.clone());
                for cell in &self.state[i] {
                    operands.push(cell.get()?);
                    written.push(cell.clone());
                }
            }
            let numbers = numbers(step);
            let meta = Meta::new([numbers.len()], DType::F64);
            operands.push(Tensor::numbers(numbers.into_iter().map(Number::Float), meta));
            let operands: Vec<&Tensor> = operands.iter().collect();
            let results = no_grad(|| Tensor::apply_all(op.clone(), &operands))?;
            for (cell, value) in written[first..].iter().zip(results) {
                cell.stage(value)?;
            }
        }
        Ok(written)
    }
}
