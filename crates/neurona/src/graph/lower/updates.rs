//! Steps of weights along the gradients that their convolutions have just made. In the sweep at the end of a plan, large
//! weights and their gradients would come from memory once more.

use crate::Result;
use crate::graph::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::conv2d::Conv2dWeightGradStep;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// A weight's gradient that takes its step along.
struct Join {
    op: Conv2dWeightGradStep,
    /// The weight, its state, and the step's numbers.
    operands: SmallVec<[Value; 4]>,
    /// The step that it leaves, and which of its parameters the weight is.
    step: usize,
    parameter: usize,
    /// The last node that needs the weight as it is.
    after: usize,
}

/// Joins them where one kernel can do both.
pub(super) fn join(ir: Ir) -> Result<Ir> {
    let joins = find(&ir);
    if joins.is_empty() {
        return Ok(ir);
    }
    // Leaves first, so that a step's operands are there; each gradient behind the last reader of its weight, which can
    // then be overwritten.
    let (mut order, ops): (Vec<usize>, Vec<usize>) =
        (0..ir.nodes.len()).partition(|&i| matches!(ir.nodes[i].kind, Kind::Leaf(_)));
    for i in ops {
        order.extend(Some(i).filter(|i| !joins.contains_key(i)));
        order.extend(joins.iter().filter(|(_, join)| join.after == i).map(|(gradient, _)| *gradient));
    }
    let (ir, places) = ir.in_order(&order);
    let mut joins: HashMap<usize, Join> = joins.into_iter().map(|(i, join)| (places[i], join)).collect();
    let mut updated: HashMap<usize, HashMap<usize, SmallVec<[Value; 2]>>> = HashMap::new();
    ir.rewrite(|new, index, mut node| {
        if let Some(join) = joins.remove(&index) {
            // Leaves are taken over one by one, and so stay where they are.
            node.inputs.extend(join.operands.iter().map(|v| Value { node: places[v.node], ..*v }));
            let joined = new.add(join.op.into(), &node.inputs, node.place)?;
            let mut results = new.results(joined);
            let step = results.drain(node.outputs.len()..).collect();
            updated.entry(places[join.step]).or_default().insert(join.parameter, step);
            return Ok(results);
        }
        let Some(updated) = updated.remove(&index) else { return Ok(new.take(node)) };
        let Kind::Op(Op::SgdStep(step)) = node.kind else { return Ok(new.take(node)) };
        let operands = step.operands();
        let (parameters, numbers) = node.inputs.split_at(node.inputs.len() - 1);
        let others = parameters.chunks(operands).enumerate().filter(|(i, _)| !updated.contains_key(i));
        let mut inputs: SmallVec<[Value; 4]> = others.flat_map(|(_, operands)| operands).copied().collect();
        let mut rest = SmallVec::new();
        if !inputs.is_empty() {
            inputs.extend_from_slice(numbers);
            let step = new.add(step.into(), &inputs, node.place)?;
            rest = new.results(step);
        }
        let mut rest = rest.into_iter();
        let result = |i| updated.get(&i).cloned().unwrap_or_else(|| rest.by_ref().take(operands - 1).collect());
        Ok((0..parameters.len() / operands).flat_map(result).collect())
    })
}

/// Gradients that can take their step along, by node.
fn find(ir: &Ir) -> BTreeMap<usize, Join> {
    let users = ir.users();
    let leaf = |v: &Value| matches!(ir.nodes[v.node].kind, Kind::Leaf(_));
    let mut joins = BTreeMap::new();
    for (index, node) in ir.nodes.iter().enumerate() {
        let Kind::Op(Op::SgdStep(step)) = &node.kind else { continue };
        let (parameters, numbers) = node.inputs.split_at(node.inputs.len() - 1);
        for (parameter, operands) in parameters.chunks(step.operands()).enumerate() {
            let (weight, gradient) = (operands[0], operands[1]);
            let Kind::Op(Op::Conv2dWeightGrad(grad)) = &ir.nodes[gradient.node].kind else { continue };
            let op = Conv2dWeightGradStep { grad: grad.clone(), step: step.options };
            let state = operands[2..].iter().chain(numbers);
            let operands: SmallVec<[Value; 4]> = std::iter::once(&weight).chain(state).copied().collect();
            let readers = || users[weight.node].iter().copied().filter(|&user| user != index);
            let after = readers().max().unwrap_or(0).max(gradient.node);
            // A gradient moves behind the readers of its weight, which must not move themselves.
            let moves = |user: usize| matches!(ir.nodes[user].kind, Kind::Op(Op::Conv2dWeightGrad(_)));
            // Whoever else needs the gradient may be waiting for it where it stands.
            let alone = gradient.out == 0 && users[gradient.node].iter().all(|&user| user == index);
            let fits = op.fits(ir.meta(ir.nodes[gradient.node].inputs[0]), ir.meta(weight));
            if fits && alone && after < index && !readers().any(moves) && operands.iter().all(leaf) {
                joins.insert(gradient.node, Join { op, operands, step: index, parameter, after });
            }
        }
    }
    joins
}
