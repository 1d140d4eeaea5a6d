//! Fully connected layers in a row.

use crate::nn::{Linear, ReLU, Sequential};
use crate::{Error, Result};

/// Fully connected layers of these sizes, with ReLU between them; named as `nn.Sequential` would.
///
/// ```
/// use neurona::{DType, Tensor, models::mlp, nn::{Forward, Module}};
/// let net = mlp(&[784, 512, 256, 10])?;
/// let y = net.forward(&Tensor::zeros([2, 784], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 10]");
/// assert_eq!((net.num_parameters(), net.named_parameters()[4].0.as_str()), (535_818, "4.weight"));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn mlp(sizes: &[usize]) -> Result<Sequential> {
    if sizes.len() < 2 {
        let problem = format!("mlp needs the sizes of at least input and output, not {sizes:?}");
        return Err(Error::Argument(problem));
    }
    let mut net = Sequential::new();
    for pair in sizes.windows(2) {
        if !net.is_empty() {
            net = net.add(ReLU::new());
        }
        net = net.add(Linear::new(pair[0], pair[1])?);
    }
    Ok(net)
}
