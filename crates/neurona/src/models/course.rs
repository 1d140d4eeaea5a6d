//! The convolutional network with batch normalisation of the course.

use super::features;
use crate::nn::{BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential};
use crate::{Error, Result};

/// Three blocks of convolution, batch normalisation, ReLU and pooling, and a fully connected layer: 32 x 32
/// colour images to 10 classes.
///
/// ```
/// use neurona::{DType, Tensor, models::course_cnn, nn::{Forward, Module}};
/// let net = course_cnn()?;
/// let y = net.forward(&Tensor::zeros([4, 3, 32, 32], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[4, 10]");
/// assert_eq!(net.num_parameters(), 114_186);
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn course_cnn() -> Result<Sequential> {
    course_cnn_with([3, 32, 32], 10)
}

/// The same layers for images of another size (channels, height, width) and other classes.
///
/// ```
/// use neurona::{DType, Tensor, models::course_cnn_with, nn::Forward};
/// let y = course_cnn_with([1, 28, 28], 5)?.forward(&Tensor::zeros([2, 1, 28, 28], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 5]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn course_cnn_with([channels, height, width]: [usize; 3], classes: usize) -> Result<Sequential> {
    let [height, width] = [height / 8, width / 8];
    if height == 0 || width == 0 {
        return Err(Error::Argument("course_cnn needs images of 8 x 8 pixels or more".into()));
    }
    let mut net = Sequential::new();
    for (inputs, outputs) in [(channels, 32), (32, 64), (64, 128)] {
        net = net
            .add(Conv2d::new(inputs, outputs, 3)?.padding(1))
            .add(BatchNorm2d::new(outputs)?)
            .add(ReLU::new())
            .add(MaxPool2d::new(2));
    }
    Ok(net.add(Flatten::new()).add(Linear::new(features(128, height, width), classes)?))
}
