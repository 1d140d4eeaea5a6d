//! Steps of weights along the gradients that their layers have just made. In the sweep at the end of a plan, weights and
//! their gradients would come from memory, or from a farther cache, once more.

use crate::Result;
use crate::graph::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::conv2d::Conv2dWeightGradStep;
use crate::ops::conv2d_pool::Conv2dPoolGrad;
use crate::ops::linear_step::LinearStep;
use crate::ops::matmul::MatMul;
use crate::ops::sgd_step::Options;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// A weight's gradient that takes its step along.
struct Join {
    op: Op,
    /// Further operands of the gradient's node: the weight, its state, and the step's numbers, behind those of `input`.
    operands: SmallVec<[Value; 4]>,
    /// The step that it leaves, and which of its parameters the weight is.
    step: usize,
    parameter: usize,
    /// The last node that needs the weight as it is.
    after: usize,
    /// The gradient by the layer's input, when it comes along, too: the last node that needs the weight.
    input: Option<usize>,
}

/// Joins them where one kernel can do both.
pub(super) fn join(mut ir: Ir) -> Result<Ir> {
    let joins = find(&ir);
    if joins.is_empty() {
        return Ok(ir);
    }
    // Leaves first, so that a step's operands are there; each gradient behind the last reader of its weight, which can
    // then be overwritten, or just before the one that comes along.
    let (mut order, ops): (Vec<usize>, Vec<usize>) =
        (0..ir.nodes.len()).partition(|&i| matches!(ir.nodes[i].kind, Kind::Leaf(_)));
    for i in ops {
        let at = |along: bool| {
            let here = move |(_, join): &(&usize, &Join)| join.after == i && join.input.is_some() == along;
            joins.iter().filter(here).map(|(gradient, _)| *gradient)
        };
        order.extend(at(true));
        order.extend(Some(i).filter(|i| !joins.contains_key(i)));
        order.extend(at(false));
    }
    for (&gradient, join) in &joins {
        ir.nodes[gradient].inputs.extend_from_slice(&join.operands);
    }
    let (ir, places) = ir.in_order(&order);
    let mut joins: HashMap<usize, Join> = joins.into_iter().map(|(i, join)| (places[i], join)).collect();
    let mut by_input: HashMap<usize, Value> = HashMap::new();
    let mut updated: HashMap<usize, HashMap<usize, SmallVec<[Value; 2]>>> = HashMap::new();
    ir.rewrite(|new, index, node| {
        if let Some(join) = joins.remove(&index) {
            let joined = new.add(join.op, &node.inputs, node.place)?;
            let mut results = new.results(joined);
            if let Some(input) = join.input {
                by_input.insert(places[input], results.remove(0));
            }
            let step = results.drain(node.outputs.len()..).collect();
            updated.entry(places[join.step]).or_default().insert(join.parameter, step);
            return Ok(results);
        }
        if let Some(value) = by_input.remove(&index) {
            return Ok(SmallVec::from_slice(&[value]));
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
            let state = operands[2..].iter().chain(numbers);
            let mut operands: SmallVec<[Value; 4]> = std::iter::once(&weight).chain(state).copied().collect();
            let readers = || users[weight.node].iter().copied().filter(|&user| user != index);
            let after = readers().max().unwrap_or(0).max(gradient.node);
            // A gradient moves behind the readers of its weight, which must not move themselves.
            let moves = |user: usize| matches!(&ir.nodes[user].kind, Kind::Op(op) if by_weight(op));
            // Whoever else needs the gradient, or another result of its node if that moves, may be waiting for it where it
            // stands.
            let waits = |&user: &usize| after != gradient.node || ir.nodes[user].inputs.contains(&gradient);
            let alone = gradient.out == 0 && !users[gradient.node].iter().any(|user| *user != index && waits(user));
            if !alone || after >= index || readers().any(moves) || !operands.iter().all(leaf) {
                continue;
            }
            let Some((op, input)) = joined(ir, step.options, weight, gradient, after) else { continue };
            if input.is_some() {
                operands.insert_many(0, ir.nodes[after].inputs[2..].iter().copied());
            }
            joins.insert(gradient.node, Join { op, operands, step: index, parameter, after, input });
        }
    }
    joins
}

/// Whether it is, or may be, a gradient by weights.
fn by_weight(op: &Op) -> bool {
    match op {
        Op::Conv2dWeightGrad(_) => true,
        Op::MatMul(product) => product.transpose_a,
        _ => false,
    }
}

/// The op that is both a gradient and the step along it, and the gradient by the layer's input, which may be the last
/// reader of the weight, if it comes along.
fn joined(ir: &Ir, step: Options, weight: Value, gradient: Value, last: usize) -> Option<(Op, Option<usize>)> {
    let node = &ir.nodes[gradient.node];
    match &node.kind {
        Kind::Op(Op::Conv2dWeightGrad(grad)) => {
            let op = Conv2dWeightGradStep { grad: grad.clone(), step };
            let fits = op.fits(ir.meta(node.inputs[0]), ir.meta(weight));
            fits.then(|| (op.into(), None))
        }
        Kind::Op(Op::MatMul(grad)) if *grad == MatMul::new(true, false) => {
            let (dy, x) = (node.inputs[0], node.inputs[1]);
            let Kind::Op(Op::MatMul(input)) = &ir.nodes[last].kind else { return None };
            let op = LinearStep { masked: input.masked, step };
            let product = *input == MatMul { masked: input.masked, ..MatMul::new(false, false) };
            let fits = product && ir.nodes[last].inputs[..2] == [dy, weight] && op.fits(ir.meta(dy), ir.meta(x));
            fits.then(|| (op.into(), Some(last)))
        }
        Kind::Op(Op::Conv2dPoolGrad(grad)) if last == gradient.node => {
            Some((Conv2dPoolGrad { step: Some(step), ..grad.clone() }.into(), None))
        }
        _ => None,
    }
}
