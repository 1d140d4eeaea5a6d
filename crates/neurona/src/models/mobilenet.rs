//! MobileNetV2, as torchvision has it.

use super::start;
use crate::nn::{BatchNorm2d, Conv2d, Dropout, Forward, Linear, Module, ModulePath, ReLU6, Sequential};
use crate::{Result, Tensor};

/// A network for small machines: most of its convolutions look at one channel each.
///
/// ```
/// use neurona::{DType, Tensor, models::MobileNetV2, nn::{Forward, Module}};
/// let net = MobileNetV2::new(3, 1000, 1.0, 0.2)?;
/// let y = net.forward(&Tensor::zeros([1, 3, 64, 64], DType::F32)?)?;
/// assert_eq!((y.shape().to_string().as_str(), net.num_parameters()), ("[1, 1000]", 3_504_872));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct MobileNetV2 {
    /// The convolutions.
    pub features: Sequential,
    /// Dropout and a fully connected layer.
    pub classifier: Sequential,
    path: ModulePath,
}

/// Expansion, channels, number and stride of the blocks.
const BLOCKS: [[usize; 4]; 7] =
    [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]];

impl MobileNetV2 {
    /// With fresh parameters. `width_mult` makes all layers wider or narrower; torchvision's is 1, its dropout 0.2.
    pub fn new(channels: usize, classes: usize, width_mult: f64, dropout: f64) -> Result<Self> {
        let build = || {
            let mut inputs = eights(32.0 * width_mult);
            let last = eights(1280.0 * width_mult.max(1.0));
            let mut features = Sequential::new().add(conv(channels, inputs, 3, 2, 1)?);
            for [expansion, channels, number, stride] in BLOCKS {
                let outputs = eights(channels as f64 * width_mult);
                for i in 0..number {
                    let stride = if i == 0 { stride } else { 1 };
                    features = features.add(InvertedResidual::new(inputs, outputs, stride, expansion)?);
                    inputs = outputs;
                }
            }
            let features = features.add(conv(inputs, last, 1, 1, 1)?);
            let classifier = Sequential::new().add(Dropout::new(dropout)).add(Linear::new(last, classes)?);
            Ok(MobileNetV2 { features, classifier, path: ModulePath::default() })
        };
        start::by(build, start::kaiming)
    }
}

impl Forward for MobileNetV2 {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.features.forward(x)?.global_avg_pool2d()?;
        self.classifier.forward(&x.flatten(1, -1)?)
    }
}

/// To more channels, a filter for each of them, and back to few channels; added to the input where shapes allow.
///
/// ```
/// use neurona::{DType, Tensor, models::mobilenet::InvertedResidual, nn::Forward};
/// let block = InvertedResidual::new(16, 24, 2, 6)?;
/// let y = block.forward(&Tensor::zeros([2, 16, 8, 8], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 24, 4, 4]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct InvertedResidual {
    /// The convolutions.
    pub conv: Sequential,
    /// Whether the input is added.
    pub residual: bool,
    path: ModulePath,
}

impl InvertedResidual {
    /// A block from `inputs` to `outputs` channels, with `expansion` times the inputs between them.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, stride: usize, expansion: usize) -> Result<Self> {
        let hidden = inputs * expansion;
        let mut layers = Sequential::new();
        if expansion != 1 {
            layers = layers.add(conv(inputs, hidden, 1, 1, 1)?);
        }
        let layers = layers
            .add(conv(hidden, hidden, 3, stride, hidden)?)
            .add(Conv2d::new(hidden, outputs, 1)?.without_bias())
            .add(BatchNorm2d::new(outputs)?);
        let residual = stride == 1 && inputs == outputs;
        Ok(InvertedResidual { conv: layers, residual, path: ModulePath::default() })
    }
}

impl Forward for InvertedResidual {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let y = self.conv.forward(x)?;
        if self.residual { x.add(&y) } else { Ok(y) }
    }
}

/// Convolution, batch normalisation and ReLU6.
fn conv(inputs: usize, outputs: usize, kernel: usize, stride: usize, groups: usize) -> Result<Sequential> {
    let conv = Conv2d::new(inputs, outputs, kernel)?.groups(groups)?.stride(stride).padding(kernel / 2);
    Ok(Sequential::new().add(conv.without_bias()).add(BatchNorm2d::new(outputs)?).add(ReLU6::new()))
}

/// The nearest multiple of eight, but not less than nine tenths.
fn eights(channels: f64) -> usize {
    let rounded = ((channels + 4.0) as usize / 8 * 8).max(8);
    if (rounded as f64) < 0.9 * channels { rounded + 8 } else { rounded }
}
