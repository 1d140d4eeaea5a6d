//! `cat` and `stack`: tensors one after another along a dimension.

use super::movement::{Strided, strides};
use super::slice::{Slice, place, resized, rows};
use super::{At, Operation, one};
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::tasks::pieces;
use crate::cuda::kernel::Launches;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Tensor, here, with_sized_type};
use crate::{Error, Result};
use std::marker::PhantomData;

/// Any number of operands, one after another along a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cat {
    pub dim: usize,
}

impl Operation for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let first = inputs[0];
        for other in inputs {
            let fits = other.shape.len() == first.shape.len() && other.dtype == first.dtype;
            if !fits || resized(&other.shape, self.dim, first.shape[self.dim]) != first.shape {
                let problem = format!("the sizes may differ in dimension {} only", self.dim);
                return Err(Error::operands("cat", problem, &[("first", first), ("another", other)]));
            }
        }
        let size = inputs.iter().map(|x| x.shape[self.dim]).fold(0, usize::saturating_add);
        one(Meta { shape: resized(&first.shape, self.dim, size), dtype: first.dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (dy, mut start) = (at.dy()?, 0);
        let mut gradients = Vec::with_capacity(at.inputs.len());
        for (i, x) in at.inputs.iter().enumerate() {
            let length = x.shape()[self.dim];
            let op = Slice { dim: self.dim, length, step: 1 };
            gradients.push(at.when(i, || Tensor::apply(op, &[&dy, &place(start)]))?);
            start += length;
        }
        Ok(gradients)
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let shape = &inputs[0].meta.shape;
        let outer = shape[..self.dim].iter().product();
        let widths: Vec<usize> = inputs.iter().map(|x| x.meta.shape[self.dim..].iter().product()).collect();
        let width = widths.iter().sum();
        Ok(with_sized_type!(inputs[0].meta.dtype, T => {
            Box::new(Join::<T> { outer, widths, width, element: PhantomData })
        }))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let to = strides(&outputs[0].meta.shape);
        let (mut launches, mut start) = (Vec::with_capacity(inputs.len()), 0);
        for (i, x) in inputs.iter().enumerate() {
            let Meta { shape, dtype } = &x.meta;
            let offset = start * to[self.dim] as usize;
            let part = Strided::new(dtype.size(), shape, (&strides(shape), 0), (&to, offset));
            launches.extend(part.launch(i, gpu)?);
            start += shape[self.dim];
        }
        Ok(Box::new(Launches { launches, ..Launches::default() }))
    }
}

/// Rows made of one row of each operand.
struct Join<T> {
    outer: usize,
    widths: Vec<usize>,
    width: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Kernel for Join<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.outer * self.width)]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let total = self.outer * self.width;
        let range = share(total, pieces(total), task);
        rows(range, self.width, |row, within| {
            let mut begin = 0;
            for (x, &width) in io.inputs.iter().zip(&self.widths) {
                let (from, to) = (within.start.max(begin), within.end.min(begin + width));
                if from < to {
                    // SAFETY: nobody writes the inputs; each task has its own range of the result.
                    let (x, y) = unsafe {
                        let at = row * self.width;
                        (x.slice::<T>(), io.outputs[0].slice_mut::<T>(at + from..at + to))
                    };
                    y.copy_from_slice(&x[row * width + from - begin..][..to - from]);
                }
                begin += width;
            }
        });
    }
}

impl Tensor {
    /// Tensors one after another along a dimension; their types are mixed as by arithmetic.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let (a, b) = (Tensor::from([[1i64], [2]]), Tensor::from([[3i64, 4], [5, 6]]));
    /// assert_eq!(Tensor::cat(&[&a, &b], 1)?.to_vec::<i64>()?, [1, 3, 4, 2, 5, 6]);
    /// assert!(Tensor::cat(&[&a, &b], 0).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::op("cat", "there must be at least one tensor").at(here()));
        };
        let d = first.dim("cat", dim)?;
        if let [single] = tensors {
            return Ok((*single).clone());
        }
        let dtype = tensors.iter().fold(first.dtype(), |dtype, x| dtype.promote(x.dtype()));
        let mut alike = Vec::with_capacity(tensors.len());
        for x in tensors {
            alike.push(x.to_dtype(dtype)?);
        }
        Tensor::apply(Cat { dim: d }, &alike.iter().collect::<Vec<_>>())
    }

    /// Tensors of one shape along a new dimension.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::stack(&[&Tensor::from([1i64, 2]), &Tensor::from([3i64, 4])], 1)?;
    /// assert_eq!(y.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::op("stack", "there must be at least one tensor").at(here()));
        };
        let mut lifted = Vec::with_capacity(tensors.len());
        for x in tensors {
            if x.shape() != first.shape() {
                let operands = [("first", first.meta()), ("another", x.meta())];
                return Err(Error::operands("stack", "the shapes differ", &operands).at(here()));
            }
            lifted.push(x.unsqueeze(dim)?);
        }
        Tensor::cat(&lifted.iter().collect::<Vec<_>>(), dim)
    }
}
