//! The small convolutional network of PyTorch's CIFAR-10 tutorial.

use super::features;
use crate::nn::{Conv2d, Forward, Linear, MaxPool2d, Module, ModulePath};
use crate::{Error, Result, Tensor};

/// LeNet for colour images: two convolutions, each with ReLU and pooling, and three fully connected layers.
///
/// ```
/// use neurona::{DType, Tensor, models::Lab, nn::{Forward, Module}};
/// let net = Lab::new()?;
/// let y = net.forward(&Tensor::zeros([4, 3, 32, 32], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[4, 10]");
/// assert_eq!(net.num_parameters(), 62_006);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Lab {
    /// The image's channels to 6, 5 x 5.
    pub conv1: Conv2d,
    /// Halves height and width; used twice.
    pub pool: MaxPool2d,
    /// 6 to 16 channels, 5 x 5.
    pub conv2: Conv2d,
    /// What the second pooling leaves (400 numbers of 32 x 32 pixels), to 120.
    pub fc1: Linear,
    /// 120 to 84.
    pub fc2: Linear,
    /// 84 to the classes.
    pub fc3: Linear,
    path: ModulePath,
}

impl Lab {
    /// With fresh parameters, for 32 x 32 colour images and 10 classes.
    #[track_caller]
    pub fn new() -> Result<Self> {
        Lab::with([3, 32, 32], 10)
    }

    /// With fresh parameters, for images of this size (channels, height, width) and this many classes.
    ///
    /// ```
    /// use neurona::{DType, Tensor, models::Lab, nn::Forward};
    /// let y = Lab::with([1, 28, 28], 3)?.forward(&Tensor::zeros([2, 1, 28, 28], DType::F32)?)?;
    /// assert_eq!(y.shape().to_string(), "[2, 3]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn with([channels, height, width]: [usize; 3], classes: usize) -> Result<Self> {
        let left = |size: usize| (size.saturating_sub(4) / 2).saturating_sub(4) / 2;
        if left(height) == 0 || left(width) == 0 {
            let problem = format!("lenet needs images of 16 x 16 pixels or more, not {width} x {height}");
            return Err(Error::Argument(problem));
        }
        Ok(Lab {
            conv1: Conv2d::new(channels, 6, 5)?,
            pool: MaxPool2d::new(2),
            conv2: Conv2d::new(6, 16, 5)?,
            fc1: Linear::new(features(16, left(height), left(width)), 120)?,
            fc2: Linear::new(120, 84)?,
            fc3: Linear::new(84, classes)?,
            path: ModulePath::default(),
        })
    }
}

impl Forward for Lab {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = self.pool.forward(&self.conv2.forward(&x)?.relu()?)?;
        let x = self.fc1.forward(&x.flatten(1, -1)?)?.relu()?;
        self.fc3.forward(&self.fc2.forward(&x)?.relu()?)
    }
}
