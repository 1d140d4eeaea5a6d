//! `softplus`: a smooth relu, log(1 + eˣ).

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::tensor::{DType, Number, Tensor};

activation! {
    /// log(1 + eˣ), or x above a threshold.
    Softplus {} "softplus", SoftplusGrad "softplus_grad"
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Softplus(_) => float_tile!(inputs[0], |x, limit| if x > limit { x } else { x.vexp().vlog1p() }),
        _ => float_tile!(inputs[0], |dy, x, limit| if x > limit { dy } else { dy * x.vsigmoid() }),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Softplus(_) => "a > b ? a : log1p(exp(a))",
        _ => "b > c ? a : product(a, sigmoid(b))",
    }
}

impl Tensor {
    /// log(1 + e^(βx)) / β, and x itself where βx is above a threshold. PyTorch's defaults are 1 and 20.
    ///
    /// ```
    /// let y = neurona::Tensor::from([0.0f32, 50.0]).softplus(1.0, 20.0)?.to_vec::<f32>()?;
    /// assert!((y[0] - 0.6931472).abs() < 1e-6 && y[1] == 50.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        if beta == 0.0 {
            return Err(self.error("softplus", "beta must not be 0"));
        }
        let x = self.to_float()?;
        let of = |x: &Tensor| Tensor::apply(Softplus {}, &[x, &x.number(Number::Float(threshold))]);
        if beta == 1.0 { of(&x) } else { of(&x.mul_scalar(beta)?)?.div_scalar(beta) }
    }
}
