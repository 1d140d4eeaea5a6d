//! Batch-norm in training behind a convolution, on CPU cores: the convolution measures what it gives while that is in
//! cache, and the normalisation begins with the outcome instead of a pass over all images.

use super::super::ir::{Ir, Kind, Value};
use crate::Result;
use crate::cpu::gemm::Activation;
use crate::ops::Op;
use crate::ops::conv2d::Conv2d;
use crate::ops::conv2d::cpu::{measures, statistics};
use crate::tensor::DType;
use std::collections::HashSet;

/// Joins each normalisation with the measurement in the convolution before it. Who else reads the images decides nothing,
/// so that the statistics of a network have the same bits whatever is asked of it.
pub(super) fn join(ir: Ir) -> Result<Ir> {
    let measured = |v: Value| match &ir.nodes[v.node].kind {
        Kind::Op(Op::Conv2d(op)) if v.out == 0 => pays(&ir, v.node, op),
        _ => false,
    };
    let norms = ir.nodes.iter().filter(|node| match &node.kind {
        Kind::Op(Op::BatchNormTrain(op)) => !op.added,
        Kind::Op(Op::BatchNormPool(_)) => true,
        _ => false,
    });
    let measured: HashSet<usize> = norms.map(|node| node.inputs[0]).filter(|v| measured(*v)).map(|v| v.node).collect();
    if measured.is_empty() {
        return Ok(ir);
    }
    ir.rewrite(|new, index, mut node| {
        let place = node.place;
        if let (true, Kind::Op(Op::Conv2d(op))) = (measured.contains(&index), &node.kind) {
            let conv = new.add(Conv2d { statistics: true, ..op.clone() }.into(), &node.inputs, place)?;
            return Ok(new.results(conv));
        }
        let norm = match &mut node.kind {
            Kind::Op(Op::BatchNormTrain(op)) if !op.added => op,
            Kind::Op(Op::BatchNormPool(op)) => &mut op.norm,
            _ => return Ok(new.take(node)),
        };
        if let Kind::Op(Op::Conv2d(Conv2d { statistics: true, .. })) = &new.nodes[node.inputs[0].node].kind {
            norm.measured = true;
            node.inputs.push(Value { out: 1, ..node.inputs[0] });
        }
        Ok(new.take(node))
    })
}

/// Whether measuring costs the convolution less than the normalisation saves: each part writes two numbers a channel, which
/// must be few beside its pixels.
fn pays(ir: &Ir, conv: usize, op: &Conv2d) -> bool {
    let node = &ir.nodes[conv];
    let [x, weight] = [0, 1].map(|i| ir.meta(node.inputs[i]));
    if op.activation != Activation::None || op.scaled || x.dtype != DType::F32 {
        return false;
    }
    op.options.check(x, weight).is_ok_and(|g| {
        let pixels = g.n * g.oh() * g.ow();
        g.k > 0 && measures(g) && pixels >= PIXELS * statistics(g)[0].max(1)
    })
}

/// Pixels that a part should have at least.
const PIXELS: usize = 16;
