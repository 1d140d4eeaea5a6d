//! `pad`: a margin around a tensor.

mod cpu;
mod cuda;

use super::{At, Operation, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Shape, Tensor, with_storage_type};
use crate::{Error, Result};
use smallvec::SmallVec;

/// What a margin is filled with.
///
/// ```
/// use neurona::{PadMode, Tensor};
/// let x = Tensor::from([1.0f32, 2.0, 3.0]);
/// assert_eq!(x.pad(&[2, 1], PadMode::Constant(9.0))?.to_vec::<f32>()?, [9.0, 9.0, 1.0, 2.0, 3.0, 9.0]);
/// assert_eq!(x.pad(&[2, 1], PadMode::Reflect)?.to_vec::<f32>()?, [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
/// assert_eq!(x.pad(&[2, 1], PadMode::Replicate)?.to_vec::<f32>()?, [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// This number; an input of the plan.
    Constant(f64),
    /// The elements inside, mirrored at the edge, which is not repeated.
    Reflect,
    /// The element at the edge.
    Replicate,
}

/// How a margin is filled, without the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fill {
    Constant,
    Reflect,
    Replicate,
}

/// Places added before and after each dimension. Operands: x, and a number of its type for a constant margin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pad {
    pub margins: SmallVec<[(usize, usize); 4]>,
    pub fill: Fill,
}

/// The gradient of [`Pad`]: the margins go, and what they were copied from gets their gradient. Operand: dy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PadGrad {
    pub margins: SmallVec<[(usize, usize); 4]>,
    pub fill: Fill,
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        for (d, (&n, &(before, after))) in x.shape.iter().zip(&self.margins).enumerate() {
            let wrong = |problem: String| Err(Error::operands("pad", problem, &[("input", x)]));
            match self.fill {
                Fill::Reflect if before.max(after) >= n && before.max(after) > 0 => {
                    return wrong(format!("a mirrored margin must be smaller than dimension {d} of size {n}"));
                }
                Fill::Replicate if n == 0 && before.max(after) > 0 => {
                    return wrong(format!("dimension {d} has no edge to repeat"));
                }
                _ => {}
            }
        }
        let padded = |(&n, &(before, after)): (&usize, &(usize, usize))| n.saturating_add(before).saturating_add(after);
        let shape: Shape = x.shape.iter().zip(&self.margins).map(padded).collect();
        one(Meta { shape, dtype: x.dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = PadGrad { margins: self.margins.clone(), fill: self.fill };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?])?), None])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let frame = cpu::Frame::new(&x.shape, &self.margins, self.fill);
        Ok(with_storage_type!(x.dtype, T => Box::new(cpu::Pad::<T>::new(frame))))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0].meta;
        cuda::pad(x.dtype, &x.shape, &self.margins, self.fill, gpu)
    }
}

impl Operation for PadGrad {
    fn name(&self) -> &'static str {
        "pad_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = inputs[0];
        let shape: Shape = dy.shape.iter().zip(&self.margins).map(|(n, (before, after))| n - before - after).collect();
        one(Meta { shape, dtype: dy.dtype })
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let frame = cpu::Frame::new(&outputs[0].meta.shape, &self.margins, self.fill);
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(cpu::PadGrad::<f64>::new(frame)),
            _ => Box::new(cpu::PadGrad::<f32>::new(frame)),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (dy, dx) = (&inputs[0].meta, &outputs[0].meta);
        cuda::pad_grad(dy.dtype, (&dy.shape, &dx.shape), &self.margins, self.fill, gpu)
    }
}

impl Tensor {
    /// A margin around a tensor. As in PyTorch, `margins` begins with the last dimension: before, after, then the
    /// same for the dimension before it: `[left, right, top, bottom]` for images.
    ///
    /// ```
    /// use neurona::{PadMode, Tensor};
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// let y = x.pad(&[1, 0, 0, 1], PadMode::Constant(0.0))?;
    /// assert_eq!(y.shape().to_string(), "[3, 3]");
    /// assert_eq!(y.to_vec::<i64>()?, [0, 1, 2, 0, 3, 4, 0, 0, 0]);
    /// assert!(x.pad(&[2, 0], PadMode::Reflect).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, margins: &[usize], mode: PadMode) -> Result<Tensor> {
        let (pairs, rest) = margins.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() > self.rank() {
            let problem =
                format!("{margins:?} is not a pair of margins for each of at most {} dimensions", self.rank());
            return Err(self.error("pad", problem));
        }
        if margins.iter().all(|&m| m == 0) {
            return Ok(self.clone());
        }
        let mut each = SmallVec::from_elem((0, 0), self.rank());
        each.iter_mut().rev().zip(pairs).for_each(|(each, &[before, after])| *each = (before, after));
        let op = |fill| Pad { margins: each, fill };
        match mode {
            PadMode::Constant(value) => {
                let value = Tensor::numbers([Number::Float(value)], Meta::new((), self.dtype()));
                Tensor::apply(op(Fill::Constant), &[self, &value])
            }
            PadMode::Reflect => Tensor::apply(op(Fill::Reflect), &[self]),
            PadMode::Replicate => Tensor::apply(op(Fill::Replicate), &[self]),
        }
    }
}
