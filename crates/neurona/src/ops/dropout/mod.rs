//! Dropout: elements are zeroed at random and the rest scaled up.

mod cuda;

use super::{At, Operation, one};
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor, random};
use crate::{Error, Result};
use std::marker::PhantomData;

/// Operands: x, a random key (i64), the probability to drop (f64). The same key drops the same elements, so
/// the gradient is the op itself, applied to dy: no mask is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dropout;

impl Operation for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if !inputs[0].dtype.is_float() {
            return Err(Error::operands("dropout", "needs a floating-point tensor", &[("input", inputs[0])]));
        }
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(Dropout, &[&at.dy()?, &at.inputs[1], &at.inputs[2]])?), None, None])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let n = inputs[0].meta.shape.numel();
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(Drop::<f64> { n, element: PhantomData }),
            _ => Box::new(Drop::<f32> { n, element: PhantomData }),
        })
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::dropout(&inputs[0].meta, gpu)
    }
}

struct Drop<T> {
    n: usize,
    element: PhantomData<T>,
}

impl<T: Real> Kernel for Drop<T> {
    fn phases(&self) -> Vec<usize> {
        vec![if self.n == 0 { 0 } else { pieces(self.n) }]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let range = share(self.n, pieces(self.n), task);
        // SAFETY: operands are not written in this phase; tasks have ranges of the result to themselves.
        let (x, y, key, p) = unsafe {
            (
                &io.inputs[0].slice::<T>()[range.clone()],
                io.outputs[0].slice_mut::<T>(range.clone()),
                io.inputs[1].slice::<i64>()[0] as u64,
                io.inputs[2].slice::<f64>()[0],
            )
        };
        let (limit, scale) = (p as f32, T::of(if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 }));
        vectorized(
            #[inline(always)]
            || {
                for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                    let kept = random::unit(random::at(key, (range.start + i) as u64)) >= limit;
                    *y = if kept { *x * scale } else { T::zero() };
                }
            },
        );
    }
}

impl Tensor {
    /// Zeroes elements with probability `p` and divides the rest by 1 − p.
    ///
    /// ```
    /// use neurona::{DType, Tensor};
    /// let y = Tensor::ones([1000], DType::F32)?.dropout(0.5)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|v| *v == 0.0 || *v == 2.0));
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(self.error("dropout", format!("the probability must be from 0 to 1, not {p}")));
        }
        if p == 0.0 {
            return Ok(self.clone());
        }
        let key = Tensor::numbers([Number::Int(random::next_key() as i64)], Meta::new((), DType::I64));
        let p = Tensor::numbers([Number::Float(p)], Meta::new((), DType::F64));
        Tensor::apply(Dropout, &[self, &key, &p])
    }
}
