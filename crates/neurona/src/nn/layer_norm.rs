//! Normalisation that does not look at the rest of the batch.

use super::{Forward, Module, ModulePath, Parameter};
use crate::{DType, Result, Shape, Tensor};

/// Normalises over the last dimensions to mean 0 and variance 1, then scales and shifts each element.
///
/// ```
/// use neurona::{Tensor, nn::{Forward, LayerNorm}};
/// let y = LayerNorm::new([2])?.eps(0.0).forward(&Tensor::from([[1.0f32, 3.0], [10.0, 20.0]]))?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct LayerNorm {
    /// Scale of each element; starts as 1.
    pub weight: Option<Parameter>,
    /// Shift of each element; starts as 0.
    pub bias: Option<Parameter>,
    /// Sizes of the dimensions that are normalised, the last ones.
    #[module(skip)]
    pub normalized_shape: Shape,
    /// Added to the variance, so that a constant row is not divided by zero.
    pub eps: f64,
    path: ModulePath,
}

impl LayerNorm {
    /// Over last dimensions of these sizes.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Shape>) -> Result<Self> {
        let normalized_shape = normalized_shape.into();
        Ok(LayerNorm {
            weight: Some(Parameter::new(&Tensor::ones(&normalized_shape, DType::F32)?)?),
            bias: Some(Parameter::new(&Tensor::zeros(&normalized_shape, DType::F32)?)?),
            normalized_shape,
            eps: 1e-5,
            path: ModulePath::default(),
        })
    }

    /// The same layer with this much added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// The same layer without scale and shift: PyTorch's `elementwise_affine=False`.
    pub fn without_affine(mut self) -> Self {
        (self.weight, self.bias) = (None, None);
        self
    }

    /// The same layer without shift.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let weight = self.weight.as_ref().map(Parameter::get).transpose()?;
        let bias = self.bias.as_ref().map(Parameter::get).transpose()?;
        x.layer_norm(&self.normalized_shape, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

/// Normalises groups of channels of each image, then scales and shifts each channel. One group is layer
/// normalisation over an image, as many as channels instance normalisation.
///
/// ```
/// use neurona::{Tensor, nn::{Forward, GroupNorm}};
/// let y = GroupNorm::new(2, 4)?.eps(0.0).forward(&Tensor::from([[1.0f32, 3.0, 10.0, 20.0]]))?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct GroupNorm {
    /// Scale of each channel; starts as 1.
    pub weight: Option<Parameter>,
    /// Shift of each channel; starts as 0.
    pub bias: Option<Parameter>,
    /// The number of groups.
    pub groups: usize,
    /// Added to the variance, so that a constant group is not divided by zero.
    pub eps: f64,
    path: ModulePath,
}

impl GroupNorm {
    /// For this many channels in this many groups.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> Result<Self> {
        let ones = Tensor::ones([channels], DType::F32)?;
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(ones.error("group_norm", format!("{channels} channels do not divide into {groups} groups")));
        }
        Ok(GroupNorm {
            weight: Some(Parameter::new(&ones)?),
            bias: Some(Parameter::new(&Tensor::zeros([channels], DType::F32)?)?),
            groups,
            eps: 1e-5,
            path: ModulePath::default(),
        })
    }

    /// The same layer with this much added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// The same layer without scale and shift.
    pub fn without_affine(mut self) -> Self {
        (self.weight, self.bias) = (None, None);
        self
    }
}

impl Forward for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let affine = match (&self.weight, &self.bias) {
            (Some(weight), Some(bias)) => Some((weight.get()?, bias.get()?)),
            _ => None,
        };
        x.group_norm(self.groups, affine.as_ref().map(|(weight, bias)| (weight, bias)), self.eps)
    }
}
