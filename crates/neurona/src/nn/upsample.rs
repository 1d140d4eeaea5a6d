//! Enlarging images.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

/// Images enlarged by repeating pixels: PyTorch's `mode="nearest"`.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Forward, Upsample}};
/// let x = Tensor::zeros([1, 3, 8, 8], DType::F32)?;
/// assert_eq!(Upsample::new(2).forward(&x)?.shape().to_string(), "[1, 3, 16, 16]");
/// assert_eq!(Upsample::to([12, 10]).forward(&x)?.shape().to_string(), "[1, 3, 12, 10]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Upsample {
    /// How often each row and column is repeated; not used where there is a size.
    #[module(skip)]
    pub scale: [usize; 2],
    /// Height and width of the output.
    #[module(skip)]
    pub size: Option<[usize; 2]>,
    path: ModulePath,
}

impl Upsample {
    /// By a whole factor in both directions.
    pub fn new(scale: usize) -> Self {
        Upsample { scale: [scale, scale], size: None, path: ModulePath::default() }
    }

    /// To this height and width.
    pub fn to(size: [usize; 2]) -> Self {
        Upsample { scale: [1, 1], size: Some(size), path: ModulePath::default() }
    }
}

impl Forward for Upsample {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let &[_, _, h, w] = &x.shape()[..] else {
            return Err(x.error("upsample_nearest2d", "needs images [n, c, h, w]"));
        };
        let scaled = [h.saturating_mul(self.scale[0]), w.saturating_mul(self.scale[1])];
        x.upsample_nearest2d(self.size.unwrap_or(scaled))
    }
}
