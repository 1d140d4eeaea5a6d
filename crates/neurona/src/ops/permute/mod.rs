//! Dimensions in another order: `permute`, `transpose`, `t`.

pub(crate) mod cpu;

use super::{At, Operation, movement, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Tensor, with_sized_type};
use crate::{Error, Result};
use smallvec::SmallVec;

/// Dimension `d` of the result is dimension `order[d]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Permute {
    pub order: SmallVec<[usize; 4]>,
}

impl Operation for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }
    fn describe(&self) -> String {
        format!("permute{:?}", &self.order[..])
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let mut seen = vec![false; x.shape.len()];
        self.order.iter().for_each(|&d| {
            if let Some(s) = seen.get_mut(d) {
                *s = true
            }
        });
        if self.order.len() != x.shape.len() || !seen.iter().all(|&s| s) {
            let problem = format!("{:?} is not an order of its dimensions", &self.order[..]);
            return Err(Error::operands("permute", problem, &[("input", x)]));
        }
        if x.shape.len() > cpu::MAX_DIMS {
            let problem = format!("is there for at most {} dimensions", cpu::MAX_DIMS);
            return Err(Error::operands("permute", problem, &[("input", x)]));
        }
        one(Meta { shape: self.order.iter().map(|&d| x.shape[d]).collect(), dtype: x.dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let mut back: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.order.len());
        self.order.iter().enumerate().for_each(|(d, &from)| back[from] = d);
        Ok(vec![Some(Tensor::apply(Permute { order: back }, &[&at.dy()?])?)])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        // Not by its layout: images of one pixel or channel come as they are, since both layouts are the same order.
        let x = &inputs[0].meta;
        Ok(with_sized_type!(x.dtype, T => Box::new(cpu::Strided::<T>::permute(&x.shape, &self.order))))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0].meta;
        movement::Strided::permute(x.dtype.size(), &x.shape, &self.order).kernel(gpu)
    }
}

/// A copy of an operand with its dimensions, as they lie in memory, in another order.
pub(super) fn copy(x: &Operand, order: &[usize]) -> Box<dyn Kernel> {
    with_sized_type!(x.meta.dtype, T => Box::new(cpu::Strided::<T>::permute(&x.physical(), order)))
}

impl Tensor {
    /// Dimensions in another order.
    ///
    /// ```
    /// let x = neurona::Tensor::arange(6)?.reshape([1, 2, 3])?.permute(&[2, 0, 1])?;
    /// assert_eq!(x.shape().to_string(), "[3, 1, 2]");
    /// assert_eq!(x.to_vec::<i64>()?, [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn permute(&self, order: &[isize]) -> Result<Tensor> {
        let order = order.iter().map(|&d| self.dim("permute", d)).collect::<Result<_>>()?;
        Tensor::apply(Permute { order }, &[self])
    }

    /// Two dimensions swapped.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.dim("transpose", a)?, self.dim("transpose", b)?);
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        order.swap(a, b);
        Tensor::apply(Permute { order }, &[self])
    }

    /// A matrix transposed.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0]]).t()?;
    /// assert_eq!(x.shape().to_string(), "[2, 1]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        if self.rank() > 2 {
            return Err(self.error("t", "needs at most two dimensions; use transpose or permute"));
        }
        if self.rank() < 2 { Ok(self.clone()) } else { self.transpose(0, 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, PoolOptions};

    #[test]
    fn an_image_of_one_pixel_is_turned_by_its_logical_dimensions() -> Result<()> {
        let x = Tensor::arange(12)?.to_dtype(DType::F32)?.reshape([2, 3, 1, 2])?;
        // Pooling leaves channels last.
        let y = x.max_pool2d(PoolOptions { kernel: [1, 2], stride: [1, 2], ..PoolOptions::square(1) })?;
        assert_eq!(y.permute(&[2, 3, 0, 1])?.to_vec::<f32>()?, [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
        Ok(())
    }
}
