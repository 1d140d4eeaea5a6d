//! Residual networks.

use crate::nn::{BatchNorm2d, Conv2d, Forward, Linear, Module, ModulePath, Sequential};
use crate::{Result, Tensor};

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
        let downsample = if stride != 1 || inputs != outputs {
            let conv = Conv2d::new(inputs, outputs, 1)?.stride(stride).without_bias();
            Some(Sequential::new().add(conv).add(BatchNorm2d::new(outputs)?))
        } else {
            None
        };
        Ok(BasicBlock {
            conv1: Conv2d::new(inputs, outputs, 3)?.stride(stride).padding(1).without_bias(),
            bn1: BatchNorm2d::new(outputs)?,
            conv2: Conv2d::new(outputs, outputs, 3)?.padding(1).without_bias(),
            bn2: BatchNorm2d::new(outputs)?,
            downsample,
            path: ModulePath::default(),
        })
    }
}

impl Forward for BasicBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        match &self.downsample {
            Some(downsample) => y.add(&downsample.forward(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

/// ResNet-18 for small images: its first convolution is 3 x 3 with stride 1, and no pooling follows it. The
/// names are torchvision's.
///
/// ```
/// use neurona::{DType, Tensor, models::ResNet18Cifar, nn::{Forward, Module}};
/// let net = ResNet18Cifar::new(10)?;
/// let y = net.forward(&Tensor::zeros([2, 3, 32, 32], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 10]");
/// assert_eq!(net.num_parameters(), 11_173_962);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct ResNet18Cifar {
    /// 3 to 64 channels.
    pub conv1: Conv2d,
    /// After the first convolution.
    pub bn1: BatchNorm2d,
    /// 64 channels.
    pub layer1: [BasicBlock; 2],
    /// 128 channels, half the size.
    pub layer2: [BasicBlock; 2],
    /// 256 channels, half the size.
    pub layer3: [BasicBlock; 2],
    /// 512 channels, half the size.
    pub layer4: [BasicBlock; 2],
    /// 512 to the classes.
    pub fc: Linear,
    path: ModulePath,
}

impl ResNet18Cifar {
    /// With fresh parameters, for this many classes.
    #[track_caller]
    pub fn new(classes: usize) -> Result<Self> {
        let layer = |inputs, outputs, stride| -> Result<_> {
            Ok([BasicBlock::new(inputs, outputs, stride)?, BasicBlock::new(outputs, outputs, 1)?])
        };
        Ok(ResNet18Cifar {
            conv1: Conv2d::new(3, 64, 3)?.padding(1).without_bias(),
            bn1: BatchNorm2d::new(64)?,
            layer1: layer(64, 64, 1)?,
            layer2: layer(64, 128, 2)?,
            layer3: layer(128, 256, 2)?,
            layer4: layer(256, 512, 2)?,
            fc: Linear::new(512, classes)?,
            path: ModulePath::default(),
        })
    }
}

impl Forward for ResNet18Cifar {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let mut x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(&x)?;
        }
        self.fc.forward(&x.global_avg_pool2d()?.flatten(1, -1)?)
    }
}
