//! `hardswish` and `hardsigmoid`: pieces of straight lines and parabolas instead of exponentials.

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::tensor::{DType, Tensor};

activation! {
    /// x · hardsigmoid(x).
    Hardswish {} "hardswish", HardswishGrad "hardswish_grad"
}

#[inline(always)]
fn value<T: Real>(x: T) -> T {
    let (zero, three, six) = (T::zero(), T::of(3.0), T::of(6.0));
    let raised = x + three;
    let raised = if raised < zero { zero } else { raised };
    x * (if raised > six { six } else { raised }) / six
}

#[inline(always)]
fn slope<T: Real>(x: T) -> T {
    let three = T::of(3.0);
    let inside = if x < three { x / three + T::of(0.5) } else { T::one() };
    if x <= -three { T::zero() } else { inside }
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Hardswish(_) => float_tile!(inputs[0], |x| value(x)),
        _ => float_tile!(inputs[0], |dy, x| dy * slope(x)),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Hardswish(_) => "a * (a + 3 < 0 ? T(0) : a + 3 > 6 ? T(6) : a + 3) / 6",
        _ => "product(a, b <= -3 ? T(0) : b < 3 ? b / 3 + T(0.5) : T(1))",
    }
}

impl Tensor {
    /// x · [`hardsigmoid`](Tensor::hardsigmoid)(x).
    ///
    /// ```
    /// let y = neurona::Tensor::from([-4.0f32, 0.0, 3.0]).hardswish()?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn hardswish(&self) -> Result<Tensor> {
        Tensor::apply(Hardswish {}, &[&self.to_float()?])
    }

    /// (x + 3) / 6, limited to the range from 0 to 1.
    ///
    /// ```
    /// let y = neurona::Tensor::from([-4.0f32, 0.0, 3.0]).hardsigmoid()?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        self.to_float()?.add_scalar(3.0)?.clamp(0.0, 6.0)?.div_scalar(6.0)
    }
}
