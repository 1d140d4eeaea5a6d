//! AlexNet, as torchvision has it.

use crate::nn::{AdaptiveAvgPool2d, Conv2d, Dropout, Forward, Linear, MaxPool2d, Module, ModulePath, ReLU, Sequential};
use crate::{Result, Tensor};

/// Five convolutions and three fully connected layers, for images of 63 x 63 pixels or more.
///
/// ```
/// use neurona::{DType, Tensor, models::AlexNet, nn::{Forward, Module}};
/// let net = AlexNet::new(3, 10, 0.5)?;
/// let y = net.forward(&Tensor::zeros([2, 3, 224, 224], DType::F32)?)?;
/// assert_eq!((y.shape().to_string().as_str(), net.num_parameters()), ("[2, 10]", 57_044_810));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct AlexNet {
    /// The convolutions.
    pub features: Sequential,
    /// To 6 x 6, whatever the image's size.
    pub avgpool: AdaptiveAvgPool2d,
    /// The fully connected layers.
    pub classifier: Sequential,
    path: ModulePath,
}

impl AlexNet {
    /// With fresh parameters, for images of this many channels; torchvision's dropout is a half.
    pub fn new(channels: usize, classes: usize, dropout: f64) -> Result<Self> {
        let features = Sequential::new()
            .add(Conv2d::new(channels, 64, 11)?.stride(4).padding(2))
            .add(ReLU::new())
            .add(MaxPool2d::new(3).stride(2))
            .add(Conv2d::new(64, 192, 5)?.padding(2))
            .add(ReLU::new())
            .add(MaxPool2d::new(3).stride(2))
            .add(Conv2d::new(192, 384, 3)?.padding(1))
            .add(ReLU::new())
            .add(Conv2d::new(384, 256, 3)?.padding(1))
            .add(ReLU::new())
            .add(Conv2d::new(256, 256, 3)?.padding(1))
            .add(ReLU::new())
            .add(MaxPool2d::new(3).stride(2));
        let classifier = Sequential::new()
            .add(Dropout::new(dropout))
            .add(Linear::new(256 * 6 * 6, 4096)?)
            .add(ReLU::new())
            .add(Dropout::new(dropout))
            .add(Linear::new(4096, 4096)?)
            .add(ReLU::new())
            .add(Linear::new(4096, classes)?);
        Ok(AlexNet { features, avgpool: AdaptiveAvgPool2d::new(6), classifier, path: ModulePath::default() })
    }
}

impl Forward for AlexNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.avgpool.forward(&self.features.forward(x)?)?;
        self.classifier.forward(&x.flatten(1, -1)?)
    }
}
