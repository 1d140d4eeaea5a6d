//! Whether numbers are numbers.

use crate::tensor::no_grad;
use crate::{DType, Result, Tensor};

/// Whether all elements of all these tensors are finite, as a tensor of one truth value: nothing is computed before it
/// is read.
pub(crate) fn all_finite<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Tensor> {
    no_grad(|| {
        let mut total: Option<Tensor> = None;
        for tensor in tensors {
            // Zero times anything is zero, unless it is infinite or no number.
            let one = tensor.mul_scalar(0.0)?.sum()?.to_dtype(DType::F32)?;
            total = Some(match total {
                Some(total) => total.add(&one)?,
                None => one,
            });
        }
        match total {
            Some(total) => total.eq_scalar(0.0),
            None => Ok(Tensor::scalar(true)),
        }
    })
}
