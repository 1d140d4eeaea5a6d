//! Reductions over any dimensions: `sum`, `mean`, `max`, `min`, `argmax`, `argmin`.

pub(crate) mod cpu;
mod cuda;

use super::{At, Operation, Spatial, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::{Layout, Operand};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Shape, Tensor};
use crate::{Error, Result};
use smallvec::SmallVec;

/// Joins the dimensions marked; they are gone from the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reduce {
    pub how: cpu::Op,
    pub reduced: SmallVec<[bool; 4]>,
    /// Set by the lowering pass: f32 results from 16-bit operands.
    pub wide: bool,
}

impl Reduce {
    fn kept(&self, shape: &Shape) -> Shape {
        shape.iter().zip(&self.reduced).filter(|(_, r)| !**r).map(|(n, _)| *n).collect()
    }

    /// The result's shape with reduced dimensions kept as size 1.
    fn keepdim(&self, shape: &Shape) -> Shape {
        shape.iter().zip(&self.reduced).map(|(n, r)| if *r { 1 } else { *n }).collect()
    }
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        match self.how {
            cpu::Op::Sum => "sum",
            cpu::Op::Mean => "mean",
            cpu::Op::Max => "max",
            cpu::Op::Min => "min",
            cpu::Op::Prod => "prod",
        }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let wrong = |problem: &str| Err(Error::operands(self.name(), problem, &[("input", x)]));
        let extreme = matches!(self.how, cpu::Op::Max | cpu::Op::Min);
        if self.how == cpu::Op::Mean && !x.dtype.is_float() {
            return wrong("needs a floating-point tensor");
        }
        if extreme && x.shape.iter().zip(&self.reduced).any(|(n, r)| *r && *n == 0) {
            return wrong("there is no largest or smallest of no elements");
        }
        let dtype = match x.dtype {
            _ if self.wide => DType::F32,
            dtype if dtype.is_float() || extreme => dtype,
            _ => DType::I64,
        };
        one(Meta { shape: self.kept(&x.shape), dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = &at.inputs[0];
        let shape = self.keepdim(x.shape());
        let dy = at.dy()?.reshape(&shape)?;
        let count = x.numel() / shape.numel().max(1);
        let dx = match self.how {
            cpu::Op::Sum => dy.broadcast_to(x.shape())?,
            cpu::Op::Mean => dy.div_scalar(count as f64)?.broadcast_to(x.shape())?,
            cpu::Op::Max | cpu::Op::Min => {
                // Equal extremes share the gradient evenly, as torch.amax does.
                let hits = x.eq(&at.outputs[0].reshape(&shape)?)?.to_dtype(x.dtype())?;
                let dims: Vec<isize> = (0..x.rank()).filter(|&d| self.reduced[d]).map(|d| d as isize).collect();
                dy.div(&hits.sum_dims(&dims, true)?)?.mul(&hits)?
            }
            cpu::Op::Prod => super::prod::gradient(at, &self.reduced, &dy)?,
        };
        Ok(vec![Some(dx)])
    }
    fn spatial(&self) -> Spatial {
        Spatial::INDIFFERENT
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0];
        let shape = &x.meta.shape;
        let strides = match (x.layout, &shape[..]) {
            (Layout::ChannelsLast, &[_, c, h, w]) => SmallVec::from([h * w * c, 1, w * c, c]),
            _ => shape.strides(),
        };
        let kept = self.kept(shape).strides();
        let mut next = kept.iter();
        let out: Vec<usize> =
            self.reduced.iter().map(|r| if *r { 0 } else { next.next().copied().unwrap_or(1) }).collect();
        Ok(match x.meta.dtype {
            DType::F64 => cpu::over::<f64, f64>(self.how, shape, &strides, &out, &self.reduced),
            DType::I64 => cpu::over::<i64, i64>(self.how, shape, &strides, &out, &self.reduced),
            DType::U8 | DType::Bool => cpu::over::<u8, i64>(self.how, shape, &strides, &out, &self.reduced),
            _ => cpu::over::<f32, f32>(self.how, shape, &strides, &out, &self.reduced),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::reduce(self, &inputs[0], &outputs[0], gpu)
    }
}

/// The place of the largest or smallest element along one dimension, as i64; the first of equals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgReduce {
    pub dim: usize,
    pub least: bool,
}

impl Operation for ArgReduce {
    fn name(&self) -> &'static str {
        if self.least { "argmin" } else { "argmax" }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        if x.shape[self.dim] == 0 {
            return Err(Error::operands(
                self.name(),
                "there is no largest or smallest of no elements",
                &[("input", x)],
            ));
        }
        one(Meta { shape: x.shape.without(self.dim), dtype: DType::I64 })
    }
    fn gradient(&self, _at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let shape = &inputs[0].meta.shape;
        let (outer, mid) = (shape[..self.dim].iter().product(), shape[self.dim]);
        let inner = shape[self.dim + 1..].iter().product();
        macro_rules! of {
            ($t:ty) => {
                Box::new(match self.least {
                    true => cpu::Arg::<$t>::min(outer, mid, inner),
                    false => cpu::Arg::<$t>::max(outer, mid, inner),
                })
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
        cuda::arg_reduce(self, &inputs[0], gpu)
    }
}

impl Tensor {
    #[track_caller]
    pub(super) fn reduce(&self, how: cpu::Op, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let mut op = Reduce { how, reduced: SmallVec::from_elem(false, self.rank()), wide: false };
        for &dim in dims {
            let d = self.dim(op.name(), dim)?;
            if std::mem::replace(&mut op.reduced[d], true) {
                return Err(self.error(op.name(), format!("dimension {dim} is named twice")));
            }
        }
        let shape = op.keepdim(self.shape());
        // PyTorch reduces whole numbers of 8 bits and truth values as i64, extremes as they are.
        let x = match (how, self.dtype()) {
            (cpu::Op::Max | cpu::Op::Min, DType::U8 | DType::Bool) => self.to_dtype(DType::I64)?,
            _ => self.clone(),
        };
        let y = Tensor::apply(op, &[&x])?;
        let y = if y.dtype() != self.dtype() && x.dtype() != self.dtype() { y.to_dtype(self.dtype())? } else { y };
        if keepdim { y.reshape(shape) } else { Ok(y) }
    }

    pub(super) fn all_dims(&self) -> Vec<isize> {
        (0..self.rank() as isize).collect()
    }

    /// The sum of all elements.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([true, false, true]).sum()?.item::<i64>()?, 2);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        self.sum_dims(&self.all_dims(), false)
    }

    /// The sum over some dimensions.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum_dims(&[0], false)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_dims(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(cpu::Op::Sum, dims, keepdim)
    }

    /// The mean of all elements.
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        self.mean_dims(&self.all_dims(), false)
    }

    /// The mean over some dimensions.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.mean_dims(&[-1], true)?.to_vec::<f32>()?, [1.5, 3.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn mean_dims(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(cpu::Op::Mean, dims, keepdim)
    }

    /// The largest elements along some dimensions; equal ones share the gradient.
    #[track_caller]
    pub fn amax(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(cpu::Op::Max, dims, keepdim)
    }

    /// The smallest elements along some dimensions; equal ones share the gradient.
    #[track_caller]
    pub fn amin(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(cpu::Op::Min, dims, keepdim)
    }

    /// The place of the largest element along a dimension, as i64; the first of equals.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 5.0], [9.0, 4.0]]);
    /// assert_eq!(x.argmax(1)?.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax(&self, dim: isize) -> Result<Tensor> {
        let dim = self.dim("argmax", dim)?;
        Tensor::apply(ArgReduce { dim, least: false }, &[self])
    }

    /// The place of the smallest element along a dimension, as i64; the first of equals.
    #[track_caller]
    pub fn argmin(&self, dim: isize) -> Result<Tensor> {
        let dim = self.dim("argmin", dim)?;
        Tensor::apply(ArgReduce { dim, least: true }, &[self])
    }
}
