//! Cross-entropy of logits with class numbers or probabilities.

use crate::{CrossEntropyOptions, Reduction, Result, Tensor};

/// Cross-entropy of logits `[n, classes]` with class numbers (i64 `[n]`) or probabilities `[n, classes]`.
///
/// ```
/// use neurona::{Tensor, loss::CrossEntropyLoss};
/// let loss = CrossEntropyLoss::new().label_smoothing(0.1);
/// let loss = loss.forward(&Tensor::from([[0.0f32, 0.0]]), &Tensor::from([1i64]))?;
/// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CrossEntropyLoss {
    /// How targets are read and losses joined.
    pub options: CrossEntropyOptions,
    /// A weight for each class.
    pub weight: Option<Tensor>,
}

impl CrossEntropyLoss {
    /// The mean over the rows, no smoothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same loss, joined this way.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.options.reduction = reduction;
        self
    }

    /// The same loss with this share of the target spread evenly over all classes.
    pub fn label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.options.label_smoothing = label_smoothing;
        self
    }

    /// The same loss, for which rows with this target count for nothing.
    pub fn ignore_index(mut self, ignore_index: i64) -> Self {
        self.options.ignore_index = ignore_index;
        self
    }

    /// The same loss with a weight for each class.
    ///
    /// ```
    /// use neurona::{Tensor, loss::CrossEntropyLoss};
    /// let loss = CrossEntropyLoss::new().weight(&Tensor::from([1.0f32, 0.0]));
    /// let loss = loss.forward(&Tensor::from([[0.0f32, 0.0], [0.0, 9.0]]), &Tensor::from([0i64, 1]))?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn weight(mut self, weight: &Tensor) -> Self {
        self.weight = Some(weight.clone());
        self
    }

    /// The loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Some(weight) => input.cross_entropy_weighted(target, weight, self.options),
            None => input.cross_entropy_with(target, self.options),
        }
    }
}
