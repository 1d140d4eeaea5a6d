//! Cross-entropy and its gradient in one pass over the logits: a training step always wants both.

use super::prune;
use crate::Result;
use crate::graph::ir::{Ir, Kind, Layout, Value};
use crate::ops::Op;
use crate::ops::cross_entropy::{CrossEntropyBoth, CrossEntropyGrad};

/// Joins each loss with its gradient, unless what flows back into the gradient depends on the loss itself.
pub(super) fn join_gradients(mut ir: Ir) -> Result<Ir> {
    for index in 0..ir.nodes.len() {
        let Some((loss, gradient)) = loss_of(&ir, index) else { continue };
        let outputs = ir.nodes[index].outputs.clone();
        let dloss = ir.nodes[index].inputs[3];
        let node = &mut ir.nodes[loss];
        node.kind = Kind::Op(CrossEntropyBoth { gradient }.into());
        node.inputs.push(dloss);
        node.outputs.extend(outputs);
        node.layouts.push(Layout::Rows);
        ir.replace(Value { node: index, out: 0 }, Value { node: loss, out: 2 });
        // Nobody needs it any more.
        ir.nodes[index].inputs.clear();
    }
    prune(ir.sorted())
}

/// The loss that this node is the gradient of, where both can be one.
fn loss_of(ir: &Ir, index: usize) -> Option<(usize, CrossEntropyGrad)> {
    let Kind::Op(Op::CrossEntropyGrad(gradient)) = &ir.nodes[index].kind else { return None };
    let &[x, logs, targets, dloss] = &ir.nodes[index].inputs[..] else { return None };
    let loss = &ir.nodes[logs.node];
    // One that is joined already is no `CrossEntropy` any more.
    let Kind::Op(Op::CrossEntropy(of)) = &loss.kind else { return None };
    let same = *of == gradient.of && loss.inputs[..] == [x, targets] && logs.out == 1;
    let fits = same && ir.meta(dloss).dtype == loss.outputs[0].dtype;
    (fits && !depends(ir, dloss, logs.node)).then(|| (logs.node, gradient.clone()))
}

/// Whether a value is computed from any result of a node that stands before it.
fn depends(ir: &Ir, on: Value, node: usize) -> bool {
    let (mut stack, mut seen) = (vec![on.node], vec![false; ir.nodes.len()]);
    while let Some(at) = stack.pop() {
        if at == node {
            return true;
        }
        if at > node && !std::mem::replace(&mut seen[at], true) {
            stack.extend(ir.nodes[at].inputs.iter().map(|v| v.node));
        }
    }
    false
}
