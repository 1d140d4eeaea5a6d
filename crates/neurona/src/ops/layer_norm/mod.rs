//! Layer normalisation: each row to mean 0 and variance 1, then scaled and shifted; and group normalisation,
//! which is the same over groups of channels.

pub(crate) mod cpu;
mod cuda;

use super::{At, Operation};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Shape, Tensor, here};
use crate::{Error, Result};
use smallvec::{SmallVec, smallvec};

/// Operands: x; maybe weight; maybe bias, of the shape of the last `dims` dimensions of x.
/// Results: y; mean and inverse deviation of each row, for the gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerNorm {
    /// As bits: options of plans must be comparable.
    pub eps: u64,
    pub dims: usize,
    pub weight: bool,
}

/// Operands: dy, x, mean, inverse deviation; maybe weight. Results: dx; if weight dweight, if bias dbias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerNormGrad {
    pub dims: usize,
    pub weight: bool,
    pub bias: bool,
}

/// Rows, and elements of a row.
fn matrix(x: &Meta, dims: usize) -> (usize, usize) {
    let (rows, row) = x.shape.split_at(x.shape.len() - dims);
    (rows.iter().product(), row.iter().product())
}

impl Operation for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let names = if self.weight { ["input", "weight", "bias"] } else { ["input", "bias", ""] };
        let operands: Vec<_> = names.into_iter().zip(inputs.iter().copied()).collect();
        let wrong = |problem: &str| Err(Error::operands("layer_norm", problem, &operands));
        if self.dims == 0 || self.dims > x.shape.len() || matrix(x, self.dims).1 == 0 {
            return wrong("needs elements to normalise");
        }
        if !x.dtype.is_float() || inputs.iter().any(|m| m.dtype != x.dtype) {
            return wrong("needs floating-point operands of one type");
        }
        let (rows, row) = x.shape.split_at(x.shape.len() - self.dims);
        if inputs[1..].iter().any(|m| m.shape[..] != *row) {
            return wrong("weight and bias must have the normalised shape");
        }
        let of_row = Meta::new(Shape::from(rows), x.dtype);
        Ok(smallvec![x.clone(), of_row.clone(), of_row])
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, dy) = (&at.inputs[0], &at.dy()?);
        let bias = at.inputs.len() == 2 + self.weight as usize;
        let mut operands: SmallVec<[&Tensor; 5]> = smallvec![dy, x, &at.outputs[1], &at.outputs[2]];
        operands.extend(self.weight.then(|| &at.inputs[1]));
        let op = LayerNormGrad { dims: self.dims, weight: self.weight, bias };
        Ok(Tensor::apply_all(op, &operands)?.into_iter().map(Some).collect())
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, n) = matrix(&inputs[0].meta, self.dims);
        let options = cpu::Options { weight: self.weight, bias: inputs.len() == 2 + self.weight as usize };
        let eps = f64::from_bits(self.eps);
        Ok(float_kernel!(inputs[0].meta.dtype, T => cpu::Forward::<T>::new(rows, n, eps, options)))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::forward(self, inputs, outputs, gpu)
    }
}

impl Operation for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[1];
        let row = Meta::new(Shape::from(&x.shape[x.shape.len() - self.dims..]), x.dtype);
        let mut metas: Metas = smallvec![x.clone()];
        metas.extend([self.weight, self.bias].into_iter().filter(|there| *there).map(|_| row.clone()));
        Ok(metas)
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, n) = matrix(&inputs[1].meta, self.dims);
        let options = cpu::Options { weight: self.weight, bias: self.bias };
        Ok(float_kernel!(inputs[1].meta.dtype, T => cpu::Backward::<T>::new(rows, n, options)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::gradient(self, inputs, gpu)
    }
}

impl Tensor {
    /// Normalises over the last dimensions, whose sizes are `shape`, then scales by `weight` and adds `bias`.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 3.0], [10.0, 20.0]]);
    /// assert_eq!(x.layer_norm([2], None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn layer_norm(
        &self,
        shape: impl Into<Shape>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let shape = shape.into();
        if shape.is_empty() || !self.shape().ends_with(&shape) {
            return Err(self.error("layer_norm", format!("the last dimensions are not {shape}")));
        }
        let mut operands: SmallVec<[&Tensor; 3]> = smallvec![self];
        operands.extend(weight.into_iter().chain(bias));
        Tensor::apply(LayerNorm { eps: eps.to_bits(), dims: shape.len(), weight: weight.is_some() }, &operands)
    }

    /// Normalises groups of channels of each image of `[n, c, …]`, then scales and shifts each channel.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 3.0, 10.0, 20.0]]);
    /// assert_eq!(x.group_norm(2, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn group_norm(&self, groups: usize, affine: Option<(&Tensor, &Tensor)>, eps: f64) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(self.error("group_norm", "needs an input [n, c, …]"));
        }
        let (n, c) = (self.shape()[0], self.shape()[1]);
        if groups == 0 || c == 0 || c % groups != 0 {
            return Err(self.error("group_norm", format!("{c} channels do not divide into {groups} groups")));
        }
        let per_group = self.shape()[1..].iter().product::<usize>() / groups;
        let y = self.reshape([n * groups, per_group])?.layer_norm([per_group], None, None, eps)?;
        let y = y.reshape(self.shape())?;
        let Some((weight, bias)) = affine else { return Ok(y) };
        if weight.shape()[..] != [c] || bias.shape()[..] != [c] {
            let operands = [("input", self.meta()), ("weight", weight.meta()), ("bias", bias.meta())];
            return Err(Error::operands("group_norm", "needs one weight and bias a channel", &operands).at(here()));
        }
        let channel: Shape = std::iter::once(c).chain(std::iter::repeat_n(1, self.rank() - 2)).collect();
        y.mul(&weight.reshape(&channel)?)?.add(&bias.reshape(&channel)?)
    }
}
