//! Activations as layers.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

macro_rules! activation { ($($(#[$doc:meta])* $Type:ident $method:ident;)*) => { $(
    $(#[$doc])*
    #[derive(Debug, Default, Module)]
    pub struct $Type {
        path: ModulePath,
    }

    impl $Type {
        /// The layer; it has no options.
        pub fn new() -> Self {
            Self::default()
        }
    }

    impl Forward for $Type {
        #[track_caller]
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let _scope = self.path.enter();
            x.$method()
        }
    }
)* } }

activation! {
    /// Zero where the input is negative.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, ReLU}};
    /// assert_eq!(ReLU::new().forward(&Tensor::from([-1.0f32, 2.0]))?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    ReLU relu;
    /// 1 / (1 + e⁻ˣ).
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Sigmoid}};
    /// assert_eq!(Sigmoid::new().forward(&Tensor::from([0.0f32]))?.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Sigmoid sigmoid;
    /// The hyperbolic tangent.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Tanh}};
    /// assert_eq!(Tanh::new().forward(&Tensor::from([0.0f32]))?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Tanh tanh;
}
