//! Which of a linear layer's gradients comes first.

use crate::Result;
use crate::graph::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::matmul::MatMul;
use std::collections::BTreeMap;

/// On CPU cores the gradient by the input before that by the weight: what the forward passes left of the weight in the caches
/// would be pushed out by its gradient, which is as large.
pub(super) fn inputs_first(ir: Ir) -> Result<Ir> {
    let users = ir.users();
    // Gradients by weights, with the products that they go behind.
    let mut behind: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, node) in ir.nodes.iter().enumerate() {
        let Kind::Op(Op::MatMul(op)) = &node.kind else { continue };
        let [dy, weight] = [node.inputs[0], node.inputs[1]];
        if op.transpose_a || op.transpose_b || !matches!(ir.nodes[weight.node].kind, Kind::Leaf(_)) {
            continue;
        }
        let by_weight = |&user: &usize| {
            let (other, result) = (&ir.nodes[user], Value { node: user, out: 0 });
            let product = matches!(&other.kind, Kind::Op(Op::MatMul(op)) if *op == MatMul::new(true, false));
            let waits = user < index && users[user].iter().all(|&user| user > index);
            product && waits && other.inputs[0] == dy && ir.meta(result) == ir.meta(weight)
        };
        behind.extend(users[dy.node].iter().copied().find(by_weight).map(|gradient| (gradient, index)));
    }
    let mut order = Vec::with_capacity(ir.nodes.len());
    for index in 0..ir.nodes.len() {
        order.extend(Some(index).filter(|index| !behind.contains_key(index)));
        order.extend(behind.iter().filter(|(_, at)| **at == index).map(|(gradient, _)| *gradient));
    }
    Ok(ir.in_order(&order).0)
}
