//! ONNX's operators by the tensor's own ops.

mod elementwise;
mod layers;
mod movement;
mod reductions;
mod shapes;

pub(super) use layers::batch_norm;

use super::attributes::Options;
use crate::graph::node::Source;
use crate::tensor::Number;
use crate::{Error, Result, Tensor};

/// What an operator is applied to.
pub(in super::super) struct Call<'a> {
    pub inputs: &'a [Option<Tensor>],
    pub training: bool,
}

/// An operator with its options.
pub(in super::super) type Run = Box<dyn Fn(&Call<'_>) -> Result<Vec<Tensor>> + Send + Sync>;

/// An operator that can be applied.
pub(super) struct Built {
    pub run: Run,
    /// How many results it has here; ONNX may know more.
    pub outputs: usize,
    /// Whether it is computed at once when its operands are constants.
    pub cheap: bool,
}

/// Whole numbers beyond this many are no sizes.
const MOST_NUMBERS: usize = 1 << 16;

impl Call<'_> {
    pub fn x(&self, operand: usize) -> Result<&Tensor> {
        self.option(operand).ok_or_else(|| Error::op("onnx", format!("operand {operand} is missing")))
    }

    pub fn option(&self, operand: usize) -> Option<&Tensor> {
        self.inputs.get(operand).and_then(Option::as_ref)
    }

    /// An operand that says sizes or places.
    pub fn ints(&self, operand: usize) -> Result<Vec<i64>> {
        let x = self.x(operand)?;
        if x.numel() > MOST_NUMBERS || x.rank() > 1 {
            return Err(x.error("onnx", format!("operand {operand} must be a line of few whole numbers")));
        }
        x.to_vec::<i64>()
    }

    /// An operand that is one number, in the kind of the first operand.
    pub fn number(&self, operand: usize) -> Result<Number> {
        let x = self.x(operand)?;
        match self.x(0)?.dtype().is_float() {
            true => Ok(Number::Float(x.item::<f64>()?)),
            false => Ok(Number::Int(x.item::<i64>()?)),
        }
    }
}

/// Whether a tensor's elements are there already.
pub(super) fn is_known(x: &Tensor) -> bool {
    matches!(x.node.source, Source::Numbers(_)) || x.node.value(x.out).is_some()
}

/// An operator of one result.
fn one(run: impl Fn(&Call<'_>) -> Result<Tensor> + Send + Sync + 'static) -> Built {
    Built { run: Box::new(move |call| Ok(vec![run(call)?])), outputs: 1, cheap: true }
}

/// The same where constants are not worth computing before they are needed.
fn costly(run: impl Fn(&Call<'_>) -> Result<Tensor> + Send + Sync + 'static) -> Built {
    Built { cheap: false, ..one(run) }
}

/// An operator by name, or why it cannot be had.
pub(super) fn build(options: &Options<'_>) -> Result<Built, String> {
    let op = options.node.op_type.as_str();
    let needed = match op {
        "Constant" => 0,
        "Conv" | "Gemm" | "MatMul" | "LayerNormalization" | "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "PRelu"
        | "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "And" | "Or" | "Xor" | "Reshape"
        | "Expand" | "Tile" | "Gather" | "GatherElements" | "GatherND" | "TopK" | "CumSum" | "CastLike" => 2,
        "Where" | "Range" | "GroupNormalization" | "InstanceNormalization" => 3,
        _ => 1,
    };
    if let Some(missing) = (0..needed).find(|&place| !options.has_input(place)) {
        return Err(format!("operand {missing} is missing"));
    }
    for room in [elementwise::build, layers::build, movement::build, shapes::build, reductions::build] {
        if let Some(found) = room(op, options)? {
            return Ok(found);
        }
    }
    Err("this operator is not known here".into())
}
