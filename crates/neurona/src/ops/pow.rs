//! `pow`: powers with a plain number as the exponent.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor};

/// Operands: x and the exponent, of one type. The exponent is an operand so that plans do not depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pow;

impl Operation for Pow {
    fn name(&self) -> &'static str {
        "pow"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, e) = (&at.inputs[0], &at.inputs[1]);
        let slope = Tensor::apply(Pow, &[x, &e.sub_scalar(1)?])?.mul(e)?;
        // x⁰ is constant, also at 0, where the rule would give 0 · ∞.
        let slope = e.eq_scalar(0)?.where_(&x.number(Number::Int(0)), &slope)?;
        Ok(vec![Some(at.dy()?.mul(&slope)?), None])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(_op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match inputs[0] {
        DType::I64 => tile!(|x: i64, e: i64| -> i64 { x.wrapping_pow(e as u32) }),
        DType::U8 => tile!(|x: u8, e: u8| -> u8 { x.wrapping_pow(e as u32) }),
        // Squares are by far the most common.
        t => float_tile!(t, |x, e| if e == 2.0 { x * x } else { x.powf(e) }),
    }
}

fn cuda(_op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    "power(a, b)"
}

impl Tensor {
    /// Each element to the power of a plain number, which is an input of the plan.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::from([3.0f32, -2.0]).pow(2)?.to_vec::<f32>()?, [9.0, 4.0]);
    /// assert_eq!(Tensor::from([4.0f32]).pow(-0.5)?.to_vec::<f32>()?, [0.5]);
    /// assert!(Tensor::from([4i64]).pow(-1).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn pow(&self, exponent: impl Into<Number>) -> Result<Tensor> {
        let exponent = exponent.into();
        let (x, e) = self.promoted(&self.number(exponent), Op::from(Pow))?;
        if !x.dtype().is_float() && exponent.as_i64() < 0 {
            return Err(self.error("pow", "whole numbers have no negative powers; use a floating-point tensor"));
        }
        Tensor::apply(Pow, &[&x, &e])
    }
}
