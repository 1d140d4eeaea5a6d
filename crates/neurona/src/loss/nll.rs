//! Negative log-likelihood of class numbers.

use crate::tensor::here;
use crate::{DType, Error, Reduction, Result, Tensor};

/// Negative log-likelihood: minus the log-probability of each row's class. Use it after `log_softmax`;
/// [`CrossEntropyLoss`](super::CrossEntropyLoss) does both in one.
///
/// ```
/// use neurona::{Tensor, loss::NLLLoss};
/// let loss = NLLLoss::new().forward(&Tensor::from([[-1.0f32, -2.0]]), &Tensor::from([1i64]))?;
/// assert_eq!(loss.item::<f32>()?, 2.0);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NLLLoss {
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
    /// Rows with this target count for nothing.
    pub ignore_index: i64,
}

impl Default for NLLLoss {
    fn default() -> Self {
        NLLLoss { reduction: Reduction::Mean, ignore_index: -100 }
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

    /// The loss. A target that is no class gives NaN.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let place = here();
        let wrong = |problem| {
            let operands = [("input", input.meta()), ("target", target.meta())];
            Err(Error::operands("nll_loss", problem, &operands).at(place.clone()))
        };
        if input.rank() != 2 || target.rank() != 1 || input.shape()[0] != target.shape()[0] {
            return wrong("needs log-probabilities [n, classes] and one target a row");
        }
        if !input.dtype().is_float() || target.dtype() != DType::I64 {
            return wrong("needs floating-point log-probabilities and i64 targets");
        }
        let (classes, zero) = (input.shape()[1], Tensor::zeros((), input.dtype())?);
        let chosen = target.unsqueeze(1)?.eq(&Tensor::arange(classes))?;
        let counted = target.ne_scalar(self.ignore_index)?;
        let rows = chosen.where_(input, &zero)?.sum_dims(&[1], false)?.neg()?;
        let valid = target.ge_scalar(0)?.where_(&target.lt_scalar(classes)?, &Tensor::from(false))?;
        let rows = valid.where_(&rows, &Tensor::full((), f64::NAN, input.dtype())?)?;
        let rows = counted.where_(&rows, &zero)?;
        match self.reduction {
            Reduction::None => Ok(rows),
            Reduction::Sum => rows.sum(),
            Reduction::Mean => rows.sum()?.div(&counted.sum()?.to_dtype(input.dtype())?),
        }
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
