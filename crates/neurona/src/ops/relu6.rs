//! `relu6`: x limited to the range from 0 to 6.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, float_tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

/// min(max(x, 0), 6); NaN stays NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relu6;

/// dy where 0 < y < 6, else 0. It refers to the output, so that the input need not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relu6Grad;

impl Operation for Relu6 {
    fn name(&self) -> &'static str {
        "relu6"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::apply(Relu6Grad, &[&at.dy()?, &at.outputs[0]])?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

impl Operation for Relu6Grad {
    fn name(&self) -> &'static str {
        "relu6_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    match op {
        Op::Relu6(_) => float_tile!(inputs[0], |x| {
            let raised = if x < 0.0 { 0.0 } else { x };
            if raised > 6.0 { 6.0 } else { raised }
        }),
        // A NaN fails both comparisons and gets the gradient, as in PyTorch.
        _ => float_tile!(inputs[0], |dy, y| if y <= 0.0 || y >= 6.0 { 0.0 } else { dy }),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Relu6(_) => "a < 0 ? T(0) : a > 6 ? T(6) : a",
        _ => "b <= 0 || b >= 6 ? T(0) : a",
    }
}

impl Tensor {
    /// x limited to the range from 0 to 6, element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.0f32, 2.0, 9.0]).relu6()?.to_vec::<f32>()?, [0.0, 2.0, 6.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        Tensor::apply(Relu6, &[&self.to_float()?])
    }
}
