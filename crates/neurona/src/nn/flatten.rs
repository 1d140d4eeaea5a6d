//! Joining dimensions, between convolutions and fully connected layers.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

/// Joins dimensions into one; all but the first by default.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Flatten, Forward}};
/// let y = Flatten::new().forward(&Tensor::zeros([4, 16, 5, 5], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[4, 400]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Flatten {
    /// The first dimension to join.
    pub start: isize,
    /// The last dimension to join.
    pub end: isize,
    path: ModulePath,
}

impl Flatten {
    /// Joins all dimensions but the first.
    pub fn new() -> Self {
        Flatten::with(1, -1)
    }

    /// Joins the dimensions from `start` to `end`, both included.
    pub fn with(start: isize, end: isize) -> Self {
        Flatten { start, end, path: ModulePath::default() }
    }
}

impl Default for Flatten {
    fn default() -> Self {
        Flatten::new()
    }
}

impl Forward for Flatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        x.flatten(self.start, self.end)
    }
}
