//! Elements by size: `sort`, `argsort`, `topk`.

mod cuda;

use super::slice::resized;
use super::{At, Operation, one};
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::tasks::pieces;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};
use crate::{Error, Result};
use std::cmp::Ordering;
use std::marker::PhantomData;

/// The places (i64) of the elements along a dimension in order of size, the first `keep` of them. Equal elements
/// keep their order; NaN is larger than all numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgSort {
    pub dim: usize,
    pub descending: bool,
    pub keep: usize,
}

impl Operation for ArgSort {
    fn name(&self) -> &'static str {
        "argsort"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        if self.keep > x.shape[self.dim] {
            let problem = format!("dimension {} has no {} elements", self.dim, self.keep);
            return Err(Error::operands("topk", problem, &[("input", x)]));
        }
        one(Meta { shape: resized(&x.shape, self.dim, self.keep), dtype: DType::I64 })
    }
    fn gradient(&self, _at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let shape = &inputs[0].meta.shape;
        let (outer, inner) = (shape[..self.dim].iter().product(), shape[self.dim + 1..].iter().product());
        let (size, keep, descending) = (shape[self.dim], self.keep, self.descending);
        macro_rules! of {
            ($t:ty) => {
                Box::new(Lines::<$t> { outer, size, inner, keep, descending, element: PhantomData })
            };
        }
        Ok(match inputs[0].meta.dtype {
            DType::F64 => of!(f64),
            DType::I64 => of!(i64),
            DType::U8 | DType::Bool => of!(u8),
            _ => of!(f32),
        })
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::kernel(self, &inputs[0].meta, gpu)
    }
}

struct Lines<T> {
    outer: usize,
    size: usize,
    inner: usize,
    keep: usize,
    descending: bool,
    element: PhantomData<T>,
}

impl<T> Lines<T> {
    fn lines(&self) -> usize {
        self.outer * self.inner
    }

    /// Sorting is some ten times the work of a copy.
    fn tasks(&self) -> usize {
        pieces(self.lines() * self.size * 8).min(self.lines().max(1))
    }
}

#[allow(clippy::eq_op)]
fn order<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| (a != a).cmp(&(b != b)))
}

impl<T: Plain + PartialOrd> Kernel for Lines<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    /// The places of one line, then its elements.
    fn scratch(&self) -> usize {
        self.size * 16
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let &Lines { size, inner, keep, descending, .. } = self;
        // SAFETY: nobody writes the input; scratch belongs to this task.
        let (x, places, line) = unsafe {
            let line = io.scratch.part::<i64>(size, size).slice_mut::<T>(0..size) as *mut [T];
            (io.inputs[0].slice::<T>(), io.scratch.slice_mut::<i64>(0..size), &mut *line)
        };
        for index in share(self.lines(), self.tasks(), task) {
            let (outer, i) = (index / inner, index % inner);
            for (place, value) in line.iter_mut().enumerate() {
                *value = x[(outer * size + place) * inner + i];
                places[place] = place as i64;
            }
            // With the place as the second criterion no two are equal, so any way of sorting gives one result.
            let by = |a: &i64, b: &i64| {
                let sizes = order(&line[*a as usize], &line[*b as usize]);
                (if descending { sizes.reverse() } else { sizes }).then(a.cmp(b))
            };
            if keep > 0 && keep < size {
                places.select_nth_unstable_by(keep - 1, by);
            }
            places[..keep].sort_unstable_by(by);
            for (k, &place) in places[..keep].iter().enumerate() {
                let at = (outer * keep + k) * inner + i;
                // SAFETY: each line has its own results.
                unsafe { io.outputs[0].slice_mut::<i64>(at..at + 1)[0] = place };
            }
        }
    }
}

impl Tensor {
    #[track_caller]
    fn ordered(&self, op: &'static str, dim: isize, descending: bool, keep: Option<usize>) -> Result<(Tensor, Tensor)> {
        let d = self.dim(op, dim)?;
        let keep = keep.unwrap_or(self.shape()[d]);
        let places = Tensor::apply(ArgSort { dim: d, descending, keep }, &[self])?;
        Ok((self.gather(dim, &places)?, places))
    }

    /// The elements along a dimension in order of size, and the places (i64) where they were. Equal elements keep
    /// their order; NaN is larger than all numbers.
    ///
    /// ```
    /// let (values, places) = neurona::Tensor::from([2.0f32, 3.0, 1.0, 2.0]).sort(0, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 2.0, 3.0]);
    /// assert_eq!(places.to_vec::<i64>()?, [2, 0, 3, 1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, dim: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        self.ordered("sort", dim, descending, None)
    }

    /// The places of [`Tensor::sort`] alone.
    ///
    /// ```
    /// let x = neurona::Tensor::from([2.0f32, 3.0, 1.0, 2.0]);
    /// assert_eq!(x.argsort(0, true)?.to_vec::<i64>()?, [1, 0, 3, 2]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, dim: isize, descending: bool) -> Result<Tensor> {
        let d = self.dim("argsort", dim)?;
        Tensor::apply(ArgSort { dim: d, descending, keep: self.shape()[d] }, &[self])
    }

    /// The `k` largest elements along a dimension, the largest first, and their places (i64); the smallest, from
    /// the smallest on, when not `largest`. Of equal elements the first come first.
    ///
    /// ```
    /// let (values, places) = neurona::Tensor::from([2.0f32, 9.0, 1.0, 4.0]).topk(2, 0, true)?;
    /// assert_eq!(values.to_vec::<f32>()?, [9.0, 4.0]);
    /// assert_eq!(places.to_vec::<i64>()?, [1, 3]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn topk(&self, k: usize, dim: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        self.ordered("topk", dim, largest, Some(k))
    }
}
