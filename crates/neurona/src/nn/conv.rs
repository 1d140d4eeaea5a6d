//! The convolution layer.

use super::{Forward, Module, ModulePath, Parameter, init};
use crate::tensor::here;
use crate::{Conv2dOptions, Error, Result, Tensor};

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
    /// Whether the output has the size of the input, whatever the padding in `options`.
    pub same: bool,
    path: ModulePath,
}

impl Conv2d {
    /// A layer from `inputs` to `outputs` channels with a square filter.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, kernel: usize) -> Result<Self> {
        Conv2d::with(inputs, outputs, [kernel, kernel], Conv2dOptions::default())
    }

    /// A layer with a rectangular filter (height, width) and all options.
    ///
    /// ```
    /// use neurona::{Conv2dOptions, DType, Tensor, nn::{Conv2d, Forward}};
    /// let layer = Conv2d::with(3, 8, [5, 2], Conv2dOptions::default())?;
    /// let y = layer.forward(&Tensor::zeros([1, 3, 32, 32], DType::F32)?)?;
    /// assert_eq!(y.shape().to_string(), "[1, 8, 28, 31]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn with(inputs: usize, outputs: usize, kernel: [usize; 2], options: Conv2dOptions) -> Result<Self> {
        let groups = options.groups;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let problem = format!("{inputs} input and {outputs} output channels do not divide into {groups} groups");
            return Err(Error::op("conv2d", problem).at(here()));
        }
        let per_group = inputs / groups;
        let fan_in = per_group.saturating_mul(kernel[0]).saturating_mul(kernel[1]);
        let weight = init::default_uniform([outputs, per_group, kernel[0], kernel[1]], fan_in)?;
        let bias = init::default_uniform([outputs], fan_in)?;
        Ok(Conv2d {
            weight: Parameter::new(&weight)?,
            bias: Some(Parameter::new(&bias)?),
            options,
            same: false,
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

    /// The same layer with zeros around the input such that the output has its size: PyTorch's `padding="same"`.
    /// Where they do not divide evenly, one more stands below and to the right. The stride must be 1.
    ///
    /// ```
    /// use neurona::{Conv2dOptions, DType, Tensor, nn::{Conv2d, Forward}};
    /// let layer = Conv2d::with(3, 8, [5, 2], Conv2dOptions::default())?.padding_same();
    /// let y = layer.forward(&Tensor::zeros([1, 3, 32, 32], DType::F32)?)?;
    /// assert_eq!(y.shape().to_string(), "[1, 8, 32, 32]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn padding_same(mut self) -> Self {
        self.same = true;
        self
    }

    /// The same layer with this many rows and columns from one filter value to the next.
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.options.dilation = [dilation, dilation];
        self
    }

    /// A layer of the same sizes whose channels are in independent groups; as many as input channels is a
    /// depthwise convolution. The weight is drawn anew, since its shape is another.
    ///
    /// ```
    /// use neurona::nn::Conv2d;
    /// let depthwise = Conv2d::new(8, 16, 3)?.groups(8)?.padding(1);
    /// assert_eq!(depthwise.weight.shape().to_string(), "[16, 1, 3, 3]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn groups(self, groups: usize) -> Result<Self> {
        let shape = self.weight.shape();
        let options = Conv2dOptions { groups, ..self.options };
        let new = Conv2d::with(shape[1] * self.options.groups, shape[0], [shape[2], shape[3]], options)?;
        Ok(Conv2d { bias: self.bias.and(new.bias), same: self.same, ..new })
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
        let weight = self.weight.get()?;
        match self.same {
            true => x.conv2d_same(&weight, bias.as_ref(), self.options),
            false => x.conv2d(&weight, bias.as_ref(), self.options),
        }
    }
}
