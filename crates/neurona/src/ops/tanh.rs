//! `tanh`: the hyperbolic tangent.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

/// The hyperbolic tangent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tanh;

impl Operation for Tanh {
    fn name(&self) -> &'static str {
        "tanh"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let y = &at.outputs[0];
        // 1 − y²
        Ok(vec![Some(at.dy()?.mul(&(1.0 - &y.mul(y)?)?)?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(_op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    float_tile!(inputs[0], |x| x.vtanh())
}

fn cuda(_op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    "tanh(a)"
}

impl Tensor {
    /// The hyperbolic tangent, element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32]).tanh()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn tanh(&self) -> Result<Tensor> {
        Tensor::apply(Tanh, &[&self.to_float()?])
    }
}
