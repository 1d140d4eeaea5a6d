//! The convolutional network with batch normalisation of the course.

use crate::Result;
use crate::nn::{BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential};

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
    let mut net = Sequential::new();
    for (inputs, outputs) in [(3, 32), (32, 64), (64, 128)] {
        net = net
            .add(Conv2d::new(inputs, outputs, 3)?.padding(1))
            .add(BatchNorm2d::new(outputs)?)
            .add(ReLU::new())
            .add(MaxPool2d::new(2));
    }
    Ok(net.add(Flatten::new()).add(Linear::new(128 * 4 * 4, 10)?))
}
