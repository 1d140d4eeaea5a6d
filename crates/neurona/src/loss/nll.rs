//! Negative log-likelihood of class numbers.

use crate::{CrossEntropyOptions, Reduction, Result, Tensor};

/// Negative log-likelihood: minus the log-probability of each row's class. Use it after `log_softmax`;
/// [`CrossEntropyLoss`](super::CrossEntropyLoss) does both in one.
///
/// ```
/// use neurona::{Tensor, loss::NLLLoss};
/// let loss = NLLLoss::new().forward(&Tensor::from([[-1.0f32, -2.0]]), &Tensor::from([1i64]))?;
/// assert_eq!(loss.item::<f32>()?, 2.0);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NLLLoss {
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
    /// Rows with this target count for nothing.
    pub ignore_index: i64,
    /// A weight for each class.
    pub weight: Option<Tensor>,
}

impl Default for NLLLoss {
    fn default() -> Self {
        NLLLoss { reduction: Reduction::Mean, ignore_index: -100, weight: None }
    }
}

impl NLLLoss {
    /// The mean over the rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same loss, joined this way.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The same loss, for which rows with this target count for nothing.
    pub fn ignore_index(mut self, ignore_index: i64) -> Self {
        self.ignore_index = ignore_index;
        self
    }

    /// The same loss with a weight for each class; the mean is divided by the weights of the rows' classes.
    ///
    /// ```
    /// use neurona::{Tensor, loss::NLLLoss};
    /// let loss = NLLLoss::new().weight(&Tensor::from([1.0f32, 3.0]));
    /// let loss = loss.forward(&Tensor::from([[-1.0f32, -2.0], [-1.0, -2.0]]), &Tensor::from([0i64, 1]))?;
    /// assert_eq!(loss.item::<f32>()?, 1.75);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn weight(mut self, weight: &Tensor) -> Self {
        self.weight = Some(weight.clone());
        self
    }

    /// The loss. A target that is no class is an error, or gives NaN where looking at it would mean to wait for it.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let NLLLoss { reduction, ignore_index, ref weight } = *self;
        let options = CrossEntropyOptions { reduction, ignore_index, label_smoothing: 0.0 };
        input.nll_with("nll_loss", target, weight.as_ref(), options)
    }
}

impl Tensor {
    /// Mean negative log-likelihood of class numbers (i64 `[n]`) under log-probabilities `[n, classes]`.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([[-1.0f32, -2.0]]).nll_loss(&Tensor::from([0i64]))?.item::<f32>()?, 1.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor) -> Result<Tensor> {
        NLLLoss::new().forward(self, target)
    }
}
