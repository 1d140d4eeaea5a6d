//! The networks of the Visual Geometry Group, as torchvision has them.

use super::start;
use crate::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Forward, Linear, MaxPool2d, Module, ModulePath, ReLU,
};
use crate::{Result, Tensor, nn::Sequential};

/// How many 3 x 3 convolutions there are before each of the five poolings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// VGG-11.
    Eleven,
    /// VGG-16.
    Sixteen,
}

/// 3 x 3 convolutions, five poolings and three fully connected layers, for images of 32 x 32 pixels or more.
///
/// ```
/// use neurona::models::vgg::{Depth, Vgg};
/// use neurona::{DType, Tensor, nn::{Forward, Module}};
/// let net = Vgg::new(Depth::Eleven, true, 3, 10, 0.5)?;
/// let y = net.forward(&Tensor::zeros([1, 3, 32, 32], DType::F32)?)?;
/// assert_eq!((y.shape().to_string().as_str(), net.num_parameters()), ("[1, 10]", 128_812_810));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Vgg {
    /// The convolutions.
    pub features: Sequential,
    /// To 7 x 7, whatever the image's size.
    pub avgpool: AdaptiveAvgPool2d,
    /// The fully connected layers.
    pub classifier: Sequential,
    path: ModulePath,
}

impl Vgg {
    /// With fresh parameters, with or without batch normalisation; torchvision's dropout is a half.
    pub fn new(depth: Depth, batch_norm: bool, channels: usize, classes: usize, dropout: f64) -> Result<Self> {
        let repeats = match depth {
            Depth::Eleven => [1, 1, 2, 2, 2],
            Depth::Sixteen => [2, 2, 3, 3, 3],
        };
        let build = || {
            let (mut features, mut inputs) = (Sequential::new(), channels);
            for (outputs, repeats) in [64, 128, 256, 512, 512].into_iter().zip(repeats) {
                for _ in 0..repeats {
                    features = features.add(Conv2d::new(inputs, outputs, 3)?.padding(1));
                    if batch_norm {
                        features = features.add(BatchNorm2d::new(outputs)?);
                    }
                    features = features.add(ReLU::new());
                    inputs = outputs;
                }
                features = features.add(MaxPool2d::new(2));
            }
            let classifier = Sequential::new()
                .add(Linear::new(512 * 7 * 7, 4096)?)
                .add(ReLU::new())
                .add(Dropout::new(dropout))
                .add(Linear::new(4096, 4096)?)
                .add(ReLU::new())
                .add(Dropout::new(dropout))
                .add(Linear::new(4096, classes)?);
            Ok(Vgg { features, avgpool: AdaptiveAvgPool2d::new(7), classifier, path: ModulePath::default() })
        };
        start::by(build, start::kaiming)
    }
}

impl Forward for Vgg {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.avgpool.forward(&self.features.forward(x)?)?;
        self.classifier.forward(&x.flatten(1, -1)?)
    }
}
