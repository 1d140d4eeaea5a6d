//! Batch norm in evaluation is a scale and a shift of each channel: the convolution before it does both at no cost,
//! in its packed filters and in its bias.

use super::super::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::batch_norm::BatchNormFold;
use crate::ops::conv2d::Conv2d;
use crate::{DType, Result};
use smallvec::{SmallVec, smallvec};

/// Joins each batch norm by running statistics with the convolution whose only reader it is.
pub(super) fn batch_norm(ir: Ir) -> Result<Ir> {
    let uses = ir.uses();
    // Double precision runs the plain convolution, which knows no scale.
    let convolution = |v: Value| match &ir.nodes[v.node].kind {
        Kind::Op(Op::Conv2d(op)) if uses.get(&v) == Some(&1) && ir.meta(v).dtype == DType::F32 => Some(op.clone()),
        _ => None,
    };
    let joins: Vec<Option<Conv2d>> = ir
        .nodes
        .iter()
        .map(|node| match &node.kind {
            Kind::Op(Op::BatchNormEval(_)) => convolution(node.inputs[0]),
            _ => None,
        })
        .collect();
    ir.rewrite(|new, index, node| {
        let (Some(conv), Kind::Op(Op::BatchNormEval(norm))) = (&joins[index], &node.kind) else {
            return Ok(new.take(node));
        };
        let before = new.nodes[node.inputs[0].node].inputs.clone();
        let mut operands: SmallVec<[Value; 5]> = SmallVec::from_slice(&node.inputs[1..]);
        operands.extend(before.get(2).copied());
        let fold = BatchNormFold { eps: norm.eps, affine: norm.affine, bias: before.len() > 2 };
        let fold = new.add(fold.into(), &operands, node.place)?;
        let (scale, shift) = (Value { node: fold, out: 0 }, Value { node: fold, out: 1 });
        let conv = Conv2d { scaled: true, ..conv.clone() };
        let conv = new.add(conv.into(), &[before[0], before[1], shift, scale], node.place)?;
        Ok(smallvec![Value { node: conv, out: 0 }])
    })
}
