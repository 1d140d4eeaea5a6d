//! The layer that does nothing.

use super::{Forward, Module};
use crate::{Result, Tensor};

/// Gives its input: a place in a model where a layer may be put later.
///
/// ```
/// use neurona::{Tensor, nn::{Forward, Identity}};
/// assert_eq!(Identity::new().forward(&Tensor::from([1.0f32]))?.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Default, Module)]
pub struct Identity {}

impl Identity {
    /// The layer; it has no options.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Forward for Identity {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}
