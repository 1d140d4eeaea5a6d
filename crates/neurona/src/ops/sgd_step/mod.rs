//! A step of stochastic gradient descent of all parameters in one sweep. Made by [`crate::optim`].

pub(crate) mod cpu;

use super::{Operation, sweep};
use crate::Result;
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
pub(crate) use cpu::Options;

/// Operands and results as in [`cpu::Step`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SgdStep {
    pub options: Options,
}

impl SgdStep {
    /// Operands a parameter: itself, its gradient and its state.
    pub fn operands(options: &Options) -> usize {
        2 + options.momentum as usize
    }
}

impl Operation for SgdStep {
    fn name(&self) -> &'static str {
        "sgd_step"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        sweep::outputs(inputs, Self::operands(&self.options))
    }
    fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
        sweep::in_place(inputs, Self::operands(&self.options))
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let sizes = sweep::sizes(inputs, Self::operands(&self.options));
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(cpu::Step::<f64>::new(&sizes, self.options)),
            _ => Box::new(cpu::Step::<f32>::new(&sizes, self.options)),
        })
    }
}
