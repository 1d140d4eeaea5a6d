//! The small convolutional network of PyTorch's CIFAR-10 tutorial.

use crate::nn::{Conv2d, Forward, Linear, MaxPool2d, Module, ModulePath};
use crate::{Result, Tensor};

/// Two convolutions, each with ReLU and pooling, and three fully connected layers: 32 x 32 colour images to
/// 10 classes.
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
    /// 3 to 6 channels, 5 x 5.
    pub conv1: Conv2d,
    /// Halves height and width; used twice.
    pub pool: MaxPool2d,
    /// 6 to 16 channels, 5 x 5.
    pub conv2: Conv2d,
    /// 400 to 120.
    pub fc1: Linear,
    /// 120 to 84.
    pub fc2: Linear,
    /// 84 to 10.
    pub fc3: Linear,
    path: ModulePath,
}

impl Lab {
    /// With fresh parameters.
    #[track_caller]
    pub fn new() -> Result<Self> {
        Ok(Lab {
            conv1: Conv2d::new(3, 6, 5)?,
            pool: MaxPool2d::new(2),
            conv2: Conv2d::new(6, 16, 5)?,
            fc1: Linear::new(16 * 5 * 5, 120)?,
            fc2: Linear::new(120, 84)?,
            fc3: Linear::new(84, 10)?,
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
