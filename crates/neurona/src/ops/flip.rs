//! `flip`: elements in reverse order.

use super::permute::cpu::{MAX_DIMS, Strided};
use super::{At, Operation, movement, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Tensor, with_sized_type};
use crate::{Error, Result};
use smallvec::SmallVec;

/// The dimensions marked run backwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flip {
    pub flipped: SmallVec<[bool; 4]>,
}

impl Flip {
    /// The operand as strides and the first element.
    fn view(&self, x: &Meta) -> (SmallVec<[isize; 4]>, usize) {
        let (mut offset, mut strides) = (0, SmallVec::new());
        for ((&n, stride), &flipped) in x.shape.iter().zip(x.shape.strides()).zip(&self.flipped) {
            // Nothing to reverse: an offset would point outside.
            let flipped = flipped && x.shape.numel() > 0;
            strides.push(if flipped { -(stride as isize) } else { stride as isize });
            offset += if flipped { (n - 1) * stride } else { 0 };
        }
        (strides, offset)
    }
}

impl Operation for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if inputs[0].shape.len() > MAX_DIMS {
            let problem = format!("is there for at most {MAX_DIMS} dimensions");
            return Err(Error::operands("flip", problem, &[("input", inputs[0])]));
        }
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(self.clone(), &[&at.dy()?])?)])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let (strides, offset) = self.view(x);
        Ok(with_sized_type!(x.dtype, T => Box::new(Strided::<T>::new(&x.shape, &strides, offset))))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0].meta;
        let (strides, offset) = self.view(x);
        movement::Strided::view(x.dtype.size(), &x.shape, &strides, offset).kernel(gpu)
    }
}

impl Tensor {
    /// Elements in reverse order along some dimensions.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.flip(&[1])?.to_vec::<i64>()?, [3, 2, 1, 6, 5, 4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, dims: &[isize]) -> Result<Tensor> {
        let mut flipped = SmallVec::from_elem(false, self.rank());
        for &dim in dims {
            if std::mem::replace(&mut flipped[self.dim("flip", dim)?], true) {
                return Err(self.error("flip", format!("dimension {dim} is named twice")));
            }
        }
        if dims.is_empty() { Ok(self.clone()) } else { Tensor::apply(Flip { flipped }, &[self]) }
    }
}
