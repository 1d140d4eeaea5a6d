//! Functions of one element: `neg`, `exp`, `log`, `sqrt`, `abs`.

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
            let _ = ($x, $y);
            Ok(vec![Some($rule)])
        }
        fn run(&self) -> Run {
            Run::Elementwise(Elementwise { tile })
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
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match (op, inputs[0]) {
        (Op::Neg(_), DType::I64) => tile!(|x: i64| -> i64 { x.wrapping_neg() }),
        (Op::Abs(_), DType::I64) => tile!(|x: i64| -> i64 { x.wrapping_abs() }),
        (Op::Neg(_), DType::U8) => tile!(|x: u8| -> u8 { x.wrapping_neg() }),
        (Op::Abs(_), DType::U8) => tile!(|x: u8| -> u8 { x }),
        (Op::Neg(_), t) => float_tile!(t, |x| -x),
        (Op::Exp(_), t) => float_tile!(t, |x| x.vexp()),
        (Op::Log(_), t) => float_tile!(t, |x| x.vln()),
        (Op::Sqrt(_), t) => float_tile!(t, |x| x.sqrt()),
        (Op::Abs(_), t) => float_tile!(t, |x| x.abs()),
        _ => None,
    }
}
