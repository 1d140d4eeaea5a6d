//! Binary cross-entropy of probabilities.

use crate::tensor::{Number, no_grad};
use crate::{Reduction, Result, Tensor};

/// PyTorch's: below this the logarithm is cut off, so that a probability of 0 costs 100 and not infinity.
const LEAST_LOG: f64 = -100.0;
/// PyTorch's: the derivative is divided by at least this.
const LEAST_SLOPE: f64 = 1e-12;

/// Binary cross-entropy of probabilities: the output of a sigmoid. [`BCEWithLogitsLoss`](super::BCEWithLogitsLoss)
/// does both in one and loses less precision.
///
/// ```
/// use neurona::{Tensor, loss::BCELoss};
/// let (p, t) = (Tensor::from([0.5f32, 0.5]), Tensor::from([0.0f32, 1.0]));
/// assert!((BCELoss::new().forward(&p, &t)?.item::<f32>()? - 0.6931).abs() < 1e-4);
/// let first_only = BCELoss::new().weight(&Tensor::from([1.0f32, 0.0]));
/// assert!((first_only.forward(&p, &t)?.item::<f32>()? - 0.3466).abs() < 1e-4);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BCELoss {
    /// What becomes of the losses of single elements.
    pub reduction: Reduction,
    /// A factor for the loss of each element; it broadcasts.
    pub weight: Option<Tensor>,
}

impl Default for BCELoss {
    fn default() -> Self {
        BCELoss { reduction: Reduction::Mean, weight: None }
    }
}

impl BCELoss {
    /// The mean.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same loss, joined this way.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The same loss with a factor for each element; it broadcasts.
    pub fn weight(mut self, weight: &Tensor) -> Self {
        self.weight = Some(weight.clone());
        self
    }

    /// The loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let losses = input.binary_cross_entropy_with(target, Reduction::None)?;
        losses.rescaled("binary_cross_entropy", self.weight.as_ref())?.reduced(self.reduction)
    }
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
