//! Cross-entropy and its gradient in one pass over the logits: a training step always wants both.

use super::prune;
use crate::Result;
use crate::graph::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::cross_entropy::{CrossEntropyBoth, CrossEntropyGrad};

/// Joins each loss with its gradient, unless what flows back into the gradient depends on the loss itself.
pub(super) fn join_gradients(mut ir: Ir) -> Result<Ir> {
    let uses = ir.uses();
    let pairs: Vec<(usize, usize, CrossEntropyGrad)> = (ir.nodes.iter().enumerate())
        .filter_map(|(index, node)| {
            let Kind::Op(Op::CrossEntropyGrad(gradient)) = &node.kind else { return None };
            let &[x, logs, targets, dloss] = &node.inputs[..] else { return None };
            let loss = &ir.nodes[logs.node];
            let Kind::Op(Op::CrossEntropy(of)) = &loss.kind else { return None };
            let same = *of == gradient.of && loss.inputs[..] == [x, targets] && logs.out == 1;
            let alone = uses.get(&logs) == Some(&1) && ir.meta(dloss).dtype == loss.outputs[0].dtype;
            (same && alone && !depends(&ir, dloss, logs.node)).then(|| (logs.node, index, gradient.clone()))
        })
        .collect();
    if pairs.is_empty() {
        return Ok(ir);
    }
    for (loss, index, gradient) in pairs {
        let dloss = ir.nodes[index].inputs[3];
        let joined = ir.nodes[index].outputs[0].clone();
        let node = &mut ir.nodes[loss];
        node.kind = Kind::Op(CrossEntropyBoth { gradient }.into());
        node.inputs.push(dloss);
        node.outputs[1] = joined;
        ir.replace(Value { node: index, out: 0 }, Value { node: loss, out: 1 });
        ir.nodes[index].inputs.clear();
    }
    prune(ir.sorted())
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
