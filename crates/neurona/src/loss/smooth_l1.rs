//! Squared near 0 and absolute far from it: smooth-L1 and Huber.

use crate::{Reduction, Result, Tensor};

macro_rules! bent { ($(
    $(#[$doc:meta])* $Type:ident { $(#[$about:meta])* $bend:ident } $method:ident;
)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Copy, Debug)]
    pub struct $Type {
        /// What becomes of the losses of single elements.
        pub reduction: Reduction,
        $(#[$about])*
        pub $bend: f64,
    }

    impl Default for $Type {
        fn default() -> Self {
            $Type { reduction: Reduction::Mean, $bend: 1.0 }
        }
    }

    impl $Type {
        /// The mean, bent at 1.
        pub fn new() -> Self {
            Self::default()
        }

        /// The same loss, joined this way.
        pub fn reduction(mut self, reduction: Reduction) -> Self {
            self.reduction = reduction;
            self
        }

        $(#[$about])*
        pub fn $bend(mut self, $bend: f64) -> Self {
            self.$bend = $bend;
            self
        }

        /// The loss.
        #[track_caller]
        pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
            input.$method(target, self.$bend, self.reduction)
        }
    }
)* } }
bent! {
    /// The absolute error, squared over 2β below β.
    ///
    /// ```
    /// use neurona::{Tensor, loss::SmoothL1Loss};
    /// let loss = SmoothL1Loss::new().forward(&Tensor::from([1.0f32, 4.0]), &Tensor::from([3.0f32, 4.5]))?;
    /// assert_eq!(loss.item::<f32>()?, (1.5 + 0.125) / 2.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    SmoothL1Loss {
        /// Where the parabola becomes a line; 0 gives the absolute error.
        beta
    } smooth_l1_loss_with;
    /// Half the squared error, and a line of slope δ beyond δ.
    ///
    /// ```
    /// use neurona::{Tensor, loss::HuberLoss};
    /// let loss = HuberLoss::new().delta(2.0).forward(&Tensor::from([1.0f32, 4.0]), &Tensor::from([4.0f32, 5.0]))?;
    /// assert_eq!(loss.item::<f32>()?, (4.0 + 0.5) / 2.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    HuberLoss {
        /// Where the parabola becomes a line.
        delta
    } huber_loss_with;
}

impl Tensor {
    /// The mean smooth-L1 error with β = 1.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([1.0f32]).smooth_l1_loss(&Tensor::from([3.0f32]))?.item::<f32>()?, 1.5);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.smooth_l1_loss_with(target, 1.0, Reduction::Mean)
    }

    /// The same, bent and joined another way.
    #[track_caller]
    pub fn smooth_l1_loss_with(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
        if beta.is_nan() || beta < 0.0 {
            return Err(self.error("smooth_l1_loss", format!("beta must not be negative, but it is {beta}")));
        }
        let error = self.sub(&self.target("smooth_l1_loss", target)?)?;
        let far = error.abs()?;
        if beta == 0.0 {
            return far.reduced(reduction);
        }
        let near = error.mul(&error)?.mul_scalar(0.5 / beta)?;
        far.lt_scalar(beta)?.where_(&near, &far.sub_scalar(0.5 * beta)?)?.reduced(reduction)
    }

    /// The mean Huber error with δ = 1.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([1.0f32]).huber_loss(&Tensor::from([3.0f32]))?.item::<f32>()?, 1.5);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.huber_loss_with(target, 1.0, Reduction::Mean)
    }

    /// The same, bent and joined another way.
    #[track_caller]
    pub fn huber_loss_with(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(self.error("huber_loss", format!("delta must be above 0, but it is {delta}")));
        }
        let error = self.sub(&self.target("huber_loss", target)?)?;
        let far = error.abs()?;
        let near = error.mul(&error)?.mul_scalar(0.5)?;
        let line = far.sub_scalar(0.5 * delta)?.mul_scalar(delta)?;
        far.le_scalar(delta)?.where_(&near, &line)?.reduced(reduction)
    }
}
