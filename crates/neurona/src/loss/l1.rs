//! The absolute error.

use super::loss_struct;
use crate::{Reduction, Result, Tensor};

loss_struct! {
    /// The absolute error.
    ///
    /// ```
    /// use neurona::{Tensor, loss::L1Loss};
    /// assert_eq!(L1Loss::new().forward(&Tensor::from([1.0f32, 4.0]), &Tensor::from([3.0f32, 4.0]))?.item::<f32>()?, 1.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    L1Loss l1_loss_with
}

impl Tensor {
    /// The mean absolute error.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([1.0f32, 4.0]).l1_loss(&Tensor::from([3.0f32, 4.0]))?.item::<f32>()?, 1.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.l1_loss_with(target, Reduction::Mean)
    }

    /// The same, joined another way.
    #[track_caller]
    pub fn l1_loss_with(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        self.sub(&self.target("l1_loss", target)?)?.abs()?.reduced(reduction)
    }
}
