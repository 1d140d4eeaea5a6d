//! Functions of one element: `neg`, `exp`, `log`, `sqrt`, `abs` and their like.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile, tile};
use crate::cpu::math::Real;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

macro_rules! unary { ($(
    $(#[$doc:meta])* $Op:ident $method:ident ($whole:literal) |$x:ident, $y:ident, $dy:ident| $rule:expr;
)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct $Op;

    impl Operation for $Op {
        fn name(&self) -> &'static str {
            stringify!($method)
        }
        fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
            one(inputs[0].clone())
        }
        fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
            let ($x, $y, $dy) = (&at.inputs[0], &at.outputs[0], &at.dy()?);
            let _ = ($x, $y, $dy);
            Ok(vec![Some($rule)])
        }
        fn run(&self) -> Run {
            Run::Elementwise(Elementwise { tile, cuda })
        }
    }

    impl Tensor {
        $(#[$doc])*
        #[track_caller]
        pub fn $method(&self) -> Result<Tensor> {
            // Whole numbers become f32 where the result has a fraction, as in PyTorch.
            let x = if $whole { self.clone() } else { self.to_float()? };
            Tensor::apply($Op, &[&x])
        }
    }
)* } }

unary! {
    /// −x.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1.0f32, -2.0]).neg()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Neg neg (true) |x, y, dy| dy.neg()?;
    /// eˣ.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32]).exp()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Exp exp (false) |x, y, dy| dy.mul(y)?;
    /// The natural logarithm.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1.0f32]).log()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Log log (false) |x, y, dy| dy.div(x)?;
    /// The square root.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([9.0f32]).sqrt()?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Sqrt sqrt (false) |x, y, dy| dy.div(&y.mul_scalar(2)?)?;
    /// The absolute value.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-9i64, 2]).abs()?.to_vec::<i64>()?, [9, 2]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Abs abs (true) |x, y, dy| {
        // The sign of x, 0 at 0: PyTorch's choice of subgradient.
        let sign = x.gt_scalar(0)?.to_dtype(x.dtype())?.sub(&x.lt_scalar(0)?.to_dtype(x.dtype())?)?;
        dy.mul(&sign)?
    };
    /// x².
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-3.0f32, 2.0]).square()?.to_vec::<f32>()?, [9.0, 4.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Square square (true) |x, y, dy| dy.mul(&x.mul_scalar(2)?)?;
    /// 1 / x.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([4.0f32, -0.5]).reciprocal()?.to_vec::<f32>()?, [0.25, -2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Reciprocal reciprocal (false) |x, y, dy| dy.mul(&y.mul(y)?.neg()?)?;
    /// 1 / √x.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([4.0f32, 0.25]).rsqrt()?.to_vec::<f32>()?, [0.5, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Rsqrt rsqrt (false) |x, y, dy| dy.mul(&y.mul(y)?.mul(y)?.mul_scalar(-0.5)?)?;
    /// The sine.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32]).sin()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Sin sin (false) |x, y, dy| dy.mul(&x.cos()?)?;
    /// The cosine.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32]).cos()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Cos cos (false) |x, y, dy| dy.mul(&x.sin()?)?.neg()?;
    /// ln(1 + x), exact also near 0.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1e-10f32]).log1p()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Log1p log1p (false) |x, y, dy| dy.div(&x.add_scalar(1)?)?;
    /// eˣ − 1, exact also near 0.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1e-10f32]).expm1()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Expm1 expm1 (false) |x, y, dy| dy.mul(&y.add_scalar(1)?)?;
    /// The error function: how much of a normal distribution lies within x√2 deviations.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32, 9.0]).erf()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Erf erf (false) |x, y, dy| dy.mul(&x.mul(x)?.neg()?.exp()?.mul_scalar(std::f64::consts::FRAC_2_SQRT_PI)?)?;
    /// −1, 0 or 1, as x is below, at or above 0.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-9i64, 0, 2]).sign()?.to_vec::<i64>()?, [-1, 0, 1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Sign sign (true) |x, y, dy| Tensor::zeros_like(x)?;
    /// The next whole number below.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.5f32, 1.5]).floor()?.to_vec::<f32>()?, [-2.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Floor floor (true) |x, y, dy| Tensor::zeros_like(x)?;
    /// The next whole number above.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.5f32, 1.5]).ceil()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Ceil ceil (true) |x, y, dy| Tensor::zeros_like(x)?;
    /// The nearest whole number, of two the even one.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.5f32, 1.5, -0.7]).round()?.to_vec::<f32>()?, [0.0, 2.0, -1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    Round round (true) |x, y, dy| Tensor::zeros_like(x)?;
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match (op, inputs[0]) {
        (Op::Neg(_), DType::I64) => tile!(|x: i64| -> i64 { x.wrapping_neg() }),
        (Op::Abs(_), DType::I64) => tile!(|x: i64| -> i64 { x.wrapping_abs() }),
        (Op::Neg(_), DType::U8) => tile!(|x: u8| -> u8 { x.wrapping_neg() }),
        (Op::Abs(_), DType::U8) => tile!(|x: u8| -> u8 { x }),
        (Op::Square(_), DType::I64) => tile!(|x: i64| -> i64 { x.wrapping_mul(x) }),
        (Op::Square(_), DType::U8) => tile!(|x: u8| -> u8 { x.wrapping_mul(x) }),
        (Op::Sign(_), DType::I64) => tile!(|x: i64| -> i64 { x.signum() }),
        (Op::Sign(_), DType::U8) => tile!(|x: u8| -> u8 { (x > 0) as u8 }),
        (Op::Floor(_) | Op::Ceil(_) | Op::Round(_), DType::I64) => tile!(|x: i64| -> i64 { x }),
        (Op::Floor(_) | Op::Ceil(_) | Op::Round(_), DType::U8) => tile!(|x: u8| -> u8 { x }),
        (Op::Neg(_), t) => float_tile!(t, |x| -x),
        (Op::Exp(_), t) => float_tile!(t, |x| x.vexp()),
        (Op::Log(_), t) => float_tile!(t, |x| x.vln()),
        (Op::Sqrt(_), t) => float_tile!(t, |x| x.sqrt()),
        (Op::Abs(_), t) => float_tile!(t, |x| x.abs()),
        (Op::Square(_), t) => float_tile!(t, |x| x * x),
        (Op::Reciprocal(_), t) => float_tile!(t, |x| 1.0 / x),
        (Op::Rsqrt(_), t) => float_tile!(t, |x| 1.0 / x.sqrt()),
        (Op::Sin(_), t) => float_tile!(t, |x| x.sin()),
        (Op::Cos(_), t) => float_tile!(t, |x| x.cos()),
        (Op::Log1p(_), t) => float_tile!(t, |x| x.vlog1p()),
        (Op::Expm1(_), t) => float_tile!(t, |x| x.vexpm1()),
        (Op::Erf(_), t) => float_tile!(t, |x| x.verf()),
        (Op::Sign(_), t) => float_tile!(t, |x| if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            0.0
        }),
        (Op::Floor(_), t) => float_tile!(t, |x| x.floor()),
        (Op::Ceil(_), t) => float_tile!(t, |x| x.ceil()),
        (Op::Round(_), t) => float_tile!(t, |x| x.round_ties_even()),
        _ => None,
    }
}

fn cuda(op: &Op, inputs: &[DType], _output: DType) -> &'static str {
    match (op, inputs[0].is_float()) {
        // Through unsigned numbers, which may wrap around in C++.
        (Op::Neg(_), false) => "(T)(0 - (u64)a)",
        (Op::Abs(_), false) => "a < 0 ? (T)(0 - (u64)a) : a",
        (Op::Floor(_) | Op::Ceil(_) | Op::Round(_), false) => "a",
        (Op::Neg(_), _) => "-a",
        (Op::Exp(_), _) => "exp(a)",
        (Op::Log(_), _) => "log(a)",
        (Op::Sqrt(_), _) => "sqrt(a)",
        (Op::Abs(_), _) => "fabs(a)",
        (Op::Square(_), _) => "product(a, a)",
        (Op::Reciprocal(_), _) => "1 / a",
        (Op::Rsqrt(_), _) => "1 / sqrt(a)",
        (Op::Sin(_), _) => "sin(a)",
        (Op::Cos(_), _) => "cos(a)",
        (Op::Log1p(_), _) => "log1p(a)",
        (Op::Expm1(_), _) => "expm1(a)",
        (Op::Erf(_), _) => "erf(a)",
        (Op::Floor(_), _) => "floor(a)",
        (Op::Ceil(_), _) => "ceil(a)",
        (Op::Round(_), _) => "rint(a)",
        // The sign; of NaN 0.
        _ => "T((a > 0) - (a < 0))",
    }
}
