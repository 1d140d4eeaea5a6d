//! The graph while it is lowered: nodes in a vector, operands by position.

use super::gradient::Expansion;
use super::node::{Metas, Node, Source};
use super::walk::{self, Trace};
use crate::Result;
use crate::cpu::storage::Storage;
use crate::error::Place;
use crate::ops::Op;
use crate::tensor::{Meta, Number, Shape, Tensor};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// One result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value {
    pub node: usize,
    pub out: usize,
}

/// In which order the elements of a value lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Row-major: the last dimension is contiguous.
    Rows,
    /// Images `[n, c, h, w]` stored as n, h, w, c.
    ChannelsLast,
}

/// A value as a kernel sees it.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Logical shape and element type.
    pub meta: Meta,
    /// Order in memory.
    pub layout: Layout,
    /// It stays the same from run to run, as parameters do in inference: what a kernel prepares of it is kept.
    pub lasting: bool,
}

impl Operand {
    /// The sizes in memory order.
    pub fn physical(&self) -> Shape {
        match (self.layout, &self.meta.shape[..]) {
            (Layout::ChannelsLast, &[n, c, h, w]) => [n, h, w, c].into(),
            _ => self.meta.shape.clone(),
        }
    }
}

/// A value that is there when a plan starts.
#[derive(Clone, Debug)]
pub(crate) enum Leaf {
    /// Node of the trace: bound anew for each run.
    Trace(usize),
    /// The same for every run: constants that gradient rules made.
    Constant(Arc<Storage>),
    /// Likewise, plain numbers.
    Numbers(SmallVec<[Number; 2]>),
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Leaf(Leaf),
    Op(Op),
}

#[derive(Clone, Debug)]
pub(crate) struct IrNode {
    pub kind: Kind,
    pub inputs: SmallVec<[Value; 4]>,
    pub outputs: Metas,
    pub layouts: SmallVec<[Layout; 1]>,
    pub place: Place,
}

/// A value that must be stored when the plan has run.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The trace's leaf that holds the cell's present value, when the graph reads it.
    pub leaf: Option<usize>,
    pub value: Value,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ir {
    pub nodes: Vec<IrNode>,
    pub roots: Vec<Value>,
    pub writes: Vec<Write>,
}

impl Ir {
    pub fn meta(&self, v: Value) -> &Meta {
        &self.nodes[v.node].outputs[v.out]
    }

    pub fn layout(&self, v: Value) -> Layout {
        self.nodes[v.node].layouts[v.out]
    }

    pub fn operand(&self, v: Value) -> Operand {
        Operand { meta: self.meta(v).clone(), layout: self.layout(v), lasting: false }
    }

    /// The values that must outlive the plan.
    pub fn kept(&self) -> impl Iterator<Item = Value> + '_ {
        self.roots.iter().copied().chain(self.writes.iter().map(|w| w.value))
    }

    /// Adds a node with row-major results.
    pub fn push(&mut self, kind: Kind, inputs: SmallVec<[Value; 4]>, outputs: Metas, place: Place) -> usize {
        let layouts = SmallVec::from_elem(Layout::Rows, outputs.len());
        self.nodes.push(IrNode { kind, inputs, outputs, layouts, place });
        self.nodes.len() - 1
    }

    /// Adds an op; its results follow from its shape rule.
    pub fn add(&mut self, op: Op, inputs: &[Value], place: Place) -> Result<usize> {
        let metas: Vec<&Meta> = inputs.iter().map(|v| self.meta(*v)).collect();
        let outputs = op.outputs(&metas)?;
        Ok(self.push(Kind::Op(op), inputs.into(), outputs, place))
    }

    /// How many operands and kept results each value feeds.
    pub fn uses(&self) -> HashMap<Value, usize> {
        let mut uses = HashMap::new();
        let operands = self.nodes.iter().flat_map(|n| n.inputs.iter().copied());
        for v in operands.chain(self.kept()) {
            *uses.entry(v).or_insert(0) += 1;
        }
        uses
    }

    /// For each node, the nodes that use any of its results; one that uses several is there as often.
    pub fn users(&self) -> Vec<Vec<usize>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| users[v.node].push(index));
        }
        users
    }

    /// Builds a new graph node by node. `rewrite` gets the old node with its operands already those of the
    /// new graph, and returns the new values of its results.
    pub fn rewrite(
        self,
        mut rewrite: impl FnMut(&mut Ir, usize, IrNode) -> Result<SmallVec<[Value; 2]>>,
    ) -> Result<Ir> {
        let mut new = Ir::default();
        let mut moved: Vec<SmallVec<[Value; 2]>> = Vec::with_capacity(self.nodes.len());
        for (index, mut node) in self.nodes.into_iter().enumerate() {
            for v in &mut node.inputs {
                *v = moved[v.node][v.out];
            }
            moved.push(rewrite(&mut new, index, node)?);
        }
        new.roots = self.roots.iter().map(|v| moved[v.node][v.out]).collect();
        new.writes =
            self.writes.iter().map(|w| Write { leaf: w.leaf, value: moved[w.value.node][w.value.out] }).collect();
        Ok(new)
    }

    /// Whoever took the one value takes the other.
    pub fn replace(&mut self, old: Value, new: Value) {
        let operands = self.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut());
        let kept = self.roots.iter_mut().chain(self.writes.iter_mut().map(|w| &mut w.value));
        operands.chain(kept).filter(|v| **v == old).for_each(|v| *v = new);
    }

    /// The same graph with every node behind its operands; nodes change places only where they must.
    pub fn sorted(self) -> Ir {
        let mut placed = vec![false; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for index in 0..self.nodes.len() {
            let mut stack = vec![index];
            while let Some(&at) = stack.last() {
                let missing = self.nodes[at].inputs.iter().map(|v| v.node).find(|n| !placed[*n]);
                match missing.filter(|_| !placed[at]) {
                    Some(operand) => stack.push(operand),
                    None => {
                        if !placed[at] {
                            placed[at] = true;
                            order.push(at);
                        }
                        stack.pop();
                    }
                }
            }
        }
        self.in_order(&order).0
    }

    /// The same graph with its nodes in this order, which has each of them behind its operands; and where each has gone.
    pub fn in_order(self, order: &[usize]) -> (Ir, Vec<usize>) {
        let mut places = vec![0; self.nodes.len()];
        order.iter().enumerate().for_each(|(place, &node)| places[node] = place);
        let moved = |v: &mut Value| v.node = places[v.node];
        let mut nodes: Vec<Option<IrNode>> = self.nodes.into_iter().map(Some).collect();
        let mut new = Ir { nodes: Vec::with_capacity(nodes.len()), roots: self.roots, writes: self.writes };
        for mut node in order.iter().filter_map(|&at| nodes[at].take()) {
            node.inputs.iter_mut().for_each(moved);
            new.nodes.push(node);
        }
        new.roots.iter_mut().for_each(moved);
        new.writes.iter_mut().for_each(|w| moved(&mut w.value));
        (new, places)
    }

    /// Takes a node over as it is.
    pub fn take(&mut self, node: IrNode) -> SmallVec<[Value; 2]> {
        self.nodes.push(node);
        self.results(self.nodes.len() - 1)
    }

    /// All results of a node.
    pub fn results(&self, node: usize) -> SmallVec<[Value; 2]> {
        (0..self.nodes[node].outputs.len()).map(|out| Value { node, out }).collect()
    }
}

/// The trace with its gradients written out, as positions.
pub(crate) fn build(trace: &Trace, expansion: &Expansion, walk: u32) -> Result<Ir> {
    let mut ir = Ir::default();
    let mut done: HashMap<*const Node, usize> = HashMap::new();
    let tensor = |at: walk::At| {
        let node = trace.nodes[at.node as usize].clone();
        expansion.resolve(&Tensor { node, out: at.out as usize })
    };
    // Gradients of the last layers first: an activation whose layer's gradients are all computed makes room for
    // what comes before it. How late a layer is shows in where the line has its parameter.
    let lateness = |at: &walk::At| {
        let node = &trace.nodes[at.node as usize];
        let leaf = match &node.source {
            Source::Op(Op::Backward(_)) => node.state().inputs.get(1 + at.out as usize).map(|t| t.node.clone()),
            _ => None,
        };
        leaf.and_then(|leaf| Trace::position(&leaf, walk)).unwrap_or(at.node)
    };
    let mut order: Vec<usize> = (0..trace.roots.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lateness(&trace.roots[i])));
    ir.roots = vec![Value { node: 0, out: 0 }; order.len()];
    for i in order {
        ir.roots[i] = place(&mut ir, &mut done, &tensor(trace.roots[i]), trace, expansion, walk);
    }
    // Writes come last, so that whatever reads a cell runs before the cell is overwritten.
    for write in &trace.writes {
        let value = place(&mut ir, &mut done, &tensor(write.value), trace, expansion, walk);
        ir.writes.push(Write { leaf: write.leaf.map(|i| i as usize), value });
    }
    Ok(ir)
}

/// Adds a tensor and all it needs, operands first, without recursion.
fn place(
    ir: &mut Ir,
    done: &mut HashMap<*const Node, usize>,
    tensor: &Tensor,
    trace: &Trace,
    expansion: &Expansion,
    walk: u32,
) -> Value {
    let mut stack = vec![(tensor.node.clone(), false)];
    while let Some((node, entered)) = stack.pop() {
        if done.contains_key(&Arc::as_ptr(&node)) {
            continue;
        }
        let position = Trace::position(&node, walk).map(|i| i as usize);
        let leaf = match (position, &node.source) {
            (Some(i), _) if trace.leaf[i] => Some(Leaf::Trace(i)),
            (None, Source::Numbers(n)) => Some(Leaf::Numbers(n.clone())),
            (None, _) => node.value(0).cloned().map(Leaf::Constant),
            _ => None,
        };
        let inputs: SmallVec<[Tensor; 4]> = match leaf {
            Some(_) => SmallVec::new(),
            None => node.state().inputs.iter().map(|t| expansion.resolve(t)).collect(),
        };
        if !entered && !inputs.is_empty() {
            stack.push((node, true));
            stack.extend(inputs.iter().rev().map(|t| (t.node.clone(), false)));
            continue;
        }
        let kind = match (leaf, &node.source) {
            (Some(leaf), _) => Kind::Leaf(leaf),
            (None, Source::Op(op)) => Kind::Op(op.clone()),
            (None, _) => unreachable!("data, cells and numbers have values"),
        };
        let inputs = inputs.iter().map(|t| Value { node: done[&Arc::as_ptr(&t.node)], out: t.out }).collect();
        let index = ir.push(kind, inputs, node.outputs.clone(), node.place);
        done.insert(Arc::as_ptr(&node), index);
    }
    Value { node: done[&Arc::as_ptr(&tensor.node)], out: tensor.out }
}
