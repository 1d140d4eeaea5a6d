//! `sigmoid`: the logistic function 1 / (1 + e⁻ˣ).

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::cpu::math::Real;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

/// The logistic function 1 / (1 + e⁻ˣ).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sigmoid;

impl Operation for Sigmoid {
    fn name(&self) -> &'static str {
        "sigmoid"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let y = &at.outputs[0];
        // y (1 − y)
        Ok(vec![Some(at.dy()?.mul(y)?.mul(&(1.0 - y)?)?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(_op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    float_tile!(inputs[0], |x| x.vsigmoid())
}

fn cuda(_op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    "sigmoid(a)"
}

impl Tensor {
    /// The logistic function 1 / (1 + e⁻ˣ), element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([0.0f32]).sigmoid()?.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn sigmoid(&self) -> Result<Tensor> {
        Tensor::apply(Sigmoid, &[&self.to_float()?])
    }
}
