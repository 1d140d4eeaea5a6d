//! Average pooling to a given size.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

/// The means of windows chosen so that the output has this size. Where it does not divide the input's, windows
/// overlap as PyTorch's do: from ⌊i h / oh⌋ up to ⌈(i + 1) h / oh⌉.
///
/// ```
/// use neurona::{DType, Tensor, nn::{AdaptiveAvgPool2d, Forward}};
/// let y = AdaptiveAvgPool2d::new(1).forward(&Tensor::ones([2, 3, 7, 7], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 3, 1, 1]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    #[module(skip)]
    pub size: [usize; 2],
    path: ModulePath,
}

impl AdaptiveAvgPool2d {
    /// To a square of this size.
    pub fn new(size: usize) -> Self {
        Self::with([size, size])
    }

    /// To this height and width.
    pub fn with(size: [usize; 2]) -> Self {
        AdaptiveAvgPool2d { size, path: ModulePath::default() }
    }
}

impl Forward for AdaptiveAvgPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        x.adaptive_avg_pool2d(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_but_none() -> Result<()> {
        let x = Tensor::from([[1.0f32, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]).reshape([1, 1, 2, 4])?;
        assert_eq!(AdaptiveAvgPool2d::new(1).forward(&x)?.to_vec::<f32>()?, [4.5]);
        assert_eq!(AdaptiveAvgPool2d::with([1, 2]).forward(&x)?.to_vec::<f32>()?, [3.5, 5.5]);
        assert_eq!(AdaptiveAvgPool2d::with([2, 4]).forward(&x)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
        let y = AdaptiveAvgPool2d::new(3).forward(&x)?.to_vec::<f32>()?;
        assert_eq!(y, [1.5, 2.5, 3.5, 3.5, 4.5, 5.5, 5.5, 6.5, 7.5]);
        let error = AdaptiveAvgPool2d::new(0).forward(&x).unwrap_err().to_string();
        assert!(error.contains("0 x 0 from images of 2 x 4"), "{error}");
        assert!(AdaptiveAvgPool2d::new(1).forward(&x.flatten(1, -1)?).is_err());
        Ok(())
    }
}
