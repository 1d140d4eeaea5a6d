//! `silu`, also called swish: x · sigmoid(x).

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::tensor::{DType, Tensor};

activation! {
    /// x · σ(x).
    Silu {} "silu", SiluGrad "silu_grad"
}

/// σ(x) (1 + x (1 − σ(x))).
#[inline(always)]
fn slope<T: Real>(x: T) -> T {
    let s = x.vsigmoid();
    s * (T::one() + x * (T::one() - s))
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Silu(_) => float_tile!(inputs[0], |x| x * x.vsigmoid()),
        _ => float_tile!(inputs[0], |dy, x| dy * slope(x)),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Silu(_) => "product(a, sigmoid(a))",
        _ => "product(a, sigmoid(b) * (1 + b * (1 - sigmoid(b))))",
    }
}

impl Tensor {
    /// x · sigmoid(x), also called swish.
    ///
    /// ```
    /// let y = neurona::Tensor::from([0.0f32, 1.0]).silu()?.to_vec::<f32>()?;
    /// assert!(y[0] == 0.0 && (y[1] - 0.7310586).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn silu(&self) -> Result<Tensor> {
        Tensor::apply(Silu {}, &[&self.to_float()?])
    }
}
