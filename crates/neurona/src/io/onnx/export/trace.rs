//! What a network computes, put in a line; and how its sizes follow the size of the batch.

use crate::cpu::storage::Storage;
use crate::graph::node::{Node, Source};
use crate::tensor::{DType, Meta, Number};
use crate::{Error, Result, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// A result of a node of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub node: usize,
    pub out: usize,
}

/// Nodes, operands before those that use them.
pub(super) struct Line {
    pub nodes: Vec<Arc<Node>>,
    pub inputs: Vec<Vec<At>>,
    pub input: Option<usize>,
    pub output: At,
}

impl Line {
    /// All that an output needs, without recursion: networks may be deep.
    pub fn new(input: &Tensor, output: &Tensor) -> Line {
        let mut line = Line { nodes: vec![], inputs: vec![], input: None, output: At { node: 0, out: output.out } };
        let mut places: HashMap<*const Node, usize> = HashMap::new();
        let mut stack = vec![(output.node.clone(), false)];
        while let Some((node, entered)) = stack.pop() {
            if places.contains_key(&Arc::as_ptr(&node)) {
                continue;
            }
            let is_input = Arc::ptr_eq(&node, &input.node);
            let operands: Vec<Tensor> = match is_input {
                true => Vec::new(),
                false => {
                    // A value that is there already, of a parameter for instance, needs nothing else.
                    if node.is_known() { Vec::new() } else { node.state().inputs.to_vec() }
                }
            };
            if !entered && !operands.is_empty() {
                stack.push((node, true));
                stack.extend(operands.iter().rev().map(|t| (t.node.clone(), false)));
                continue;
            }
            if is_input {
                line.input = Some(line.nodes.len());
            }
            places.insert(Arc::as_ptr(&node), line.nodes.len());
            line.inputs.push(operands.iter().map(|t| At { node: places[&Arc::as_ptr(&t.node)], out: t.out }).collect());
            line.nodes.push(node);
        }
        line.output.node = places[&Arc::as_ptr(&output.node)];
        line
    }
}

/// A number that may follow the size of the batch: `each` · batch + `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Size {
    pub each: i64,
    pub start: i64,
}

impl Size {
    pub const BATCH: Size = Size { each: 1, start: 0 };

    pub fn fixed(start: i64) -> Size {
        Size { each: 0, start }
    }

    /// The number, where it is the same for all batches.
    pub fn known(self) -> Option<i64> {
        (self.each == 0).then_some(self.start)
    }

    /// The line through what was seen at each size of the batch, if there is one.
    fn through(batches: &[usize], seen: &[i64]) -> Option<Size> {
        let (&[b0, ..], &[y0, ..]) = (batches, seen) else { return None };
        let each = match (batches.get(1), seen.get(1)) {
            (Some(&b1), Some(&y1)) => (y1 - y0) / (b1 as i64 - b0 as i64),
            _ => 0,
        };
        let size = Size { each, start: y0 - each * b0 as i64 };
        let fits = |(&b, &y): (&usize, &i64)| each * b as i64 + size.start == y;
        batches.iter().zip(seen).all(fits).then_some(size)
    }
}

/// The same network traced for batches of several sizes.
pub(super) struct Trace<'a> {
    lines: Vec<Line>,
    batches: &'a [usize],
}

impl<'a> Trace<'a> {
    pub fn new(lines: Vec<Line>, batches: &'a [usize]) -> Result<Self> {
        let trace = Trace { lines, batches };
        let first = trace.first();
        let differs = |line: &Line| {
            let names = |line: &Line| line.nodes.iter().map(|n| n.name()).collect::<Vec<_>>();
            line.inputs != first.inputs || line.input != first.input || names(line) != names(first)
        };
        if trace.lines.iter().any(differs) {
            return Err(Error::Argument(
                "the network does other things for batches of other sizes; export it for one size".into(),
            ));
        }
        if first.input.is_none() {
            return Err(Error::Argument("the network's output does not depend on its input".into()));
        }
        Ok(trace)
    }

    /// One of the lines; what they have in common is the same in all.
    pub fn first(&self) -> &Line {
        &self.lines[0]
    }

    pub fn node(&self, at: usize) -> &Arc<Node> {
        &self.first().nodes[at]
    }

    pub fn dtype(&self, at: At) -> DType {
        self.node(at.node).outputs[at.out].dtype
    }

    /// What an error says about a node.
    pub fn error(&self, node: usize, problem: impl Into<String>) -> Error {
        let node = self.node(node);
        Error::op(node.name(), problem).at(node.place)
    }

    /// The sizes of a value.
    pub fn shape(&self, at: At) -> Result<Vec<Size>> {
        let metas: Vec<&Meta> = self.lines.iter().map(|line| &line.nodes[at.node].outputs[at.out]).collect();
        let rank = metas[0].shape.len();
        let size = |d: usize| {
            let seen: Option<Vec<i64>> = metas.iter().map(|m| m.shape.get(d).map(|&n| n as i64)).collect();
            Size::through(self.batches, &seen?)
        };
        let sizes = if metas.iter().all(|m| m.shape.len() == rank) { (0..rank).map(size).collect() } else { None };
        sizes.ok_or_else(|| self.error(at.node, "its sizes follow the batch's in a way ONNX cannot say"))
    }

    /// The plain numbers of an operand, as a size where they are whole.
    pub fn number(&self, node: usize, at: At) -> Result<Scalar> {
        let seen: Option<Vec<Number>> = self.lines.iter().map(|line| plain(&line.nodes[at.node])).collect();
        let Some(seen) = seen else {
            return Err(self.error(node, "has an option that the network computes; it must be a plain number"));
        };
        if seen.iter().all(|n| *n == seen[0]) {
            return Ok(Scalar::Fixed(seen[0]));
        }
        let whole: Option<Vec<i64>> =
            seen.iter().map(|n| (n.as_f64() == n.as_i64() as f64).then_some(n.as_i64())).collect();
        let size = whole.and_then(|whole| Size::through(self.batches, &whole));
        size.map(Scalar::Follows)
            .ok_or_else(|| self.error(node, "has a number that follows the batch's size in a way ONNX cannot say"))
    }

    /// The value of a node that is the same whatever the input.
    pub fn constant(&self, node: usize) -> Result<Arc<Storage>> {
        let value = |line: &Line| line.nodes[node].value(0).cloned();
        let bytes = self.node(node).outputs[0].bytes();
        let mut first: Option<Arc<Storage>> = None;
        for line in &self.lines {
            let value = value(line).ok_or_else(|| self.error(node, "has no value"))?;
            let same = first.as_ref().is_none_or(|f| {
                Arc::ptr_eq(f, &value) || f.read::<u8>().get(..bytes) == value.read::<u8>().get(..bytes)
            });
            if !same || line.nodes[node].outputs != self.node(node).outputs {
                return Err(self.error(node, "was computed from the input while the network was traced"));
            }
            first.get_or_insert(value);
        }
        first.ok_or_else(|| self.error(node, "has no value"))
    }
}

/// A plain number of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Fixed(Number),
    Follows(Size),
}

fn plain(node: &Node) -> Option<Number> {
    match &node.source {
        Source::Numbers(numbers) => numbers.first().copied(),
        _ => None,
    }
}
