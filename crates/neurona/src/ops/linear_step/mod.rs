//! The gradients of a linear layer by its input and by its weights, and a step of stochastic gradient descent along the
//! latter, as one op: what a lowering pass makes of them on CPU cores where few rows meet many weights. These are then read
//! and written once, and not three times.

mod cpu;

use super::Operation;
use super::sgd_step::Options;
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};

/// Operands: the gradient by the layer's result `[rows, out]`, its input `[rows, in]`, when it is masked a relu's result of
/// the input's size, the weight `[out, in]`, with momentum its buffer, and the step's numbers. Results: the gradients by the
/// input and by the weight, then the weight and its buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinearStep {
    /// Whether the first result is the gradient by what a relu was applied to, as with
    /// [a product](super::matmul::MatMul::masked).
    pub masked: bool,
    pub step: Options,
}

impl LinearStep {
    /// Whether there is a kernel for operands like these.
    pub fn fits(&self, dy: &Meta, x: &Meta) -> bool {
        dy.dtype == DType::F32 && x.dtype == DType::F32 && self.kernel(dy, x).is_ok()
    }

    fn kernel(&self, dy: &Meta, x: &Meta) -> Result<cpu::Sweep> {
        let sweep = match (&dy.shape[..], &x.shape[..]) {
            (&[rows, out], &[_, inner]) => cpu::Sweep::new(rows, out, inner, self.masked, self.step),
            _ => None,
        };
        sweep.ok_or_else(|| Error::op(self.name(), "is for few rows, and for weights that caches hold"))
    }
}

impl Operation for LinearStep {
    fn name(&self) -> &'static str {
        "linear_grad·sgd_step"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let weight = &inputs[2 + usize::from(self.masked)..inputs.len() - 1];
        Ok([inputs[1], weight[0]].iter().chain(weight).map(|m| (*m).clone()).collect())
    }
    fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
        let weight = 2 + usize::from(self.masked);
        (weight..inputs - 1).map(|input| (2 + input - weight, input)).collect()
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Ok(Box::new(self.kernel(&inputs[0].meta, &inputs[1].meta)?))
    }
}
