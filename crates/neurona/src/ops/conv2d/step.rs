//! The gradient by the weights and a step of stochastic gradient descent along it, as one op: what a lowering pass makes
//! of the two on CPU cores, so that gradients meet their weights before they leave the caches.

use super::{Conv2dWeightGrad, cpu};
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::ops::sgd_step::Options;
use crate::ops::{Operation, Spatial};
use crate::tensor::{DType, Meta};
use crate::{Error, Result};

/// Operands: those of the gradient, then the weight, with momentum its buffer, and the step's numbers. Results: the
/// gradients, then the weight and its buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dWeightGradStep {
    pub grad: Conv2dWeightGrad,
    pub step: Options,
}

impl Conv2dWeightGradStep {
    /// Whether there is a kernel for the gradient by this weight of this input.
    pub fn fits(&self, x: &Meta, weight: &Meta) -> bool {
        x.dtype == DType::F32 && weight.dtype == DType::F32 && self.kernel(x, weight).is_ok()
    }

    fn kernel(&self, x: &Meta, weight: &Meta) -> Result<Box<dyn Kernel>> {
        let g = self.grad.options.check(x, weight).map_err(|p| Error::op(self.name(), p))?;
        let kernel = cpu::weight_grad_step(g, self.grad.bias, self.step);
        kernel.ok_or_else(|| Error::op(self.name(), "is for few pixels and many weights"))
    }
}

impl Operation for Conv2dWeightGradStep {
    fn name(&self) -> &'static str {
        "conv2d_weight_grad·sgd_step"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas = self.grad.outputs(&inputs[..2])?;
        metas.extend(inputs[2..inputs.len() - 1].iter().map(|m| (*m).clone()));
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        self.grad.spatial()
    }
    fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
        let gradients = 1 + usize::from(self.grad.bias);
        (2..inputs - 1).map(|input| (gradients + input - 2, input)).collect()
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        self.kernel(&inputs[0].meta, &inputs[2].meta)
    }
}
