//! `gelu`: x times the share of a normal distribution that lies below x.

use super::Op;
use super::activation::activation;
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::tensor::{DType, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

activation! {
    /// x · Φ(x), or its approximation by tanh.
    Gelu { tanh: bool } "gelu", GeluGrad "gelu_grad"
}

/// The share below x: Φ(x).
#[inline(always)]
fn share<T: Real>(x: T) -> T {
    T::of(0.5) * (T::one() + (x * T::of(FRAC_1_SQRT_2)).verf())
}

/// Φ(x) + x φ(x).
#[inline(always)]
fn slope<T: Real>(x: T) -> T {
    let density = (x * x * T::of(-0.5)).vexp() * T::of(FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5);
    share(x) + x * density
}

/// √(2/π) (x + 0.044715 x³), and its derivative.
#[inline(always)]
fn inner<T: Real>(x: T) -> (T, T) {
    let (a, b) = (T::of(FRAC_2_SQRT_PI * FRAC_1_SQRT_2), T::of(0.044715));
    let square = x * x;
    (a * (x + b * square * x), a * (T::one() + T::of(3.0) * b * square))
}

#[inline(always)]
fn by_tanh<T: Real>(x: T) -> T {
    T::of(0.5) * x * (T::one() + inner(x).0.vtanh())
}

#[inline(always)]
fn by_tanh_slope<T: Real>(x: T) -> T {
    let (z, dz) = inner(x);
    let t = z.vtanh();
    T::of(0.5) * (T::one() + t) + T::of(0.5) * x * (T::one() - t * t) * dz
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Gelu(Gelu { tanh: false }) => float_tile!(inputs[0], |x| x * share(x)),
        Op::Gelu(_) => float_tile!(inputs[0], |x| by_tanh(x)),
        Op::GeluGrad(GeluGrad { tanh: false }) => float_tile!(inputs[0], |dy, x| dy * slope(x)),
        _ => float_tile!(inputs[0], |dy, x| dy * by_tanh_slope(x)),
    }
}

/// Φ, the inner function of the approximation and its derivative, as CUDA C++. The compiler computes once what occurs
/// twice.
macro_rules! share {
    ($x:literal) => {
        concat!("(T(0.5) * (1 + erf(", $x, " * T(0.7071067811865476))))")
    };
}
macro_rules! inner {
    ($x:literal) => {
        concat!("tanh(T(0.7978845608028654) * (", $x, " + T(0.044715) * (", $x, " * ", $x, ") * ", $x, "))")
    };
}
macro_rules! inner_slope {
    ($x:literal) => {
        concat!("(T(0.7978845608028654) * (1 + T(0.134145) * (", $x, " * ", $x, ")))")
    };
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Gelu(Gelu { tanh: false }) => concat!("product(a, ", share!("a"), ")"),
        Op::Gelu(_) => concat!("T(0.5) * a * (1 + ", inner!("a"), ")"),
        Op::GeluGrad(GeluGrad { tanh: false }) => {
            concat!("product(a, ", share!("b"), " + b * (exp(b * b * T(-0.5)) * T(0.3989422804014327)))")
        }
        _ => concat!(
            "product(a, T(0.5) * (1 + ",
            inner!("b"),
            ") + T(0.5) * b * (1 - ",
            inner!("b"),
            " * ",
            inner!("b"),
            ") * ",
            inner_slope!("b"),
            ")"
        ),
    }
}

impl Tensor {
    /// x · Φ(x), where Φ is the normal distribution: PyTorch's `gelu(x)`.
    ///
    /// ```
    /// let y = neurona::Tensor::from([1.0f32]).gelu()?.item::<f32>()?;
    /// assert!((y - 0.8413447).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu(&self) -> Result<Tensor> {
        Tensor::apply(Gelu { tanh: false }, &[&self.to_float()?])
    }

    /// The approximation ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))): PyTorch's `gelu(x, approximate="tanh")`.
    ///
    /// ```
    /// let y = neurona::Tensor::from([1.0f32]).gelu_tanh()?.item::<f32>()?;
    /// assert!((y - 0.841192).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        Tensor::apply(Gelu { tanh: true }, &[&self.to_float()?])
    }
}
