//! `prod`: products of elements, with a gradient that zeros do not spoil.

mod cuda;

use super::{At, Operation, one, reduce};
use crate::Result;
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::tasks::pieces;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};
use std::marker::PhantomData;

/// For each element of a row the product of all others: the slope of the product, also where elements are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProdOthers;

impl Operation for ProdOthers {
    fn name(&self) -> &'static str {
        "prod_others"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let (rows, size) = (x.shape[0], x.shape[1]);
        Ok(match x.dtype {
            DType::F64 => Box::new(Others::<f64> { rows, size, element: PhantomData }),
            _ => Box::new(Others::<f32> { rows, size, element: PhantomData }),
        })
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::kernel(&inputs[0].meta, gpu)
    }
}

struct Others<T> {
    rows: usize,
    size: usize,
    element: PhantomData<T>,
}

impl<T> Others<T> {
    fn tasks(&self) -> usize {
        pieces(self.rows * self.size).min(self.rows.max(1))
    }
}

impl<T: Real> Kernel for Others<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let rows = share(self.rows, self.tasks(), task);
        let range = rows.start * self.size..rows.end * self.size;
        // SAFETY: nobody writes the input; each task has its own rows of the result.
        let (x, y) = unsafe { (&io.inputs[0].slice::<T>()[range.clone()], io.outputs[0].slice_mut::<T>(range)) };
        for (x, y) in x.chunks_exact(self.size.max(1)).zip(y.chunks_exact_mut(self.size.max(1))) {
            let mut before = T::one();
            for (x, y) in x.iter().zip(y.iter_mut()) {
                *y = before;
                before = before * *x;
            }
            let mut after = T::one();
            for (x, y) in x.iter().zip(y.iter_mut()).rev() {
                *y = *y * after;
                after = after * *x;
            }
        }
    }
}

/// The gradient of the product over the dimensions marked: dy times the product of all other elements.
pub(super) fn gradient(at: &At<'_>, reduced: &[bool], dy: &Tensor) -> Result<Tensor> {
    let x = &at.inputs[0];
    // The dimensions of the product last, then one row for each product.
    let (last, first): (Vec<usize>, Vec<usize>) = (0..x.rank()).partition(|&d| reduced[d]);
    let order: Vec<isize> = first.iter().chain(&last).map(|&d| d as isize).collect();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from as usize] = to as isize);
    let turned = x.permute(&order)?;
    let size: usize = last.iter().map(|&d| x.shape()[d]).product();
    let rows: usize = first.iter().map(|&d| x.shape()[d]).product();
    let others = Tensor::apply(ProdOthers, &[&turned.reshape([rows, size])?])?;
    others.reshape(turned.shape())?.permute(&back)?.mul(dy)
}

impl Tensor {
    /// The product of all elements.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([[1i64, 2], [3, 4]]).prod()?.item::<i64>()?, 24);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn prod(&self) -> Result<Tensor> {
        self.prod_dims(&self.all_dims(), false)
    }

    /// The product over some dimensions.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.prod_dims(&[0], false)?.to_vec::<f32>()?, [3.0, 8.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn prod_dims(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(reduce::cpu::Op::Prod, dims, keepdim)
    }
}
