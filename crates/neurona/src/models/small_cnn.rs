//! A small convolutional network for small images.

use super::features;
use crate::nn::{BatchNorm2d, Conv2d, Forward, Linear, Module, ModulePath};
use crate::{Error, PoolOptions, Result, Tensor};

/// Twice convolution, batch norm, ReLU and pooling; then one linear layer. It learns Fashion-MNIST in seconds.
///
/// ```
/// use neurona::{DType, Tensor, models::SmallCnn, nn::Forward};
/// let net = SmallCnn::new([1, 28, 28], 10)?;
/// let y = net.forward(&Tensor::zeros([2, 1, 28, 28], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 10]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct SmallCnn {
    /// The image's channels to 32, 3 x 3.
    pub conv1: Conv2d,
    /// After the first convolution.
    pub bn1: BatchNorm2d,
    /// 32 to 64 channels, 3 x 3.
    pub conv2: Conv2d,
    /// After the second convolution.
    pub bn2: BatchNorm2d,
    /// What two poolings leave, to the classes.
    pub fc: Linear,
    path: ModulePath,
}

impl SmallCnn {
    /// For images of this size (channels, height, width).
    #[track_caller]
    pub fn new([channels, height, width]: [usize; 3], classes: usize) -> Result<Self> {
        if height < 4 || width < 4 {
            return Err(Error::Argument(format!(
                "small_cnn needs images of 4 x 4 pixels or more, not {width} x {height}"
            )));
        }
        // Batch norm takes any bias off again.
        Ok(SmallCnn {
            conv1: Conv2d::new(channels, 32, 3)?.padding(1).without_bias(),
            bn1: BatchNorm2d::new(32)?,
            conv2: Conv2d::new(32, 64, 3)?.padding(1).without_bias(),
            bn2: BatchNorm2d::new(64)?,
            fc: Linear::new(features(64, height / 4, width / 4), classes)?,
            path: ModulePath::default(),
        })
    }
}

impl Forward for SmallCnn {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let pool = PoolOptions::square(2);
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?.max_pool2d(pool)?;
        let x = self.bn2.forward(&self.conv2.forward(&x)?)?.relu()?.max_pool2d(pool)?;
        self.fc.forward(&x.flatten(1, -1)?)
    }
}
