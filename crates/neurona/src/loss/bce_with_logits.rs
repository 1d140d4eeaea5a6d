//! Binary cross-entropy of logits.

use super::loss_struct;
use crate::tensor::no_grad;
use crate::{Reduction, Result, Tensor};

loss_struct! {
    /// Binary cross-entropy of logits: sigmoid and [`BCELoss`](super::BCELoss) in one, exact for large logits.
    ///
    /// ```
    /// use neurona::{Tensor, loss::BCEWithLogitsLoss};
    /// let loss = BCEWithLogitsLoss::new().forward(&Tensor::from([1000.0f32]), &Tensor::from([0.0f32]))?;
    /// assert_eq!(loss.item::<f32>()?, 1000.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    BCEWithLogitsLoss binary_cross_entropy_with_logits_with
}

impl Tensor {
    /// Mean binary cross-entropy of logits with targets from 0 to 1. Targets get no gradient.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let loss = Tensor::from([0.0f32]).binary_cross_entropy_with_logits(&Tensor::from([1.0f32]))?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Result<Tensor> {
        self.binary_cross_entropy_with_logits_with(target, Reduction::Mean)
    }

    /// The same, joined another way.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits_with(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let t = self.target("binary_cross_entropy_with_logits", target)?;
        let (loss, derivative) = no_grad(|| -> Result<_> {
            let tail = log_of_one_and(&self.abs()?.neg()?.exp()?)?;
            let loss = (self.relu()? - (self * &t)? + &tail)?;
            Ok((loss, (self.sigmoid()? - &t)?))
        })?;
        self.with_derivative(&loss, &derivative)?.reduced(reduction)
    }
}

/// log(1 + e) for e from 0 to 1, with full precision where 1 + e rounds to 1.
fn log_of_one_and(e: &Tensor) -> Result<Tensor> {
    let sum = e.add_scalar(1.0)?;
    // What was added in fact differs from e by rounding; the quotient makes up for it.
    let added = sum.sub_scalar(1.0)?;
    let exact = (sum.log()? * (e / &added)?)?;
    added.eq_scalar(0.0)?.where_(e, &exact)
}
