//! Binary cross-entropy of probabilities.

use super::loss_struct;
use crate::tensor::{Number, no_grad};
use crate::{Reduction, Result, Tensor};

/// PyTorch's: below this the logarithm is cut off, so that a probability of 0 costs 100 and not infinity.
const LEAST_LOG: f64 = -100.0;
/// PyTorch's: the derivative is divided by at least this.
const LEAST_SLOPE: f64 = 1e-12;

loss_struct! {
    /// Binary cross-entropy of probabilities: the output of a sigmoid. [`BCEWithLogitsLoss`](super::BCEWithLogitsLoss)
    /// does both in one and loses less precision.
    ///
    /// ```
    /// use neurona::{Tensor, loss::BCELoss};
    /// let loss = BCELoss::new().forward(&Tensor::from([0.5f32, 0.5]), &Tensor::from([0.0f32, 1.0]))?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    BCELoss binary_cross_entropy_with
}

impl Tensor {
    /// Mean binary cross-entropy of probabilities with targets from 0 to 1. Targets get no gradient.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let loss = Tensor::from([0.0f32]).binary_cross_entropy(&Tensor::from([1.0f32]))?;
    /// assert_eq!(loss.item::<f32>()?, 100.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor) -> Result<Tensor> {
        self.binary_cross_entropy_with(target, Reduction::Mean)
    }

    /// The same, joined another way.
    #[track_caller]
    pub fn binary_cross_entropy_with(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let t = self.target("binary_cross_entropy", target)?;
        let (loss, derivative) = no_grad(|| -> Result<_> {
            let not_x = (1.0 - self)?;
            let gain =
                (&t * at_least(&self.log()?, LEAST_LOG)? + &((1.0 - &t)? * at_least(&not_x.log()?, LEAST_LOG)?)?)?;
            let slope = at_least(&(self * &not_x)?, LEAST_SLOPE)?;
            Ok((gain.neg()?, ((self - &t)? / slope)?))
        })?;
        self.with_derivative(&loss, &derivative)?.reduced(reduction)
    }
}

/// NaN stays NaN.
fn at_least(x: &Tensor, low: f64) -> Result<Tensor> {
    let low = x.number(Number::Float(low));
    x.lt(&low)?.where_(&low, x)
}
