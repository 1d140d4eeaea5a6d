//! A vector for each number.

use super::{Forward, Module, ModulePath, Parameter, init};
use crate::{DType, Result, Tensor};

/// A trained vector for each whole number: `[…]` of i64 becomes `[…, dim]`. Numbers that have none are an error where
/// they are known already; where they are still to be computed they give NaN.
///
/// ```
/// use neurona::{Tensor, nn::{Embedding, Forward}};
/// let layer = Embedding::new(10, 3)?;
/// let y = layer.forward(&Tensor::from([[1i64, 2], [4, 1]]))?;
/// assert_eq!(y.shape().to_string(), "[2, 2, 3]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Embedding {
    /// `[count, dim]`; starts normal.
    pub weight: Parameter,
    /// The number whose vector starts as zeros and is not trained.
    #[module(skip)]
    pub padding_idx: Option<usize>,
    path: ModulePath,
}

impl Embedding {
    /// Vectors of `dim` elements for the numbers below `count`.
    #[track_caller]
    pub fn new(count: usize, dim: usize) -> Result<Self> {
        let weight = Parameter::new(&init::normal([count, dim], 0.0, 1.0)?)?;
        Ok(Embedding { weight, padding_idx: None, path: ModulePath::default() })
    }

    /// The same layer, in which this number stands for nothing: its vector starts as zeros and is not trained.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Embedding, Forward}};
    /// let layer = Embedding::new(10, 2)?.padding_idx(3)?;
    /// assert_eq!(layer.forward(&Tensor::from([3i64]))?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn padding_idx(mut self, padding_idx: usize) -> Result<Self> {
        let weight = self.weight.get()?;
        let count = weight.shape()[0];
        if padding_idx >= count {
            return Err(weight.error("embedding", format!("there is no vector {padding_idx} of {count}")));
        }
        let padding = Tensor::arange(count)?.to(weight.device())?.eq_scalar(padding_idx as i64)?.unsqueeze(1)?;
        self.weight.set(&padding.where_(&Tensor::zeros((), weight.dtype())?, &weight)?)?;
        self.padding_idx = Some(padding_idx);
        Ok(self)
    }
}

impl Forward for Embedding {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        if x.dtype() != DType::I64 {
            return Err(x.error("embedding", "needs numbers of type i64"));
        }
        let weight = self.weight.get()?;
        // Before the reshape, which hides what is known of the numbers.
        weight.places_exist("embedding", 0, x)?;
        let mut shape = x.shape().to_vec();
        shape.push(weight.shape()[1]);
        let y = weight.index_select(0, &x.reshape([x.numel()])?)?.reshape(shape)?;
        match self.padding_idx {
            // The value is the same either way; the gradient passes where it is not padding.
            Some(padding) => x.ne_scalar(padding as i64)?.unsqueeze(-1)?.where_(&y, &y.detach()),
            None => Ok(y),
        }
    }
}
