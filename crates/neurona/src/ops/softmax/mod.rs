//! `softmax` and `log_softmax`.

pub(crate) mod cpu;
mod cuda;

use super::{At, Operation, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Tensor};
use crate::{Error, Result};
pub(crate) use cpu::Kind;

/// Over the last dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Softmax {
    pub kind: Kind,
}

/// Operands: dy, y.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SoftmaxGrad {
    pub kind: Kind,
}

fn rows(x: &Meta) -> (usize, usize) {
    let n = x.shape.last().copied().unwrap_or(1);
    (x.shape[..x.shape.len().saturating_sub(1)].iter().product(), n)
}

impl Operation for Softmax {
    fn name(&self) -> &'static str {
        if self.kind == Kind::Softmax { "softmax" } else { "log_softmax" }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if !inputs[0].dtype.is_float() {
            return Err(Error::operands(self.name(), "needs a floating-point tensor", &[("input", inputs[0])]));
        }
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(SoftmaxGrad { kind: self.kind }, &[&at.dy()?, &at.outputs[0]])?)])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, n) = rows(&inputs[0].meta);
        Ok(float_kernel!(inputs[0].meta.dtype, T => cpu::Forward::<T>::new(rows, n, self.kind)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::kernel(self.kind, false, &inputs[0].meta, gpu)
    }
}

impl Operation for SoftmaxGrad {
    fn name(&self) -> &'static str {
        if self.kind == Kind::Softmax { "softmax_grad" } else { "log_softmax_grad" }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, n) = rows(&inputs[0].meta);
        Ok(float_kernel!(inputs[0].meta.dtype, T => cpu::Backward::<T>::new(rows, n, self.kind)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::kernel(self.kind, true, &inputs[0].meta, gpu)
    }
}

impl Tensor {
    /// Exponentials over their sum, along a dimension.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1.0f32, 1.0]).softmax(0)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, dim: isize) -> Result<Tensor> {
        self.along(dim, Kind::Softmax)
    }

    /// The logarithm of [`Tensor::softmax`], without its loss of precision.
    #[track_caller]
    pub fn log_softmax(&self, dim: isize) -> Result<Tensor> {
        self.along(dim, Kind::LogSoftmax)
    }

    #[track_caller]
    fn along(&self, dim: isize, kind: Kind) -> Result<Tensor> {
        let op = Softmax { kind };
        if self.rank() == 0 {
            return Tensor::apply(op, &[&self.reshape([1])?])?.reshape(());
        }
        let dim = self.dim(op.name(), dim)? as isize;
        let last = self.rank() as isize - 1;
        if dim == last {
            return Tensor::apply(op, &[self]);
        }
        Tensor::apply(op, &[&self.transpose(dim, last)?])?.transpose(dim, last)
    }
}
