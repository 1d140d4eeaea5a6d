//! The network that `neurona train` trains.

use neurona::nn::{BatchNorm2d, Conv2d, Forward, Linear, Module};
use neurona::{PoolOptions, Result, Tensor};

const CHANNELS: [usize; 2] = [32, 64];

/// Twice convolution, batch norm, ReLU and pooling; then one linear layer.
#[derive(Module)]
pub struct Net {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    fc: Linear,
}

impl Net {
    /// A network for images of this size (channels, height, width).
    pub fn new([channels, height, width]: [usize; 3], classes: usize) -> Result<Self> {
        let [first, second] = CHANNELS;
        // Batch norm takes any bias off again.
        Ok(Net {
            conv1: Conv2d::new(channels, first, 3)?.padding(1).without_bias(),
            bn1: BatchNorm2d::new(first)?,
            conv2: Conv2d::new(first, second, 3)?.padding(1).without_bias(),
            bn2: BatchNorm2d::new(second)?,
            fc: Linear::new(second * (height / 4) * (width / 4), classes)?,
        })
    }

    /// The layers in words, for the files of a run.
    pub fn architecture(&self) -> String {
        let block = |channels: usize| format!("conv3x3({channels})-bn-relu-maxpool2");
        format!("{}-{}-linear({})", block(CHANNELS[0]), block(CHANNELS[1]), self.fc.weight.shape()[0])
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = PoolOptions::square(2);
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?.max_pool2d(pool)?;
        let x = self.bn2.forward(&self.conv2.forward(&x)?)?.relu()?.max_pool2d(pool)?;
        self.fc.forward(&x.flatten(1, -1)?)
    }
}
