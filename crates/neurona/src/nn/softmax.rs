//! Softmax and its logarithm as layers.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

macro_rules! along { ($($(#[$doc:meta])* $Type:ident $method:ident;)*) => { $(
    $(#[$doc])*
    #[derive(Debug, Module)]
    pub struct $Type {
        /// The dimension, counted from the end when negative.
        pub dim: isize,
        path: ModulePath,
    }

    impl $Type {
        /// Along this dimension.
        pub fn new(dim: isize) -> Self {
            $Type { dim, path: ModulePath::default() }
        }
    }

    impl Forward for $Type {
        #[track_caller]
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let _scope = self.path.enter();
            x.$method(self.dim)
        }
    }
)* } }

along! {
    /// Exponentials over their sum, along a dimension.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Softmax}};
    /// assert_eq!(Softmax::new(-1).forward(&Tensor::from([[3.0f32, 3.0]]))?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Softmax softmax;
    /// The logarithm of [`Softmax`], without its loss of precision.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, LogSoftmax}};
    /// let y = LogSoftmax::new(-1).forward(&Tensor::from([[0.0f32, 1000.0]]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1000.0, 0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    LogSoftmax log_softmax;
}
