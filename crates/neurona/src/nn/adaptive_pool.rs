//! Average pooling to a given size.

use super::{Forward, Module, ModulePath};
use crate::{PoolOptions, Result, Tensor};

/// The means of windows chosen so that the output has this size; it must divide the input's.
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
        let &[_, _, h, w] = &x.shape()[..] else {
            return Err(x.error("adaptive_avg_pool2d", "needs images [n, c, h, w]"));
        };
        let [oh, ow] = self.size;
        if oh == 0 || ow == 0 || h == 0 || w == 0 || h % oh != 0 || w % ow != 0 {
            let problem = format!("an output of {oh} x {ow} does not divide images of {h} x {w}");
            return Err(x.error("adaptive_avg_pool2d", problem));
        }
        if self.size == [1, 1] {
            return x.global_avg_pool2d();
        }
        let kernel = [h / oh, w / ow];
        x.avg_pool2d(PoolOptions { kernel, stride: kernel, padding: [0, 0], ceil_mode: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_or_says_so() -> Result<()> {
        let x = Tensor::from([[1.0f32, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]).reshape([1, 1, 2, 4])?;
        assert_eq!(AdaptiveAvgPool2d::new(1).forward(&x)?.to_vec::<f32>()?, [4.5]);
        assert_eq!(AdaptiveAvgPool2d::with([1, 2]).forward(&x)?.to_vec::<f32>()?, [3.5, 5.5]);
        assert_eq!(AdaptiveAvgPool2d::with([2, 4]).forward(&x)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
        for size in [0, 3] {
            let error = AdaptiveAvgPool2d::new(size).forward(&x).unwrap_err().to_string();
            assert!(error.contains(&format!("{size} x {size} does not divide images of 2 x 4")), "{error}");
        }
        assert!(AdaptiveAvgPool2d::new(1).forward(&x.flatten(1, -1)?).is_err());
        Ok(())
    }
}
