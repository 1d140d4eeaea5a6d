//! `leaky_relu`: x, or a fraction of it where it is negative.

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::tensor::{DType, Number, Tensor};

activation! {
    /// x where it is positive, else slope · x.
    LeakyRelu {} "leaky_relu", LeakyReluGrad "leaky_relu_grad"
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::LeakyRelu(_) => float_tile!(inputs[0], |x, slope| if x > 0.0 { x } else { x * slope }),
        _ => float_tile!(inputs[0], |dy, x, slope| if x > 0.0 { dy } else { dy * slope }),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::LeakyRelu(_) => "a > 0 ? a : product(a, b)",
        _ => "b > 0 ? a : product(a, c)",
    }
}

impl Tensor {
    /// x where it is positive, else slope · x. PyTorch's default slope is 0.01.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-2.0f32, 3.0]).leaky_relu(0.5)?.to_vec::<f32>()?, [-1.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        let x = self.to_float()?;
        Tensor::apply(LeakyRelu {}, &[&x, &x.number(Number::Float(slope))])
    }
}
