//! What a traced graph consists of, op by op, without running it.

use super::node::{Node, Source};
use crate::ModuleName;
use crate::ops::{Op, Run};
use crate::tensor::{Meta, Tensor};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An op of the graph.
pub(crate) struct Step {
    pub name: &'static str,
    /// The path of the layer it was built for; empty when there is none.
    pub module: &'static str,
    pub output: Meta,
    pub multiply_adds: u64,
    /// It shares its operand's memory.
    pub view: bool,
    /// Which of the known leaves it reads.
    pub reads: Vec<usize>,
}

/// The ops that a tensor is made of, operands first. Known leaves (parameters, buffers) are looked up by node, and
/// not followed further: their present values may be pending results of another graph.
pub(crate) fn outline(tensor: &Tensor, leaves: &HashMap<*const Node, usize>) -> Vec<Step> {
    let (mut steps, mut seen) = (Vec::new(), HashSet::new());
    let mut stack = vec![(tensor.node.clone(), false)];
    while let Some((node, entered)) = stack.pop() {
        let Source::Op(op) = &node.source else { continue };
        let known = |node: &Arc<Node>| leaves.get(&Arc::as_ptr(node)).copied();
        if known(&node).is_some() || !entered && !seen.insert(Arc::as_ptr(&node)) {
            continue;
        }
        // Held in the graph by their user until here, so that no address is met twice.
        let inputs = node.state().inputs.clone();
        if !entered {
            stack.push((node.clone(), true));
            stack.extend(inputs.iter().rev().map(|input| (input.node.clone(), false)));
            continue;
        }
        let metas: Vec<&Meta> = inputs.iter().map(|input| input.meta()).collect();
        steps.push(Step {
            name: name(op),
            module: node.place.module.map_or("", ModuleName::as_str),
            output: node.outputs[0].clone(),
            multiply_adds: op.multiply_adds(&metas, &node.outputs),
            view: matches!(op.run(), Run::View),
            reads: inputs.iter().filter_map(|input| known(&input.node)).collect(),
        });
    }
    steps
}

/// As people call it: a layer is the same in training and evaluation.
fn name(op: &Op) -> &'static str {
    match op {
        Op::BatchNormEval(_) => "batch_norm",
        op => op.name(),
    }
}
