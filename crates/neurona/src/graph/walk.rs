//! The trace, put in a line: what a plan is made from and looked up by.

use super::cell::{Cell, CellState};
use super::node::{Node, Source};
use crate::ops::Op;
use crate::tensor::{Device, Tensor};
use crate::{Error, Result};
use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// One result of one node of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At {
    pub node: u32,
    pub out: u32,
}

/// A staged write: the value that a cell will have.
#[derive(Debug)]
pub(crate) struct Write {
    pub value: At,
    /// Where the cell's present value stands in the line, when the graph reads it.
    pub leaf: Option<u32>,
}

/// Everything a force must compute, operands before the nodes that use them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub nodes: Vec<Arc<Node>>,
    /// Which nodes are taken as values; the others are computed.
    pub leaf: Vec<bool>,
    /// References to each node from the line itself and from cells that are written: more than these means that somebody
    /// outside holds it.
    inside: Vec<u32>,
    /// What must be stored: what was asked, and what the user still holds.
    pub roots: Vec<At>,
    /// Computed nodes that somebody outside holds.
    pub outside: Vec<usize>,
    pub writes: Vec<Write>,
    /// The cells that are written.
    pub cells: Vec<Cell>,
    /// The line as words: op, options, operand positions, leaves' shapes. Equal words, equal plan.
    pub words: Words,
    /// Where each node's words begin.
    starts: Vec<usize>,
    /// Some value had been computed before its gradient was asked: its forward runs again.
    pub again: bool,
    /// A computed value was met that a gradient may still be taken through.
    passed: bool,
    /// A gradient is taken.
    pub differentiates: bool,
    stack: Vec<Visit>,
}

#[derive(Debug)]
enum Visit {
    Enter(Arc<Node>),
    Leave(Arc<Node>),
}

/// A node that has been entered but not left yet.
const ENTERED: u32 = u32::MAX;

impl Trace {
    /// Lines up what the tensors asked for need. `walk` is new after every call.
    pub fn line_up(&mut self, asked: &[Tensor], cells: &[Cell], walk: &mut u32) {
        self.again = false;
        loop {
            *walk = walk.wrapping_add(1).max(1);
            self.clear();
            self.follow(asked, cells, *walk);
            if self.again || !(self.passed && self.differentiates) {
                break;
            }
            self.again = true;
        }
    }

    /// Whether the cells, now locked, still have the writes that were lined up: another thread may have staged
    /// or committed one in between.
    pub fn agrees(&self, locked: &[MutexGuard<'_, CellState>], walk: u32) -> bool {
        self.writes.iter().zip(locked).all(|(write, cell)| match &cell.staged {
            Some(staged) => {
                Self::position(&staged.node, walk) == Some(write.value.node) && staged.out as u32 == write.value.out
            }
            None => false,
        })
    }

    /// Lets go of all nodes; keeps the memory for the next call.
    pub fn clear(&mut self) {
        // Those who use a node before the node: else each would be moved out of its place to be taken apart.
        while self.nodes.pop().is_some() {}
        self.leaf.clear();
        self.inside.clear();
        self.roots.clear();
        self.writes.clear();
        self.cells.clear();
        self.outside.clear();
        self.words.clear();
        self.starts.clear();
        self.stack.clear();
        (self.passed, self.differentiates) = (false, false);
    }

    /// The node that a word of the line belongs to.
    pub fn node_of(&self, word: usize) -> usize {
        self.starts.partition_point(|&start| start <= word).saturating_sub(1)
    }

    /// Where this walk has put a node, if it has met it.
    pub fn position(node: &Node, walk: u32) -> Option<u32> {
        let mark = node.mark.load(Ordering::Relaxed);
        (mark >> 32 == walk as u64).then_some(mark as u32)
    }

    /// Depth first, without recursion.
    fn follow(&mut self, asked: &[Tensor], cells: &[Cell], walk: u32) {
        for tensor in asked {
            self.visit(&tensor.node, walk);
        }
        for cell in cells {
            if cell.state().staged.is_some() {
                self.note_write(cell.clone(), walk);
            }
        }
        // The list grows while the staged values' own graphs are followed.
        let mut next = 0;
        while next < self.cells.len() {
            let staged = self.cells[next].state().staged.as_ref().map(|staged| {
                let place = Self::position(&staged.node, walk);
                (staged.out as u32, place.ok_or_else(|| staged.node.clone()))
            });
            if let Some((out, place)) = staged {
                let node = place.unwrap_or_else(|new| {
                    self.visit(&new, walk);
                    Self::position(&new, walk).unwrap_or(0)
                });
                self.inside[node as usize] += 1;
                self.writes[next].value = At { node, out };
            }
            next += 1;
        }
    }

    /// Lists a cell's staged write, once.
    fn note_write(&mut self, cell: Cell, walk: u32) {
        // Walks hold the engine's lock: nobody else marks.
        if cell.0.mark.load(Ordering::Relaxed) != walk {
            cell.0.mark.store(walk, Ordering::Relaxed);
            self.cells.push(cell);
            self.writes.push(Write { value: At { node: 0, out: 0 }, leaf: None });
        }
    }

    /// Lines up a node and all it needs.
    fn visit(&mut self, node: &Arc<Node>, walk: u32) {
        if let Source::Op(_) = &node.source {
            self.stack.push(Visit::Enter(node.clone()));
        } else if Self::position(node, walk).is_none() {
            self.put_leaf(node.clone(), walk);
        }
        while let Some(visit) = self.stack.pop() {
            match visit {
                Visit::Enter(node) => self.enter(node, walk),
                Visit::Leave(node) => {
                    self.put_op(&node, &node.state().inputs, walk);
                    self.nodes.push(node);
                }
            }
        }
    }

    /// Sends the walk to the operands of a node that must be computed.
    fn enter(&mut self, node: Arc<Node>, walk: u32) {
        if Self::position(&node, walk).is_some() {
            return;
        }
        let state = node.state();
        let known = node.is_known();
        // A computed value keeps its operands only while a gradient may still be taken through it.
        let open = known && !state.inputs.is_empty();
        self.passed |= open;
        if known && !(open && self.again) {
            drop(state);
            return self.put_leaf(node, walk);
        }
        node.mark.store((walk as u64) << 32 | ENTERED as u64, Ordering::Relaxed);
        self.differentiates |= matches!(node.source, Source::Op(Op::Backward(_)));
        // What is not computed by an op is put in the line by the first that uses it. Several results of one node often
        // stand together, as the gradients of an optimizer's step do.
        let first = self.stack.len();
        for Tensor { node: operand, .. } in state.inputs.iter().rev() {
            let again = matches!(self.stack[first..].last(), Some(Visit::Enter(last)) if Arc::ptr_eq(last, operand));
            if matches!(operand.source, Source::Op(_)) && !again && Self::position(operand, walk).is_none() {
                self.stack.push(Visit::Enter(operand.clone()));
            }
        }
        if self.stack.len() > first {
            drop(state);
            self.stack.insert(first, Visit::Leave(node));
        } else {
            self.put_op(&node, &state.inputs, walk);
            drop(state);
            self.nodes.push(node);
        }
    }

    /// The next place in the line.
    fn place(&mut self, node: &Node, leaf: bool, walk: u32) {
        let index = self.leaf.len() as u64;
        node.mark.store((walk as u64) << 32 | index, Ordering::Relaxed);
        self.leaf.push(leaf);
        self.inside.push(0);
        self.starts.push(self.words.0.len());
    }

    fn put_leaf(&mut self, node: Arc<Node>, walk: u32) {
        let kind = match &node.source {
            Source::Op(_) | Source::Data | Source::Variable(_) => 1u32,
            Source::Cell(_) => 2,
            Source::Numbers(_) => 3,
        };
        if let Source::Cell(version) = &node.source
            && version.staged.load(Ordering::Relaxed)
            && let Some(inner) = version.cell.upgrade()
        {
            self.note_write(Cell(inner), walk);
        }
        self.place(&node, true, walk);
        self.words.write_u32(kind << 1 | node.requires_grad as u32);
        node.device.hash(&mut self.words);
        for meta in &node.outputs {
            self.words.write_usize(meta.shape.len() << 8 | meta.dtype as usize);
            self.words.0.extend(meta.shape.iter().map(|&n| n as u64));
        }
        self.nodes.push(node);
    }

    /// Puts a computed node in the line, after those of its operands that are not there yet; the caller adds the node
    /// itself to the list.
    fn put_op(&mut self, node: &Node, inputs: &[Tensor], walk: u32) {
        for input in inputs {
            if Self::position(&input.node, walk).is_none() {
                self.put_leaf(input.node.clone(), walk);
            }
        }
        self.place(node, false, walk);
        if let Source::Op(op) = &node.source {
            self.words.write_u32(4 << 1 | node.requires_grad as u32);
            op.hash(&mut self.words);
        }
        self.words.write_usize(inputs.len());
        for input in inputs {
            let at = Self::position(&input.node, walk).unwrap_or(0);
            self.inside[at as usize] += 1;
            self.words.write_u64((at as u64) << 16 | input.out as u64);
        }
    }

    /// What was asked, and every node in the line that somebody outside still holds: it could otherwise
    /// never be computed, since its inputs may be overwritten.
    /// Nobody can get hold of another one while the cells are locked.
    pub fn find_roots(&mut self, asked: &[Tensor], locked: &[MutexGuard<'_, CellState>], walk: u32) {
        for tensor in asked {
            let node = Self::position(&tensor.node, walk).unwrap_or(0);
            if !self.leaf[node as usize] {
                self.roots.push(At { node, out: tensor.out as u32 });
            }
        }
        for index in 0..self.nodes.len() {
            if self.leaf[index] || !self.held(index) {
                continue;
            }
            self.outside.push(index);
            let node = &self.nodes[index];
            for out in 0..node.outputs.len() {
                let root = At { node: index as u32, out: out as u32 };
                if node.value(out).is_none() && !self.roots.contains(&root) {
                    self.roots.push(root);
                }
            }
        }
        self.words.write_u64(u64::MAX);
        self.roots.iter().for_each(|r| self.words.write_u64((r.node as u64) << 16 | r.out as u64));
        self.words.write_u64(u64::MAX);
        for (write, cell) in self.writes.iter_mut().zip(locked) {
            write.leaf = Self::position(&cell.leaf.node, walk);
            write.leaf.into_iter().for_each(|leaf| self.inside[leaf as usize] += 1);
            self.words.write_u64((write.value.node as u64) << 16 | write.value.out as u64);
            self.words.write_u64(write.leaf.map_or(u64::MAX, u64::from));
        }
    }

    /// Whether somebody besides the line and the cells holds this node. The line's own list counts as one.
    pub fn held(&self, index: usize) -> bool {
        Arc::strong_count(&self.nodes[index]) > self.inside[index] as usize + 1
    }

    /// The one device of the line.
    pub fn device(&self) -> Result<Device> {
        let mut device = None;
        for node in &self.nodes {
            let Some(own) = node.device else { continue };
            if *device.get_or_insert(own) != own {
                return Err(
                    Error::op(node.name(), "operands are on different devices; move them with `to`").at(node.place)
                );
            }
        }
        Ok(device.unwrap_or_default())
    }
}

/// Collects what `Hash` implementations write, so that keys can be compared in full and not by hash alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(Vec<u64>);

impl Words {
    fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the words of another.
    pub fn append(&mut self, other: &Words) {
        self.0.extend(&other.0);
    }

    /// The one place where two lines of the same length differ, if there is just one.
    pub fn lone_difference(&self, other: &Words) -> Option<usize> {
        if self.0.len() != other.0.len() {
            return None;
        }
        let mut places = (0..self.0.len()).filter(|&i| self.0[i] != other.0[i]);
        places.next().filter(|_| places.next().is_none())
    }

    /// A hash of all words (rotate, xor, multiply, as in fxhash: keys are not chosen by an adversary). Four
    /// chains side by side, because each step waits for the multiplication before it.
    pub fn digest(&self) -> u64 {
        let step = |h: u64, w: &u64| (h.rotate_left(5) ^ w).wrapping_mul(0x517c_c1b7_2722_0a95);
        let mut lanes = [1, 2, 3, 4];
        let chunks = self.0.chunks_exact(4);
        let rest = chunks.remainder().iter().fold(0, step);
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(h, w)| *h = step(*h, w));
        }
        lanes.iter().fold(rest, step)
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0.push(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, x: u8) {
        self.0.push(x.into());
    }
    fn write_u32(&mut self, x: u32) {
        self.0.push(x.into());
    }
    fn write_u64(&mut self, x: u64) {
        self.0.push(x);
    }
    fn write_usize(&mut self, x: usize) {
        self.0.push(x as u64);
    }
    fn write_isize(&mut self, x: isize) {
        self.0.push(x as u64);
    }
    fn finish(&self) -> u64 {
        self.digest()
    }
}
