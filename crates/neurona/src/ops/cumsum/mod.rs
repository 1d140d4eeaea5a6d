//! `cumsum`: running sums.

pub(in crate::ops) mod cuda;

use super::{At, Operation, one};
use crate::Result;
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::tasks::pieces;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};
use std::marker::PhantomData;

/// The sum of each element and all before it along a dimension, or of all after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CumSum {
    pub dim: usize,
    pub reverse: bool,
}

impl Operation for CumSum {
    fn name(&self) -> &'static str {
        "cumsum"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = CumSum { reverse: !self.reverse, ..self.clone() };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?])?)])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let shape = &inputs[0].meta.shape;
        let (outer, inner) = (shape[..self.dim].iter().product(), shape[self.dim + 1..].iter().product());
        let (size, reverse) = (shape[self.dim], self.reverse);
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(Scan::<f64> { outer, size, inner, reverse, element: PhantomData }),
            DType::I64 => Box::new(Scan::<i64> { outer, size, inner, reverse, element: PhantomData }),
            _ => Box::new(Scan::<f32> { outer, size, inner, reverse, element: PhantomData }),
        })
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::kernel(self, &inputs[0].meta, gpu)
    }
}

/// How elements are added up: f32 in double precision, as in PyTorch.
trait Running: Plain {
    type Sum: Plain;
    const ZERO: Self::Sum;
    fn plus(self, sum: Self::Sum) -> Self::Sum;
    fn of(sum: Self::Sum) -> Self;
}
macro_rules! running { ($($t:ty, $sum:ty, |$x:ident, $s:ident| $plus:expr;)*) => { $(
    impl Running for $t {
        type Sum = $sum;
        const ZERO: $sum = 0 as $sum;
        #[inline(always)]
        fn plus(self, $s: $sum) -> $sum {
            let $x = self;
            $plus
        }
        #[inline(always)]
        fn of(sum: $sum) -> Self {
            sum as $t
        }
    }
)* } }
running! {
    f32, f64, |x, sum| sum + f64::from(x);
    f64, f64, |x, sum| sum + x;
    i64, i64, |x, sum| sum.wrapping_add(x);
}

/// Columns that are summed together.
const COLUMNS: usize = 64;

struct Scan<T> {
    outer: usize,
    size: usize,
    inner: usize,
    reverse: bool,
    element: PhantomData<T>,
}

impl<T> Scan<T> {
    fn units(&self) -> usize {
        self.outer * self.inner.div_ceil(COLUMNS)
    }

    fn tasks(&self) -> usize {
        pieces(self.outer * self.size * self.inner).min(self.units().max(1))
    }
}

impl<T: Running> Kernel for Scan<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let (size, inner) = (self.size, self.inner);
        // SAFETY: nobody writes the input.
        let x = unsafe { io.inputs[0].slice::<T>() };
        let strips = inner.div_ceil(COLUMNS);
        for unit in share(self.units(), self.tasks(), task) {
            let (outer, from) = (unit / strips, unit % strips * COLUMNS);
            let n = COLUMNS.min(inner - from);
            if inner == 1 {
                let range = outer * size..(outer + 1) * size;
                // SAFETY: each unit has its own row of the result.
                let y = unsafe { io.outputs[0].slice_mut::<T>(range.clone()) };
                let (mut sum, elements) = (T::ZERO, y.iter_mut().zip(&x[range]));
                let mut add = |(y, x): (&mut T, &T)| {
                    sum = x.plus(sum);
                    *y = T::of(sum);
                };
                if self.reverse {
                    elements.rev().for_each(&mut add)
                } else {
                    elements.for_each(&mut add)
                }
                continue;
            }
            let mut sums = [T::ZERO; COLUMNS];
            for i in 0..size {
                let place = if self.reverse { size - 1 - i } else { i };
                let at = (outer * size + place) * inner + from;
                // SAFETY: each unit has its own columns of the result.
                let y = unsafe { io.outputs[0].slice_mut::<T>(at..at + n) };
                for ((y, x), sum) in y.iter_mut().zip(&x[at..at + n]).zip(&mut sums) {
                    *sum = x.plus(*sum);
                    *y = T::of(*sum);
                }
            }
        }
    }
}

impl Tensor {
    /// Running sums along a dimension. Bytes and truth values are added up as i64.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.cumsum(1)?.to_vec::<i64>()?, [1, 3, 6, 4, 9, 15]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, dim: isize) -> Result<Tensor> {
        if self.rank() == 0 && matches!(dim, 0 | -1) {
            return self.reshape([1])?.cumsum(0)?.reshape(());
        }
        let dim = self.dim("cumsum", dim)?;
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::I64)? };
        Tensor::apply(CumSum { dim, reverse: false }, &[&x])
    }
}
