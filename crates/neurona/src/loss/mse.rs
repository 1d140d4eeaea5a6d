//! The squared error.

use super::loss_struct;
use crate::{Reduction, Result, Tensor};

loss_struct! {
    /// The squared error.
    ///
    /// ```
    /// use neurona::{Reduction, Tensor, loss::MSELoss};
    /// let loss = MSELoss::new().reduction(Reduction::Sum);
    /// assert_eq!(loss.forward(&Tensor::from([1.0f32, 4.0]), &Tensor::from([3.0f32, 4.0]))?.item::<f32>()?, 4.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    MSELoss mse_loss_with
}

impl Tensor {
    /// The mean squared error.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([1.0f32, 4.0]).mse_loss(&Tensor::from([3.0f32, 4.0]))?.item::<f32>()?, 2.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.mse_loss_with(target, Reduction::Mean)
    }

    /// The same, joined another way.
    #[track_caller]
    pub fn mse_loss_with(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let error = self.sub(&self.target("mse_loss", target)?)?;
        error.mul(&error)?.reduced(reduction)
    }
}
