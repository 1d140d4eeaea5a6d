//! Activations as layers.

use super::{Forward, Module, ModulePath};
use crate::{Result, Tensor};

macro_rules! activation { ($(
    $(#[$doc:meta])*
    $Type:ident |$x:ident $(, $self:ident)?| $y:expr $(, { $($(#[$about:meta])* $option:ident: $t:ty = $default:expr),* })?;
)*) => { $(
    $(#[$doc])*
    #[derive(Debug, Module)]
    pub struct $Type {
        $($($(#[$about])* pub $option: $t,)*)?
        path: ModulePath,
    }

    impl Default for $Type {
        fn default() -> Self {
            $Type { $($($option: $default,)*)? path: ModulePath::default() }
        }
    }

    impl $Type {
        /// The layer with PyTorch's options.
        pub fn new() -> Self {
            Self::default()
        }

        $($(
            $(#[$about])*
            pub fn $option(mut self, $option: $t) -> Self {
                self.$option = $option;
                self
            }
        )*)?
    }

    impl Forward for $Type {
        #[track_caller]
        fn forward(&self, $x: &Tensor) -> Result<Tensor> {
            let _scope = self.path.enter();
            $(let $self = self;)?
            $y
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
    ReLU |x| x.relu();
    /// The input, limited to the range from 0 to 6.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, ReLU6}};
    /// assert_eq!(ReLU6::new().forward(&Tensor::from([-1.0f32, 9.0]))?.to_vec::<f32>()?, [0.0, 6.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    ReLU6 |x| x.relu6();
    /// 1 / (1 + e⁻ˣ).
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Sigmoid}};
    /// assert_eq!(Sigmoid::new().forward(&Tensor::from([0.0f32]))?.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Sigmoid |x| x.sigmoid();
    /// The hyperbolic tangent.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Tanh}};
    /// assert_eq!(Tanh::new().forward(&Tensor::from([0.0f32]))?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Tanh |x| x.tanh();
    /// x where it is positive, else a small slope times x.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, LeakyReLU}};
    /// let y = LeakyReLU::new().slope(0.1).forward(&Tensor::from([-1.0f32, 2.0]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-0.1, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    LeakyReLU |x, layer| x.leaky_relu(layer.slope), {
        /// The factor of negative elements.
        slope: f64 = 0.01
    };
    /// x where it is positive, else α (eˣ − 1).
    ///
    /// ```
    /// use neurona::{Tensor, nn::{ELU, Forward}};
    /// let y = ELU::new().alpha(0.5).forward(&Tensor::from([-100.0f32, 2.0]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    ELU |x, layer| x.elu(layer.alpha), {
        /// How far below 0 it goes.
        alpha: f64 = 1.0
    };
    /// x times the share of a normal distribution that lies below x.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, GELU}};
    /// let y = GELU::new().tanh(true).forward(&Tensor::from([1.0f32]))?.item::<f32>()?;
    /// assert!((y - 0.841192).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    GELU |x, layer| if layer.tanh { x.gelu_tanh() } else { x.gelu() }, {
        /// Whether it is approximated by tanh.
        tanh: bool = false
    };
    /// x · sigmoid(x), also called swish.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, SiLU}};
    /// let y = SiLU::new().forward(&Tensor::from([1.0f32]))?.item::<f32>()?;
    /// assert!((y - 0.7310586).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    SiLU |x| x.silu();
    /// x times [`Hardsigmoid`].
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Hardswish}};
    /// assert_eq!(Hardswish::new().forward(&Tensor::from([-4.0f32, 3.0]))?.to_vec::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Hardswish |x| x.hardswish();
    /// (x + 3) / 6, limited to the range from 0 to 1.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Hardsigmoid}};
    /// assert_eq!(Hardsigmoid::new().forward(&Tensor::from([-4.0f32, 0.0]))?.to_vec::<f32>()?, [0.0, 0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Hardsigmoid |x| x.hardsigmoid();
    /// log(1 + e^(βx)) / β: a smooth relu.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Forward, Softplus}};
    /// let y = Softplus::new().beta(2.0).forward(&Tensor::from([0.0f32]))?.item::<f32>()?;
    /// assert!((y - 0.3465736).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Softplus |x, layer| x.softplus(layer.beta, layer.threshold), {
        /// How sharp the bend is.
        beta: f64 = 1.0,
        /// Where βx is above it, x is taken as it is.
        threshold: f64 = 20.0
    };
}
