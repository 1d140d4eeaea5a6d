//! The gradient pass: adds to a trace the nodes that compute the derivative of a loss, by each op's rule.

use super::node::{Node, Source};
use super::walk::Trace;
use crate::ops::{At, Op};
use crate::tensor::{Scope, Tensor, no_grad};
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

type Key = (*const Node, usize);

fn key(tensor: &Tensor) -> Key {
    (Arc::as_ptr(&tensor.node), tensor.out)
}

/// For each `backward` of the trace, the tensors that compute its results.
#[derive(Default)]
pub(crate) struct Expansion(HashMap<*const Node, Vec<Tensor>>);

impl Expansion {
    /// What stands for this tensor: itself, or the gradient that a `backward` node promised.
    pub fn resolve(&self, tensor: &Tensor) -> Tensor {
        match self.0.get(&Arc::as_ptr(&tensor.node)) {
            Some(gradients) => gradients[tensor.out].clone(),
            None => tensor.clone(),
        }
    }
}

/// Replaces every `backward` node of the trace by the nodes that its op's rules build.
pub(crate) fn expand(trace: &Trace) -> Result<Expansion> {
    no_grad(|| {
        let mut expansion = Expansion::default();
        for (index, node) in trace.nodes.iter().enumerate() {
            if let (Source::Op(Op::Backward(_)), false) = (&node.source, trace.leaf[index]) {
                let inputs = node.state().inputs.clone();
                let gradients = differentiate(trace, index, &inputs[0], &inputs[1..], &expansion)?;
                expansion.0.insert(Arc::as_ptr(node), gradients);
            }
        }
        Ok(expansion)
    })
}

fn differentiate(
    trace: &Trace,
    before: usize,
    loss: &Tensor,
    wrt: &[Tensor],
    expansion: &Expansion,
) -> Result<Vec<Tensor>> {
    let mut found: HashMap<Key, Tensor> = HashMap::new();
    found.insert(key(loss), Tensor::ones_like(loss)?);
    // The line has operands before users, so backwards it meets every user of a value before the value.
    for index in (0..before).rev() {
        let node = &trace.nodes[index];
        let Source::Op(op) = &node.source else { continue };
        if trace.leaf[index] || !node.requires_grad {
            continue;
        }
        let outputs: Vec<Tensor> = (0..node.outputs.len()).map(|out| Tensor { node: node.clone(), out }).collect();
        let grads: Vec<Option<Tensor>> = outputs.iter().map(|y| found.remove(&key(y))).collect();
        if grads.iter().all(Option::is_none) {
            continue;
        }
        let operands: Vec<Tensor> = node.state().inputs.iter().cloned().collect();
        let inputs: Vec<Tensor> = operands.iter().map(|t| expansion.resolve(t)).collect();
        let wants: Vec<bool> = inputs.iter().map(|t| t.node.requires_grad).collect();
        let _scope = Scope::of(&node.place);
        let at = At { inputs: &inputs, outputs: &outputs, grads: &grads, wants: &wants };
        let by_input = op.gradient(&at).map_err(|e| e.at(node.place))?;
        for ((input, gradient), wanted) in operands.iter().zip(by_input).zip(wants) {
            let (Some(gradient), true) = (gradient, wanted) else { continue };
            if gradient.shape() != input.shape() {
                let operands = [("gradient", gradient.meta()), ("operand", input.meta())];
                return Err(Error::operands(op.name(), "its gradient rule gave a wrong shape", &operands));
            }
            let sum = match found.remove(&key(input)) {
                Some(other) => other.add(&gradient)?,
                None => gradient,
            };
            found.insert(key(input), sum);
        }
    }
    wrt.iter()
        .map(|leaf| match found.get(&key(leaf)) {
            Some(gradient) => Ok(gradient.clone()),
            None => Tensor::zeros_like(leaf),
        })
        .collect()
}
