//! What all losses have in common.

use super::{BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss};
use crate::{Result, Tensor};

/// A loss that a [`Trainer`](crate::train::Trainer) can make small: one of those here, or any function of an output
/// and a target.
///
/// ```
/// use neurona::{Result, Tensor, loss::Loss};
/// let cubic = |output: &Tensor, target: &Tensor| -> Result<Tensor> { output.sub(target)?.abs()?.pow(3.0)?.mean() };
/// assert_eq!(cubic.loss(&Tensor::from([3.0f32]), &Tensor::from([1.0f32]))?.item::<f32>()?, 8.0);
/// # Ok::<(), neurona::Error>(())
/// ```
pub trait Loss: Send + Sync {
    /// The loss of a batch: one number.
    fn loss(&self, output: &Tensor, target: &Tensor) -> Result<Tensor>;

    /// Whether its targets are classes even where they are given as probabilities, so that an accuracy makes sense.
    fn classifies(&self) -> bool {
        false
    }
}

impl<F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync> Loss for F {
    fn loss(&self, output: &Tensor, target: &Tensor) -> Result<Tensor> {
        self(output, target)
    }
}

macro_rules! losses { ($($Type:ident $classifies:literal),*) => { $(
    impl Loss for $Type {
        fn loss(&self, output: &Tensor, target: &Tensor) -> Result<Tensor> {
            self.forward(output, target)
        }
        fn classifies(&self) -> bool {
            $classifies
        }
    }
)* } }
losses!(CrossEntropyLoss true, NLLLoss true, MSELoss false, L1Loss false, SmoothL1Loss false, HuberLoss false);
losses!(BCELoss false, BCEWithLogitsLoss false);
