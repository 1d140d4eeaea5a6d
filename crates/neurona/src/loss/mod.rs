//! Losses, with PyTorch's names and defaults: as methods of a tensor, and as structs that hold their options.

mod bce;
mod bce_with_logits;
mod cross_entropy;
mod l1;
#[expect(clippy::module_inception)]
mod loss;
mod mse;
mod nll;
mod smooth_l1;

pub use bce::BCELoss;
pub use bce_with_logits::BCEWithLogitsLoss;
pub use cross_entropy::CrossEntropyLoss;
pub use l1::L1Loss;
pub use loss::Loss;
pub use mse::MSELoss;
pub use nll::NLLLoss;
pub use smooth_l1::{HuberLoss, SmoothL1Loss};

use crate::tensor::{Tensor, here, no_grad};
use crate::{Error, Reduction, Result};

impl Tensor {
    /// Losses of single elements, joined.
    #[track_caller]
    fn reduced(&self, reduction: Reduction) -> Result<Tensor> {
        match reduction {
            Reduction::None => Ok(self.clone()),
            Reduction::Mean => self.mean(),
            Reduction::Sum => self.sum(),
        }
    }

    /// The target as this input's element type. Shapes must be equal: broadcasting `[n, 1]` against `[n]`
    /// gives a loss too, but never the one that was meant.
    #[track_caller]
    fn target(&self, op: &'static str, target: &Tensor) -> Result<Tensor> {
        // A closure has lines of its own: the caller's is taken outside.
        let place = here();
        let wrong =
            |problem| Err(Error::operands(op, problem, &[("input", self.meta()), ("target", target.meta())]).at(place));
        if !self.dtype().is_float() {
            return wrong("needs a floating-point input");
        }
        if self.shape() != target.shape() {
            return wrong("input and target must have the same shape");
        }
        target.to_dtype(self.dtype())
    }

    /// Losses of single elements times a weight that broadcasts to them.
    #[track_caller]
    fn rescaled(&self, op: &'static str, weight: Option<&Tensor>) -> Result<Tensor> {
        let Some(weight) = weight else { return Ok(self.clone()) };
        if weight.shape().broadcast(self.shape()).as_ref() != Some(self.shape()) || !weight.dtype().is_float() {
            let operands = [("input", self.meta()), ("weight", weight.meta())];
            return Err(Error::operands(op, "the weight does not broadcast to the input", &operands).at(here()));
        }
        self.mul(&weight.to_dtype(self.dtype())?)
    }

    /// A loss whose derivative by this input is written out: the rule, applied to the formula, would divide
    /// zero by zero at the ends of the range.
    #[track_caller]
    fn with_derivative(&self, loss: &Tensor, derivative: &Tensor) -> Result<Tensor> {
        // x − x is 0, and the derivative of the first x is all that passes.
        let zero = self.sub(&no_grad(|| self.reshape(self.shape()))?)?;
        loss.add(&derivative.mul(&zero)?)
    }
}

/// A struct of a loss that has a reduction only.
macro_rules! loss_struct { ($(#[$doc:meta])* $Type:ident $method:ident) => {
    $(#[$doc])*
    #[derive(Clone, Copy, Debug)]
    pub struct $Type {
        /// What becomes of the losses of single elements.
        pub reduction: crate::Reduction,
    }

    impl Default for $Type {
        fn default() -> Self {
            $Type { reduction: crate::Reduction::Mean }
        }
    }

    impl $Type {
        /// Their mean.
        pub fn new() -> Self {
            Self::default()
        }

        /// The same loss, joined this way.
        pub fn reduction(mut self, reduction: crate::Reduction) -> Self {
            self.reduction = reduction;
            self
        }

        /// The loss.
        #[track_caller]
        pub fn forward(&self, input: &crate::Tensor, target: &crate::Tensor) -> crate::Result<crate::Tensor> {
            input.$method(target, self.reduction)
        }
    }
} }
use loss_struct;

#[cfg(test)]
mod tests;
