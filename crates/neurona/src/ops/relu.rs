//! `relu`: max(x, 0).

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

/// max(x, 0); NaN stays NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relu;

/// dy where y > 0, else 0. It refers to the output, so that the input need not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReluGrad;

impl Operation for Relu {
    fn name(&self) -> &'static str {
        "relu"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(ReluGrad, &[&at.dy()?, &at.outputs[0]])?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

impl Operation for ReluGrad {
    fn name(&self) -> &'static str {
        "relu_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match (op, inputs[0]) {
        (Op::Relu(_), DType::I64) => tile!(|x: i64| -> i64 { x.max(0) }),
        // Written so that a NaN fails the comparison and passes through.
        (Op::Relu(_), t) => float_tile!(t, |x| if x < 0.0 { 0.0 } else { x }),
        (_, t) => float_tile!(t, |dy, y| if y > 0.0 { dy } else { 0.0 }),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Relu(_) => "a < 0 ? T(0) : a",
        _ => "b > 0 ? a : T(0)",
    }
}

impl Tensor {
    /// max(x, 0), element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.0f32, 2.0]).relu()?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn relu(&self) -> Result<Tensor> {
        Tensor::apply(Relu, &[self])
    }
}
