//! `elu`: x, or a bounded exponential where it is negative.

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::tensor::{DType, Number, Tensor};

activation! {
    /// x where it is positive, else α (eˣ − 1).
    Elu {} "elu", EluGrad "elu_grad"
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Elu(_) => float_tile!(inputs[0], |x, alpha| if x > 0.0 { x } else { alpha * x.vexpm1() }),
        _ => float_tile!(inputs[0], |dy, x, alpha| if x > 0.0 { dy } else { dy * (alpha * x.vexp()) }),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Elu(_) => "a > 0 ? a : product(b, expm1(a))",
        _ => "b > 0 ? a : product(a, product(c, exp(b)))",
    }
}

impl Tensor {
    /// x where it is positive, else α (eˣ − 1). PyTorch's default α is 1.
    ///
    /// ```
    /// let y = neurona::Tensor::from([-100.0f32, 3.0]).elu(2.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [-2.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        let x = self.to_float()?;
        Tensor::apply(Elu {}, &[&x, &x.number(Number::Float(alpha))])
    }
}
