//! A second copy of the weights, which follows them.

use super::Optimizer;
use super::slots::{Reader, names, part, plain, within};
use crate::graph::cell::Cell;
use crate::io::StateDict;
use crate::{Result, Tensor};

pub(super) struct Shadow {
    cells: Vec<Cell>,
    names: Vec<String>,
    /// How many steps the optimizer inside has taken.
    pub steps: u64,
}

impl Shadow {
    /// A copy of what an optimizer trains.
    pub fn of(inner: &dyn Optimizer) -> Result<Self> {
        let cells = inner.parameters().iter().map(|p| Cell::new(&p.get()?, false)).collect::<Result<_>>()?;
        Ok(Shadow { cells, names: names(inner.parameters()), steps: 0 })
    }

    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Goes this part of the way to the weights: stages it, and gives the new values.
    pub fn follow(&self, inner: &dyn Optimizer, part: f64) -> Result<Vec<Tensor>> {
        let move_one = |(parameter, shadow): (&crate::nn::Parameter, &Cell)| {
            let value = parameter.get()?;
            // The model may have been moved since.
            shadow.to(value.device())?;
            let old = shadow.get()?;
            let new = (&old + (value - &old)?.mul_scalar(part)?)?;
            shadow.stage(new.clone())?;
            Ok(new)
        };
        inner.parameters().iter().zip(&self.cells).map(move_one).collect()
    }

    /// The copy by the parameters' names.
    pub fn named(&self) -> Result<StateDict> {
        self.names.iter().zip(&self.cells).map(|(name, cell)| Ok((name.clone(), plain(&cell.get()?)?))).collect()
    }

    /// The copy, the count of steps, and the state of the optimizer inside.
    pub fn save(&self, inner: &dyn Optimizer) -> Result<StateDict> {
        let inner = inner.state_dict()?.into_iter().map(|(name, value)| (format!("optimizer.{name}"), value));
        let own = self.named()?.into_iter().map(|(name, value)| (format!("shadow.{name}"), value));
        let steps = ("steps".to_string(), plain(&Tensor::scalar(self.steps as i64))?);
        Ok(inner.chain(own).chain([steps]).collect())
    }

    /// Takes over what [`Shadow::save`] gave. When it fails nothing has changed.
    pub fn load(&mut self, inner: &mut dyn Optimizer, state: &StateDict) -> Result<()> {
        let own = state.iter().filter(|(name, _)| !name.starts_with("optimizer."));
        let own: StateDict = own.map(|(name, value)| (name, value.clone())).collect();
        let mut reader = Reader::new(&own);
        let steps = reader.number("steps");
        let named = self.names.iter().zip(&self.cells);
        let values: Vec<_> = named.map(|(n, cell)| reader.tensor(&format!("shadow.{n}"), &cell.meta())).collect();
        reader.finish()?;
        inner.load_state_dict(&part(state, "optimizer.")).map_err(|error| within("optimizer.", error))?;
        for (cell, value) in self.cells.iter().zip(values) {
            value.iter().try_for_each(|value| cell.set(value))?;
        }
        self.steps = steps.unwrap_or(0.0) as u64;
        Ok(())
    }
}

/// The methods of [`Optimizer`] that a wrapper with a shadow hands on.
macro_rules! by_inner {
    () => {
        fn parameters(&self) -> &[$crate::nn::Parameter] {
            self.inner.parameters()
        }

        fn lr(&self) -> f64 {
            self.inner.lr()
        }

        fn set_lr(&mut self, lr: f64) {
            self.inner.set_lr(lr);
        }

        fn state_dict(&self) -> $crate::Result<$crate::io::StateDict> {
            self.shadow.save(&self.inner)
        }

        fn load_state_dict(&mut self, state: &$crate::io::StateDict) -> $crate::Result<()> {
            self.shadow.load(&mut self.inner, state)
        }
    };
}
pub(super) use by_inner;
