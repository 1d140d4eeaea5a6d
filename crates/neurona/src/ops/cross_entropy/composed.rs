//! Cross-entropy with weights of classes or with probabilities as targets, and negative log-likelihood:
//! compositions of other ops. The plain case has a kernel of its own.

use super::{CrossEntropyOptions, Reduction};
use crate::tensor::{DType, Tensor, here};
use crate::{Error, Result};

impl Tensor {
    /// Log-probabilities against class numbers: minus the weighted log-probability of each row's class, smoothed.
    /// A target that is no class is an error where it is there already, in host memory, and gives NaN elsewhere.
    #[track_caller]
    pub(crate) fn nll_with(
        &self,
        op: &'static str,
        target: &Tensor,
        weight: Option<&Tensor>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor> {
        let place = here();
        let wrong = |problem| {
            let operands = [("input", self.meta()), ("target", target.meta())];
            Err(Error::operands(op, problem, &operands).at(place))
        };
        if self.rank() != 2 || target.rank() != 1 || self.shape()[0] != target.shape()[0] {
            return wrong("needs an input [n, classes] and one target a row");
        }
        if !self.dtype().is_float() || target.dtype() != DType::I64 {
            return wrong("needs a floating-point input and i64 targets");
        }
        self.check_classes(op, target, &options)?;
        let (classes, zero) = (self.shape()[1], Tensor::zeros((), self.dtype())?);
        let weight = weight.map(|w| self.weight_of_classes(op, w)).transpose()?;
        let chosen = target.unsqueeze(1)?.eq(&Tensor::arange(classes)?.to(self.device())?)?;
        // The sum over a row in which all but one element are 0.
        let pick = |from: &Tensor| chosen.where_(from, &zero)?.sum_dims(&[1], false);
        let own = weight.as_ref().map(pick).transpose()?;
        let weighted = |x: Tensor, w: Option<&Tensor>| w.map_or(Ok(x.clone()), |w| x.mul(w));
        let mut rows = weighted(pick(self)?.neg()?, own.as_ref())?;
        let smooth = options.label_smoothing;
        if smooth > 0.0 {
            let even = weighted(self.clone(), weight.as_ref())?.sum_dims(&[1], false)?;
            rows = rows.mul_scalar(1.0 - smooth)?.sub(&even.mul_scalar(smooth / classes as f64)?)?;
        }
        let valid = target.ge_scalar(0)?.where_(&target.lt_scalar(classes)?, &Tensor::from(false))?;
        let rows = valid.where_(&rows, &Tensor::full((), f64::NAN, self.dtype())?)?;
        let counted = target.ne_scalar(options.ignore_index)?;
        let rows = counted.where_(&rows, &zero)?;
        match options.reduction {
            Reduction::None => Ok(rows),
            Reduction::Sum => rows.sum(),
            Reduction::Mean => {
                let total = match &own {
                    Some(own) => counted.where_(own, &zero)?.sum()?,
                    None => counted.sum()?.to_dtype(self.dtype())?,
                };
                rows.sum()?.div(&total)
            }
        }
    }

    /// Log-probabilities against probabilities, weighted and smoothed. The mean is over the rows.
    #[track_caller]
    pub(super) fn soft_nll_with(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor> {
        let classes = self.shape()[1];
        let mut target = target.to_dtype(self.dtype())?;
        if options.label_smoothing > 0.0 {
            let even = options.label_smoothing / classes as f64;
            target = target.mul_scalar(1.0 - options.label_smoothing)?.add_scalar(even)?;
        }
        if let Some(weight) = weight {
            target = target.mul(&self.weight_of_classes("cross_entropy", weight)?)?;
        }
        let rows = self.mul(&target)?.sum_dims(&[1], false)?.neg()?;
        match options.reduction {
            Reduction::None => Ok(rows),
            Reduction::Sum => rows.sum(),
            Reduction::Mean => rows.mean(),
        }
    }

    #[track_caller]
    fn weight_of_classes(&self, op: &'static str, weight: &Tensor) -> Result<Tensor> {
        if weight.shape()[..] != self.shape()[1..] || !weight.dtype().is_float() {
            let operands = [("input", self.meta()), ("weight", weight.meta())];
            return Err(Error::operands(op, "needs one floating-point weight a class", &operands).at(here()));
        }
        weight.to_dtype(self.dtype())?.to(self.device())
    }
}
