//! `roll`: elements moved along a dimension, those that leave at one end coming back at the other.

use super::movement::{Origin, places};
use super::slice::rows;
use super::{At, Operation, one};
use crate::Result;
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::tasks::pieces;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor, with_sized_type};
use std::marker::PhantomData;

/// Operands: x and by how many places it moves (i64), an operand so that plans do not depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Roll {
    pub dim: usize,
}

impl Operation for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(self.clone(), &[&at.dy()?, &at.inputs[1].neg()?])?), None])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let shape = &inputs[0].meta.shape;
        let outer = shape[..self.dim].iter().product();
        let (size, inner) = (shape[self.dim], shape[self.dim + 1..].iter().product());
        Ok(
            with_sized_type!(inputs[0].meta.dtype, T => Box::new(Turn::<T> { outer, size, inner, element: PhantomData })),
        )
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let Meta { shape, dtype } = &inputs[0].meta;
        places(*dtype, shape, shape, self.dim, Origin::Roll, gpu)
    }
}

/// Rows of `size · inner` elements, turned by a multiple of `inner`.
struct Turn<T> {
    outer: usize,
    size: usize,
    inner: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Kernel for Turn<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.outer * self.size * self.inner)]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let width = self.size * self.inner;
        let range = share(self.outer * width, pieces(self.outer * width), task);
        // SAFETY: nobody writes the inputs.
        let (x, shift) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<i64>()[0]) };
        rows(range, width, |row, within| {
            let moved = shift.rem_euclid(self.size as i64) as usize * self.inner;
            let at = row * width;
            let x = &x[at..at + width];
            // What has come round, then what has moved up.
            for (from, to, source) in [
                (within.start, within.end.min(moved), within.start + width - moved),
                (within.start.max(moved), within.end, within.start.max(moved) - moved),
            ] {
                if from < to {
                    // SAFETY: each task has its own range of the result.
                    let y = unsafe { io.outputs[0].slice_mut::<T>(at + from..at + to) };
                    y.copy_from_slice(&x[source..][..to - from]);
                }
            }
        });
    }
}

impl Tensor {
    /// Moves elements along dimensions by as many places as `shifts` says; those that leave at one end come back
    /// at the other. The shifts are inputs of the plan.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.roll(&[1], &[1])?.to_vec::<i64>()?, [3, 1, 2, 6, 4, 5]);
    /// assert_eq!(x.roll(&[-1, 3], &[1, 0])?.to_vec::<i64>()?, [5, 6, 4, 2, 3, 1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, shifts: &[isize], dims: &[isize]) -> Result<Tensor> {
        if shifts.len() != dims.len() {
            let problem = format!("needs one shift for each dimension, not {} for {}", shifts.len(), dims.len());
            return Err(self.error("roll", problem));
        }
        let mut y = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let dim = self.dim("roll", dim)?;
            let shift = Tensor::numbers([Number::Int(shift as i64)], Meta::new((), DType::I64));
            y = Tensor::apply(Roll { dim }, &[&y, &shift])?;
        }
        Ok(y)
    }
}
