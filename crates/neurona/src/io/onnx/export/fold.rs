//! Batch norm in evaluation is one factor and one summand a channel: it can be multiplied into the weights of the
//! convolution or linear layer before it.

use super::graph::{Builder, float};
use super::layers;
use super::trace::At;
use crate::graph::node::Source;
use crate::ops::Op;
use crate::ops::batch_norm::BatchNormEval;
use crate::tensor::Tensor;
use crate::{DType, Result};

/// Whether a node is written together with the batch norm that follows it.
pub(super) fn waits(b: &Builder<'_>, node: usize) -> bool {
    let line = b.trace.first();
    let user = |user: &usize| line.inputs[*user].iter().any(|at| at.node == node);
    takes(b, node) && (node + 1..line.nodes.len()).find(user).is_some_and(|user| is_folded(b, user))
}

fn op<'b>(b: &'b Builder<'_>, node: usize) -> Option<&'b Op> {
    match &b.trace.node(node).source {
        Source::Op(op) => Some(op),
        _ => None,
    }
}

/// Whether a node has weights `[outputs, …]` that are there already.
fn takes(b: &Builder<'_>, node: usize) -> bool {
    let kind = match op(b, node) {
        Some(Op::Conv2d(_)) => true,
        Some(Op::MatMul(m)) => !m.transpose_a && m.transpose_b,
        _ => false,
    };
    kind && b.inputs(node)[1..].iter().all(|at| is_leaf(b, *at))
}

fn is_leaf(b: &Builder<'_>, at: At) -> bool {
    b.inputs(at.node).is_empty() && b.trace.first().input != Some(at.node)
}

/// Whether a node is a batch norm that nothing stands before but what takes it up.
fn is_folded(b: &Builder<'_>, node: usize) -> bool {
    let inputs = b.inputs(node);
    b.options.fold_batch_norm
        && matches!(op(b, node), Some(Op::BatchNormEval(_)))
        && takes(b, inputs[0].node)
        && b.uses[inputs[0].node] == 1
        && inputs[1..].iter().all(|at| is_leaf(b, *at))
}

pub(super) fn batch_norm(b: &mut Builder<'_>, node: usize, norm: &BatchNormEval) -> Result<String> {
    let inputs = b.inputs(node);
    if is_folded(b, node) {
        return folded(b, inputs[0].node, inputs, norm);
    }
    let x = b.value(inputs[0])?;
    let (mean, var) = (b.value(inputs[1])?, b.value(inputs[2])?);
    let (scale, shift) = match norm.affine {
        true => (b.value(inputs[3])?, b.value(inputs[4])?),
        false => {
            let (channels, dtype) = (b.fixed(inputs[1], 0)? as usize, b.trace.dtype(inputs[1]));
            let (ones, zeros) = (Tensor::ones([channels], dtype)?, Tensor::zeros([channels], dtype)?);
            (b.constant(&ones)?, b.constant(&zeros)?)
        }
    };
    let attributes = vec![float("epsilon", f64::from_bits(norm.eps))];
    Ok(b.emit("BatchNormalization", &[&x, &scale, &shift, &mean, &var], attributes))
}

/// The value of a constant, in double precision.
fn value(b: &Builder<'_>, at: At) -> Result<Tensor> {
    let meta = b.trace.node(at.node).outputs[at.out].clone();
    Tensor::of_storage(meta, b.trace.constant(at.node)?).to_dtype(DType::F64)
}

fn folded(b: &mut Builder<'_>, before: usize, inputs: &[At], norm: &BatchNormEval) -> Result<String> {
    let layer = b.inputs(before);
    let dtype = b.trace.dtype(layer[1]);
    let (mean, var) = (value(b, inputs[1])?, value(b, inputs[2])?);
    let mut scale = var.add_scalar(f64::from_bits(norm.eps))?.rsqrt()?;
    if norm.affine {
        scale = scale.mul(&value(b, inputs[3])?)?;
    }
    let mut shift = mean.neg()?;
    if let Some(&bias) = layer.get(2) {
        shift = shift.add(&value(b, bias)?)?;
    }
    shift = shift.mul(&scale)?;
    if norm.affine {
        shift = shift.add(&value(b, inputs[4])?)?;
    }
    let weight = value(b, layer[1])?;
    let mut each = vec![1; weight.rank()];
    each[0] = scale.numel();
    let weight = weight.mul(&scale.reshape(each)?)?.to_dtype(dtype)?;
    let name = b.name_of(layer[1]).unwrap_or_else(|| "folded.weight".into());
    let bias_name = match name.strip_suffix("weight") {
        Some(stem) => format!("{stem}bias"),
        None => format!("{name}.bias"),
    };
    let x = b.value(layer[0])?;
    let (weight, bias) = (b.initializer(&name, &weight)?, b.initializer(&bias_name, &shift.to_dtype(dtype)?)?);
    let operands = [x.as_str(), &weight, &bias];
    match op(b, before).cloned() {
        Some(Op::Conv2d(conv)) => layers::conv2d(b, &operands, &conv, layer[1]),
        Some(Op::MatMul(matmul)) => Ok(layers::matmul(b, &operands, &matmul, 2)),
        _ => Err(b.error("cannot take up the batch norm behind it")),
    }
}
