//! Each op as ONNX operators. Ops know nothing of files; what ONNX calls them stands here and beside.

use super::graph::{Builder, float, int, ints};
use super::trace::At;
use super::{fold, layers, movement};
use crate::Result;
use crate::graph::node::Source;
use crate::ops::Op;
use crate::ops::compare::Compare;
use crate::ops::gelu::Gelu;
use crate::tensor::DType;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Writes a node of the line as operators; gives the name of its first result.
pub(super) fn convert(b: &mut Builder<'_>, node: usize) -> Result<String> {
    let Source::Op(op) = &b.trace.node(node).source else {
        return Err(b.error("has no operator"));
    };
    let op = op.clone();
    let inputs = b.inputs(node);
    if let Op::Where(_) = op
        && let Some(clipped) = clip(b, node)?
    {
        return Ok(clipped);
    }
    // These look at their operands before they write them.
    match &op {
        Op::Reshape(_) => return movement::reshape(b, At { node, out: 0 }),
        Op::BatchNormEval(op) => return fold::batch_norm(b, node, op),
        Op::Slice(op) => return movement::slice(b, inputs, op, At { node, out: 0 }),
        Op::Roll(op) => return movement::roll(b, inputs, op.dim),
        Op::LeakyRelu(_) | Op::Elu(_) => {
            let (name, x, alpha) = (operator(&op), b.value(inputs[0])?, b.number(inputs[1])?);
            return Ok(b.emit(name, &[&x], vec![float("alpha", alpha)]));
        }
        _ => {}
    }
    let names = inputs.iter().map(|&at| b.value(at)).collect::<Result<Vec<String>>>()?;
    let operands: Vec<&str> = names.iter().map(String::as_str).collect();
    let (x, dtype) = (operands[0], b.trace.dtype(inputs[0]));
    Ok(match &op {
        Op::Add(_) if dtype == DType::Bool => b.emit("Or", &operands, vec![]),
        Op::Mul(_) if dtype == DType::Bool => b.emit("And", &operands, vec![]),
        Op::Add(_) | Op::Sub(_) | Op::Mul(_) | Op::Div(_) | Op::Pow(_) | Op::Where(_) => {
            b.emit(operator(&op), &operands, vec![])
        }
        Op::Neg(_)
        | Op::Exp(_)
        | Op::Log(_)
        | Op::Sqrt(_)
        | Op::Abs(_)
        | Op::Reciprocal(_)
        | Op::Sin(_)
        | Op::Cos(_)
        | Op::Erf(_)
        | Op::Sign(_)
        | Op::Floor(_)
        | Op::Ceil(_)
        | Op::Round(_)
        | Op::Relu(_)
        | Op::Sigmoid(_)
        | Op::Tanh(_)
        | Op::Hardswish(_) => b.emit(operator(&op), &operands, vec![]),
        Op::Square(_) => b.emit("Mul", &[x, x], vec![]),
        Op::Rsqrt(_) => {
            let root = b.emit("Sqrt", &[x], vec![]);
            b.emit("Reciprocal", &[&root], vec![])
        }
        Op::Log1p(_) => {
            let one = b.one(1.0, dtype)?;
            let sum = b.emit("Add", &[x, &one], vec![]);
            b.emit("Log", &[&sum], vec![])
        }
        Op::Expm1(_) => {
            let (one, power) = (b.one(1.0, dtype)?, b.emit("Exp", &[x], vec![]));
            b.emit("Sub", &[&power, &one], vec![])
        }
        Op::Relu6(_) => {
            let (low, high) = (b.one(0.0, dtype)?, b.one(6.0, dtype)?);
            b.emit("Clip", &[x, &low, &high], vec![])
        }
        Op::Gelu(op) => gelu(b, x, op, dtype)?,
        Op::Silu(_) => {
            let gate = b.emit("Sigmoid", &[x], vec![]);
            b.emit("Mul", &[x, &gate], vec![])
        }
        // Beyond the limit it is x itself.
        Op::Softplus(_) => {
            let smooth = b.emit("Softplus", &[x], vec![]);
            let beyond = b.emit("Greater", &operands, vec![]);
            b.emit("Where", &[&beyond, x, &smooth], vec![])
        }
        Op::Compare(compare) => comparison(b, *compare, &operands, dtype),
        Op::Cast(op) => b.cast(x, op.to),
        Op::Permute(op) => b.emit("Transpose", &operands, vec![ints("perm", op.order.iter().copied())]),
        Op::Cat(op) => b.emit("Concat", &operands, vec![int("axis", op.dim as i64)]),
        Op::Gather(op) => {
            let operator = if op.lines { "Gather" } else { "GatherElements" };
            b.emit(operator, &operands, vec![int("axis", op.dim as i64)])
        }
        Op::Flip(op) => movement::flip(b, x, &op.flipped)?,
        Op::Pad(op) => movement::pad(b, &operands, op)?,
        Op::Expand(_) => movement::expand(b, x, inputs[0], At { node, out: 0 })?,
        Op::Reduce(op) => movement::reduce(b, x, op, dtype)?,
        Op::ArgReduce(op) => {
            let operator = if op.least { "ArgMin" } else { "ArgMax" };
            b.emit(operator, &[x], vec![int("axis", op.dim as i64), int("keepdims", 0)])
        }
        Op::ArgSort(op) => {
            let keep = b.sizes_of(At { node, out: 0 })?[op.dim];
            let (keep, largest) = (b.sizes(&[keep])?, int("largest", op.descending as i64));
            b.emit_at("TopK", &[x, &keep], vec![int("axis", op.dim as i64), largest, int("sorted", 1)], 1)
        }
        Op::CumSum(op) => {
            let dim = b.ints(&[op.dim as i64])?;
            b.emit("CumSum", &[x, &dim], vec![int("reverse", op.reverse as i64)])
        }
        Op::MatMul(op) => layers::matmul(b, &operands, op, b.sizes_of(inputs[0])?.len()),
        Op::Conv2d(op) => layers::conv2d(b, &operands, op, inputs[1])?,
        Op::MaxPool2d(op) => layers::max_pool2d(b, x, op, inputs[0])?,
        Op::AvgPool2d(op) => layers::avg_pool2d(b, x, op, inputs[0])?,
        Op::LayerNorm(op) => layers::layer_norm(b, &operands, op, inputs[0])?,
        Op::Softmax(_) => {
            let operator = if op.name() == "softmax" { "Softmax" } else { "LogSoftmax" };
            b.emit(operator, &[x], vec![int("axis", -1)])
        }
        Op::Dropout(_) => return Err(b.error("acts in evaluation too, and ONNX has no such operator")),
        Op::BatchNormTrain(_) => {
            return Err(b.error("keeps no running statistics, and ONNX has no operator for a batch's own"));
        }
        _ => return Err(b.error("has no ONNX form here")),
    })
}

/// The operator of the same meaning.
fn operator(op: &Op) -> &'static str {
    match op {
        Op::Add(_) => "Add",
        Op::Sub(_) => "Sub",
        Op::Mul(_) => "Mul",
        Op::Div(_) => "Div",
        Op::Pow(_) => "Pow",
        Op::Where(_) => "Where",
        Op::Neg(_) => "Neg",
        Op::Exp(_) => "Exp",
        Op::Log(_) => "Log",
        Op::Sqrt(_) => "Sqrt",
        Op::Abs(_) => "Abs",
        Op::Reciprocal(_) => "Reciprocal",
        Op::Sin(_) => "Sin",
        Op::Cos(_) => "Cos",
        Op::Erf(_) => "Erf",
        Op::Sign(_) => "Sign",
        Op::Floor(_) => "Floor",
        Op::Ceil(_) => "Ceil",
        Op::Round(_) => "Round",
        Op::Relu(_) => "Relu",
        Op::LeakyRelu(_) => "LeakyRelu",
        Op::Elu(_) => "Elu",
        Op::Sigmoid(_) => "Sigmoid",
        Op::Tanh(_) => "Tanh",
        Op::Hardswish(_) => "HardSwish",
        _ => "Identity",
    }
}

fn comparison(b: &mut Builder<'_>, compare: Compare, operands: &[&str], dtype: DType) -> String {
    // ONNX has an order of numbers only.
    let numbers: Vec<String> = match (dtype, compare) {
        (DType::Bool, Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge) => {
            operands.iter().map(|x| b.cast(x, DType::I64)).collect()
        }
        _ => operands.iter().map(|x| x.to_string()).collect(),
    };
    let operands: Vec<&str> = numbers.iter().map(String::as_str).collect();
    match compare {
        Compare::Eq => b.emit("Equal", &operands, vec![]),
        Compare::Ne => {
            let equal = b.emit("Equal", &operands, vec![]);
            b.emit("Not", &[&equal], vec![])
        }
        Compare::Lt => b.emit("Less", &operands, vec![]),
        Compare::Le => b.emit("LessOrEqual", &operands, vec![]),
        Compare::Gt => b.emit("Greater", &operands, vec![]),
        Compare::Ge => b.emit("GreaterOrEqual", &operands, vec![]),
    }
}

fn gelu(b: &mut Builder<'_>, x: &str, op: &Gelu, dtype: DType) -> Result<String> {
    if b.options.opset >= 20 {
        let how = if op.tanh { "tanh" } else { "none" };
        return Ok(b.emit("Gelu", &[x], vec![super::graph::string("approximate", how)]));
    }
    let (half, one) = (b.one(0.5, dtype)?, b.one(1.0, dtype)?);
    let share = if op.tanh {
        let (cubic, slope) = (b.one(0.044715, dtype)?, b.one(FRAC_2_SQRT_PI * FRAC_1_SQRT_2, dtype)?);
        let square = b.emit("Mul", &[x, x], vec![]);
        let cube = b.emit("Mul", &[&square, x], vec![]);
        let bent = b.emit("Mul", &[&cube, &cubic], vec![]);
        let sum = b.emit("Add", &[x, &bent], vec![]);
        let inner = b.emit("Mul", &[&sum, &slope], vec![]);
        b.emit("Tanh", &[&inner], vec![])
    } else {
        let scale = b.one(FRAC_1_SQRT_2, dtype)?;
        let scaled = b.emit("Mul", &[x, &scale], vec![]);
        b.emit("Erf", &[&scaled], vec![])
    };
    let share = b.emit("Add", &[&share, &one], vec![]);
    let product = b.emit("Mul", &[x, &share], vec![]);
    Ok(b.emit("Mul", &[&product, &half], vec![]))
}

/// Bounds of x: the comparisons that `clamp` is made of, as one operator.
fn clip(b: &mut Builder<'_>, node: usize) -> Result<Option<String>> {
    let Some(outer) = bound(b, node) else { return Ok(None) };
    // Of two bounds ONNX applies the upper one last.
    let inner = bound(b, outer.x.node).filter(|inner| inner.below && !outer.below);
    let x = b.value(inner.as_ref().map_or(outer.x, |inner| inner.x))?;
    let (mut low, mut high) = (String::new(), String::new());
    for bound in inner.iter().chain([&outer]) {
        let limit = b.value(bound.limit)?;
        *(if bound.below { &mut low } else { &mut high }) = limit;
    }
    let operands = if high.is_empty() { vec![x.as_str(), &low] } else { vec![x.as_str(), &low, &high] };
    Ok(Some(b.emit("Clip", &operands, vec![])))
}

struct Bound {
    x: At,
    limit: At,
    /// Whether nothing falls below it, rather than rise above.
    below: bool,
}

/// Whether a node is `x <= limit ? limit : x`, or the same with >=, for a plain number.
fn bound(b: &Builder<'_>, node: usize) -> Option<Bound> {
    let op = |node: usize| match &b.trace.node(node).source {
        Source::Op(op) => Some(op),
        _ => None,
    };
    let (Op::Where(_), &[condition, limit, x]) = (op(node)?, b.inputs(node)) else { return None };
    let below = match op(condition.node)? {
        Op::Compare(Compare::Le) => true,
        Op::Compare(Compare::Ge) => false,
        _ => return None,
    };
    let numbers = matches!(b.trace.node(limit.node).source, Source::Numbers(_));
    (b.inputs(condition.node) == [x, limit] && numbers).then_some(Bound { x, limit, below })
}
