//! Binary cross-entropy of logits.

use crate::tensor::no_grad;
use crate::{Reduction, Result, Tensor};

const NAME: &str = "binary_cross_entropy_with_logits";

/// Binary cross-entropy of logits: sigmoid and [`BCELoss`](super::BCELoss) in one, exact for large logits.
///
/// ```
/// use neurona::{Tensor, loss::BCEWithLogitsLoss};
/// let loss = BCEWithLogitsLoss::new().forward(&Tensor::from([1000.0f32]), &Tensor::from([0.0f32]))?;
/// assert_eq!(loss.item::<f32>()?, 1000.0);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BCEWithLogitsLoss {
    /// What becomes of the losses of single elements.
    pub reduction: Reduction,
    /// A factor for the loss of each element; it broadcasts.
    pub weight: Option<Tensor>,
    /// A factor for the part of the loss that positive targets give; it broadcasts.
    pub pos_weight: Option<Tensor>,
}

impl Default for BCEWithLogitsLoss {
    fn default() -> Self {
        BCEWithLogitsLoss { reduction: Reduction::Mean, weight: None, pos_weight: None }
    }
}

impl BCEWithLogitsLoss {
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

    /// The same loss with a factor for what positive targets give: above 1 where they are rare.
    ///
    /// ```
    /// use neurona::{Tensor, loss::BCEWithLogitsLoss};
    /// let loss = BCEWithLogitsLoss::new().pos_weight(&Tensor::from([3.0f32]));
    /// let loss = loss.forward(&Tensor::from([0.0f32]), &Tensor::from([1.0f32]))?;
    /// assert!((loss.item::<f32>()? - 3.0 * 0.6931).abs() < 1e-3);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn pos_weight(mut self, pos_weight: &Tensor) -> Self {
        self.pos_weight = Some(pos_weight.clone());
        self
    }

    /// The loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let losses = input.bce_of_logits(target, self.pos_weight.as_ref())?;
        losses.rescaled(NAME, self.weight.as_ref())?.reduced(self.reduction)
    }
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
        self.bce_of_logits(target, None)?.reduced(reduction)
    }

    /// The loss of each element.
    #[track_caller]
    fn bce_of_logits(&self, target: &Tensor, pos_weight: Option<&Tensor>) -> Result<Tensor> {
        let t = self.target(NAME, target)?;
        let (loss, derivative) = no_grad(|| -> Result<_> {
            let tail = log_of_one_and(&self.abs()?.neg()?.exp()?)?;
            let Some(weight) = pos_weight else {
                let loss = (self.relu()? - (self * &t)? + &tail)?;
                return Ok((loss, (self.sigmoid()? - &t)?));
            };
            // With w = 1 + (pos_weight − 1) t: (1 − t) x + w log(1 + e⁻ˣ), whose derivative is (1 − t) + w (σ(x) − 1).
            let weight = (t.rescaled(NAME, Some(&weight.sub_scalar(1.0)?))? + Tensor::ones((), t.dtype())?)?;
            let negative = (1.0 - &t)?;
            let softplus = (self.neg()?.relu()? + tail)?;
            let loss = (&(&negative * self)? + (&weight * &softplus)?)?;
            Ok((loss, (&negative + (&weight * &(&self.sigmoid()? - 1.0)?)?)?))
        })?;
        self.with_derivative(&loss, &derivative)
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
