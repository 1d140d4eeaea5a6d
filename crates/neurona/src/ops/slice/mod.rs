//! Parts of a tensor along one dimension: `narrow`, `slice`, `select`, `split`, `chunk`.

mod cpu;

pub(super) use cpu::rows;

use super::movement::{Origin, places};
use super::{At, Operation, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Shape, Tensor, with_sized_type, with_storage_type};
use crate::{Error, Result};

/// Every `step`-th place along a dimension, `length` of them. Operands: x and the first place (i64), which is an
/// operand so that a part from elsewhere needs no new plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slice {
    pub dim: usize,
    pub length: usize,
    pub step: usize,
}

/// The gradient of [`Slice`]: a dimension of `size` places, zeros but for those that were taken.
/// Operands: dy and the first place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unslice {
    pub dim: usize,
    pub size: usize,
    pub step: usize,
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }
    fn describe(&self) -> String {
        format!("slice {} of dimension {}", self.length, self.dim)
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        if self.length > 0 && (self.length - 1).saturating_mul(self.step) >= x.shape[self.dim] {
            let problem = format!("dimension {} has no {} places", self.dim, self.length);
            return Err(Error::operands("slice", problem, &[("input", x)]));
        }
        one(Meta { shape: resized(&x.shape, self.dim, self.length), dtype: x.dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = Unslice { dim: self.dim, size: at.inputs[0].shape()[self.dim], step: self.step };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?, &at.inputs[1]])?), None])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let part = cpu::Part::new(&x.shape, self.dim, self.length, self.step);
        Ok(with_sized_type!(x.dtype, T => Box::new(cpu::Take::<T>::new(part))))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (x, y) = (&inputs[0].meta, &outputs[0].meta);
        places(x.dtype, &x.shape, &y.shape, self.dim, Origin::Slice { step: self.step }, gpu)
    }
}

impl Operation for Unslice {
    fn name(&self) -> &'static str {
        "unslice"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(Meta { shape: resized(&inputs[0].shape, self.dim, self.size), dtype: inputs[0].dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = Slice { dim: self.dim, length: at.inputs[0].shape()[self.dim], step: self.step };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?, &at.inputs[1]])?), None])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (dy, x) = (&inputs[0].meta, &outputs[0].meta);
        let part = cpu::Part::new(&x.shape, self.dim, dy.shape[self.dim], self.step);
        Ok(with_storage_type!(dy.dtype, T => Box::new(cpu::Put::<T>::new(part))))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (dy, dx) = (&inputs[0].meta, &outputs[0].meta);
        places(dy.dtype, &dy.shape, &dx.shape, self.dim, Origin::Unslice { step: self.step }, gpu)
    }
}

/// The shape with another size along a dimension.
pub(super) fn resized(shape: &Shape, dim: usize, size: usize) -> Shape {
    shape.iter().enumerate().map(|(d, &n)| if d == dim { size } else { n }).collect()
}

/// A whole number as an operand: an input of the plan.
#[track_caller]
pub(super) fn place(at: usize) -> Tensor {
    Tensor::numbers([Number::Int(at as i64)], Meta::new((), DType::I64))
}

impl Tensor {
    #[track_caller]
    fn part(&self, dim: usize, start: usize, length: usize, step: usize) -> Result<Tensor> {
        if length == self.shape()[dim] && step == 1 {
            return Ok(self.clone());
        }
        Tensor::apply(Slice { dim, length, step }, &[self, &place(start)])
    }

    /// `length` places along a dimension from `start` on. The start is an input of the plan: a part from elsewhere
    /// makes no new one.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.narrow(1, 1, 2)?.to_vec::<i64>()?, [2, 3, 5, 6]);
    /// assert!(x.narrow(1, 2, 2).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: usize, length: usize) -> Result<Tensor> {
        let d = self.dim("narrow", dim)?;
        let size = self.shape()[d];
        if start.checked_add(length).is_none_or(|end| end > size) {
            let problem = format!("{length} places from {start} on do not fit dimension {dim} of size {size}");
            return Err(self.error("narrow", problem));
        }
        self.part(d, start, length, 1)
    }

    /// Every `step`-th place from `start` up to but without `end`, as Python's `x[start:end:step]`: negative places
    /// count from the end, and places beyond either end are cut off.
    ///
    /// ```
    /// let x = neurona::Tensor::arange(10)?;
    /// assert_eq!(x.slice(0, 1, 8, 3)?.to_vec::<i64>()?, [1, 4, 7]);
    /// assert_eq!(x.slice(0, -2, isize::MAX, 1)?.to_vec::<i64>()?, [8, 9]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn slice(&self, dim: isize, start: isize, end: isize, step: usize) -> Result<Tensor> {
        let d = self.dim("slice", dim)?;
        if step == 0 {
            return Err(self.error("slice", "the step must be at least 1"));
        }
        let size = self.shape()[d] as isize;
        let place = |at: isize| (if at < 0 { at.saturating_add(size) } else { at }).clamp(0, size) as usize;
        let (start, end) = (place(start), place(end));
        self.part(d, start, end.saturating_sub(start).div_ceil(step), step)
    }

    /// One place along a dimension, which is gone from the result; negative places count from the end.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.select(1, -1)?.to_vec::<i64>()?, [3, 6]);
    /// assert!(x.select(0, 2).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn select(&self, dim: isize, index: isize) -> Result<Tensor> {
        let d = self.dim("select", dim)?;
        let size = self.shape()[d] as isize;
        if !(-size..size).contains(&index) {
            return Err(self.error("select", format!("dimension {dim} of size {size} has no place {index}")));
        }
        let start = if index < 0 { index + size } else { index };
        self.part(d, start as usize, 1, 1)?.reshape(self.shape().without(d))
    }

    /// Parts of `size` places along a dimension; the last may be smaller.
    ///
    /// ```
    /// let parts = neurona::Tensor::arange(5)?.split(2, 0)?;
    /// assert_eq!(parts[2].to_vec::<i64>()?, [4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        let d = self.dim("split", dim)?;
        let all = self.shape()[d];
        if size == 0 && all > 0 {
            return Err(self.error("split", "the parts must have at least one place"));
        }
        let starts = (0..all.max(1)).step_by(size.max(1));
        starts.map(|start| self.part(d, start, size.min(all - start), 1)).collect()
    }

    /// Parts of the sizes given, which must add up to the size of the dimension.
    ///
    /// ```
    /// let parts = neurona::Tensor::arange(5)?.split_sizes(&[1, 4], 0)?;
    /// assert_eq!(parts[1].to_vec::<i64>()?, [1, 2, 3, 4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], dim: isize) -> Result<Vec<Tensor>> {
        let d = self.dim("split", dim)?;
        let total = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if total != Some(self.shape()[d]) {
            return Err(self.error("split", format!("{sizes:?} do not add up to dimension {dim}")));
        }
        let mut start = 0;
        let mut next = |&size: &usize| {
            start += size;
            self.part(d, start - size, size, 1)
        };
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(next(size)?);
        }
        Ok(parts)
    }

    /// At most `chunks` parts of one size along a dimension; the last may be smaller.
    ///
    /// ```
    /// let sizes: Vec<usize> = neurona::Tensor::arange(7)?.chunk(3, 0)?.iter().map(|c| c.numel()).collect();
    /// assert_eq!(sizes, [3, 3, 1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, chunks: usize, dim: isize) -> Result<Vec<Tensor>> {
        let d = self.dim("chunk", dim)?;
        if chunks == 0 {
            return Err(self.error("chunk", "there must be at least one part"));
        }
        match self.shape()[d] {
            // All parts of nothing are empty, and as many as asked for.
            0 => Ok(vec![self.clone(); chunks]),
            size => self.split(size.div_ceil(chunks), dim),
        }
    }
}
