//! The fully connected layer.

use super::{Forward, Module, ModulePath, Parameter, init};
use crate::{Result, Tensor};

/// `y = x·Wᵀ + b`.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Forward, Linear}};
/// let layer = Linear::new(3, 2)?;
/// let y = layer.forward(&Tensor::zeros([4, 3], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[4, 2]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    path: ModulePath,
}

impl Linear {
    /// A layer from `inputs` to `outputs` features.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Linear {
            weight: Parameter::new(&init::default_uniform([outputs, inputs], inputs)?)?,
            bias: Some(Parameter::new(&init::default_uniform([outputs], inputs)?)?),
            path: ModulePath::default(),
        })
    }

    /// The same layer without a bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }
}

impl Forward for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let bias = self.bias.as_ref().map(Parameter::get).transpose()?;
        x.linear(&self.weight.get()?, bias.as_ref())
    }
}
