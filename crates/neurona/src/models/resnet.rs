//! Residual networks.

use super::start;
use crate::nn::init;
use crate::nn::{BatchNorm2d, Conv2d, Forward, Linear, MaxPool2d, Module, ModulePath, Sequential};
use crate::{Result, Tensor};

/// A part of a [`ResNet`] whose output is added to its input.
pub trait Block: Forward + Sized {
    /// How many times the channels of its 3 x 3 convolution it gives.
    const EXPANSION: usize;

    /// A block from `inputs` channels to `planes` times the expansion.
    fn between(inputs: usize, planes: usize, stride: usize) -> Result<Self>;
}

/// Two 3 x 3 convolutions with batch normalisation, added to the input.
///
/// ```
/// use neurona::{DType, Tensor, models::resnet::BasicBlock, nn::Forward};
/// let block = BasicBlock::new(64, 128, 2)?;
/// let y = block.forward(&Tensor::zeros([2, 64, 8, 8], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 128, 4, 4]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct BasicBlock {
    /// Changes the number of channels and, by its stride, the size.
    pub conv1: Conv2d,
    /// After the first convolution.
    pub bn1: BatchNorm2d,
    /// Keeps channels and size.
    pub conv2: Conv2d,
    /// After the second convolution.
    pub bn2: BatchNorm2d,
    /// Brings the input to the output's shape, where they differ.
    pub downsample: Option<Sequential>,
    path: ModulePath,
}

impl BasicBlock {
    /// A block from `inputs` to `outputs` channels.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        Ok(BasicBlock {
            conv1: Conv2d::new(inputs, outputs, 3)?.stride(stride).padding(1).without_bias(),
            bn1: BatchNorm2d::new(outputs)?,
            conv2: Conv2d::new(outputs, outputs, 3)?.padding(1).without_bias(),
            bn2: BatchNorm2d::new(outputs)?,
            downsample: downsample(inputs, outputs, stride)?,
            path: ModulePath::default(),
        })
    }
}

impl Block for BasicBlock {
    const EXPANSION: usize = 1;

    fn between(inputs: usize, planes: usize, stride: usize) -> Result<Self> {
        BasicBlock::new(inputs, planes, stride)
    }
}

impl Forward for BasicBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        joined(&y, x, &self.downsample)
    }
}

/// A 1 x 1, a 3 x 3 and again a 1 x 1 convolution, which gives four times the channels; added to the input.
///
/// ```
/// use neurona::{DType, Tensor, models::resnet::Bottleneck, nn::Forward};
/// let block = Bottleneck::new(256, 128, 2)?;
/// let y = block.forward(&Tensor::zeros([2, 256, 8, 8], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 512, 4, 4]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Bottleneck {
    /// To fewer channels.
    pub conv1: Conv2d,
    /// After the first convolution.
    pub bn1: BatchNorm2d,
    /// Changes, by its stride, the size.
    pub conv2: Conv2d,
    /// After the second convolution.
    pub bn2: BatchNorm2d,
    /// To four times the channels.
    pub conv3: Conv2d,
    /// After the third convolution.
    pub bn3: BatchNorm2d,
    /// Brings the input to the output's shape, where they differ.
    pub downsample: Option<Sequential>,
    path: ModulePath,
}

impl Bottleneck {
    /// A block from `inputs` channels by way of `planes` to four times as many.
    #[track_caller]
    pub fn new(inputs: usize, planes: usize, stride: usize) -> Result<Self> {
        let outputs = planes * Self::EXPANSION;
        Ok(Bottleneck {
            conv1: Conv2d::new(inputs, planes, 1)?.without_bias(),
            bn1: BatchNorm2d::new(planes)?,
            conv2: Conv2d::new(planes, planes, 3)?.stride(stride).padding(1).without_bias(),
            bn2: BatchNorm2d::new(planes)?,
            conv3: Conv2d::new(planes, outputs, 1)?.without_bias(),
            bn3: BatchNorm2d::new(outputs)?,
            downsample: downsample(inputs, outputs, stride)?,
            path: ModulePath::default(),
        })
    }
}

impl Block for Bottleneck {
    const EXPANSION: usize = 4;

    fn between(inputs: usize, planes: usize, stride: usize) -> Result<Self> {
        Bottleneck::new(inputs, planes, stride)
    }
}

impl Forward for Bottleneck {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?.relu()?;
        let y = self.bn3.forward(&self.conv3.forward(&y)?)?;
        joined(&y, x, &self.downsample)
    }
}

#[track_caller]
fn downsample(inputs: usize, outputs: usize, stride: usize) -> Result<Option<Sequential>> {
    if stride == 1 && inputs == outputs {
        return Ok(None);
    }
    let conv = Conv2d::new(inputs, outputs, 1)?.stride(stride).without_bias();
    Ok(Some(Sequential::new().add(conv).add(BatchNorm2d::new(outputs)?)))
}

#[track_caller]
fn joined(y: &Tensor, x: &Tensor, downsample: &Option<Sequential>) -> Result<Tensor> {
    match downsample {
        Some(downsample) => y.add(&downsample.forward(x)?)?.relu(),
        None => y.add(x)?.relu(),
    }
}

/// How a [`ResNet`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// A 7 x 7 convolution and a pooling, which leave a quarter of height and width: torchvision's.
    Large,
    /// A 3 x 3 convolution, which keeps the size: for CIFAR's 32 x 32 pixels.
    Small,
}

/// A residual network of four layers of blocks; the names are torchvision's. [`resnet18`] and the functions beside
/// it make those that have a name.
///
/// ```
/// use neurona::{DType, Tensor, models::resnet::{BasicBlock, ResNet, Stem}, nn::Forward};
/// let net = ResNet::<BasicBlock>::new([1, 1, 1, 1], Stem::Small, 1, 10)?;
/// let y = net.forward(&Tensor::zeros([2, 1, 28, 28], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 10]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct ResNet<B> {
    /// The images' channels to 64.
    pub conv1: Conv2d,
    /// After the first convolution.
    pub bn1: BatchNorm2d,
    /// Halves height and width, where the images are large.
    pub maxpool: Option<MaxPool2d>,
    /// 64 channels, times the blocks' expansion.
    pub layer1: Vec<B>,
    /// 128 channels, half the size.
    pub layer2: Vec<B>,
    /// 256 channels, half the size.
    pub layer3: Vec<B>,
    /// 512 channels, half the size.
    pub layer4: Vec<B>,
    /// To the classes.
    pub fc: Linear,
    path: ModulePath,
}

impl<B: Block> ResNet<B> {
    /// With fresh parameters and this many blocks in each layer.
    pub fn new(blocks: [usize; 4], stem: Stem, channels: usize, classes: usize) -> Result<Self> {
        let mut inputs = 64;
        let mut layer = |planes: usize, blocks: usize, stride: usize| -> Result<Vec<B>> {
            let one = |i| {
                let block = B::between(inputs, planes, if i == 0 { stride } else { 1 });
                inputs = planes * B::EXPANSION;
                block
            };
            (0..blocks).map(one).collect()
        };
        let [kernel, stride, padding] = if stem == Stem::Large { [7, 2, 3] } else { [3, 1, 1] };
        let build = || -> Result<Self> {
            Ok(ResNet {
                conv1: Conv2d::new(channels, 64, kernel)?.stride(stride).padding(padding).without_bias(),
                bn1: BatchNorm2d::new(64)?,
                maxpool: (stem == Stem::Large).then(|| MaxPool2d::new(3).stride(2).padding(1)),
                layer1: layer(64, blocks[0], 1)?,
                layer2: layer(128, blocks[1], 2)?,
                layer3: layer(256, blocks[2], 2)?,
                layer4: layer(512, blocks[3], 2)?,
                fc: Linear::new(512 * B::EXPANSION, classes)?,
                path: ModulePath::default(),
            })
        };
        start::by(build, |name, parameter| match name {
            "fc.weight" | "fc.bias" => Ok(Some(init::default_uniform(parameter.shape(), 512 * B::EXPANSION)?)),
            _ => start::kaiming(name, parameter),
        })
    }
}

impl<B: Block> Forward for ResNet<B> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let mut x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        if let Some(maxpool) = &self.maxpool {
            x = maxpool.forward(&x)?;
        }
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(&x)?;
        }
        self.fc.forward(&x.global_avg_pool2d()?.flatten(1, -1)?)
    }
}

macro_rules! named { ($($(#[$doc:meta])* $name:ident: $Block:ty, $blocks:expr, $stem:expr;)*) => { $(
    $(#[$doc])*
    pub fn $name(classes: usize) -> Result<ResNet<$Block>> {
        ResNet::new($blocks, $stem, 3, classes)
    }
)* } }

named! {
    /// ResNet-18 for colour images, with fresh parameters.
    ///
    /// ```
    /// use neurona::{models::resnet18, nn::Module};
    /// assert_eq!(resnet18(1000)?.num_parameters(), 11_689_512);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    resnet18: BasicBlock, [2, 2, 2, 2], Stem::Large;
    /// ResNet-34 for colour images, with fresh parameters.
    resnet34: BasicBlock, [3, 4, 6, 3], Stem::Large;
    /// ResNet-50 for colour images, with fresh parameters.
    resnet50: Bottleneck, [3, 4, 6, 3], Stem::Large;
    /// ResNet-18 for small colour images: its first convolution is 3 x 3 with stride 1, and no pooling follows it.
    ///
    /// ```
    /// use neurona::{DType, Tensor, models::resnet18_cifar, nn::{Forward, Module}};
    /// let net = resnet18_cifar(10)?;
    /// let y = net.forward(&Tensor::zeros([2, 3, 32, 32], DType::F32)?)?;
    /// assert_eq!(y.shape().to_string(), "[2, 10]");
    /// assert_eq!(net.num_parameters(), 11_173_962);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    resnet18_cifar: BasicBlock, [2, 2, 2, 2], Stem::Small;
    /// ResNet-34 for small colour images.
    resnet34_cifar: BasicBlock, [3, 4, 6, 3], Stem::Small;
    /// ResNet-50 for small colour images.
    resnet50_cifar: Bottleneck, [3, 4, 6, 3], Stem::Small;
}
