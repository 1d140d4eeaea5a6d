//! The convolution layer.

use super::{Forward, Module, ModulePath, Parameter, init};
use crate::{Conv2dOptions, Result, Tensor};

/// Two-dimensional convolution.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Conv2d, Forward}};
/// let layer = Conv2d::new(3, 6, 5)?.padding(2);
/// let y = layer.forward(&Tensor::zeros([1, 3, 32, 32], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[1, 6, 32, 32]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Conv2d {
    /// `[out, in / groups, h, w]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    /// How the filter moves.
    #[module(skip)]
    pub options: Conv2dOptions,
    path: ModulePath,
}

impl Conv2d {
    /// A layer from `inputs` to `outputs` channels with a square filter.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, kernel: usize) -> Result<Self> {
        Conv2d::with(inputs, outputs, [kernel, kernel], Conv2dOptions::default())
    }

    /// A layer with a rectangular filter and all options.
    #[track_caller]
    pub fn with(inputs: usize, outputs: usize, kernel: [usize; 2], options: Conv2dOptions) -> Result<Self> {
        let per_group = inputs / options.groups.max(1);
        let fan_in = per_group.saturating_mul(kernel[0]).saturating_mul(kernel[1]);
        let weight = init::default_uniform([outputs, per_group, kernel[0], kernel[1]], fan_in)?;
        let bias = init::default_uniform([outputs], fan_in)?;
        Ok(Conv2d {
            weight: Parameter::new(&weight)?,
            bias: Some(Parameter::new(&bias)?),
            options,
            path: ModulePath::default(),
        })
    }

    /// The same layer with this stride in both directions.
    pub fn stride(mut self, stride: usize) -> Self {
        self.options.stride = [stride, stride];
        self
    }

    /// The same layer with this padding on all sides.
    pub fn padding(mut self, padding: usize) -> Self {
        self.options.padding = [padding, padding];
        self
    }

    /// The same layer without a bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }
}

impl Forward for Conv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let bias = self.bias.as_ref().map(Parameter::get).transpose()?;
        x.conv2d(&self.weight.get()?, bias.as_ref(), self.options)
    }
}
