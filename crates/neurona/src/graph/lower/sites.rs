//! Who reads what, for passes that look for a few ops in a row.

use super::super::ir::{Ir, Kind, Value};
use crate::ops::Op;
use smallvec::SmallVec;
use std::collections::HashMap;

/// A graph with the readers of each value.
pub(super) struct Sites<'a> {
    pub ir: &'a Ir,
    readers: HashMap<Value, SmallVec<[usize; 2]>>,
}

impl<'a> Sites<'a> {
    pub fn new(ir: &'a Ir) -> Self {
        let mut readers: HashMap<Value, SmallVec<[usize; 2]>> = HashMap::new();
        for (index, node) in ir.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| readers.entry(*v).or_default().push(index));
        }
        // Somebody outside is a reader that never fits.
        ir.kept().for_each(|v| readers.entry(v).or_default().push(usize::MAX));
        Sites { ir, readers }
    }

    pub fn op(&self, index: usize) -> Option<&'a Op> {
        match &self.ir.nodes.get(index)?.kind {
            Kind::Op(op) => Some(op),
            Kind::Leaf(_) => None,
        }
    }

    pub fn readers(&self, node: usize, out: usize) -> &[usize] {
        self.readers.get(&Value { node, out }).map_or(&[], |all| &all[..])
    }

    /// The only reader of a node's first result.
    pub fn reader(&self, node: usize) -> Option<usize> {
        match self.readers(node, 0) {
            [one] => Some(*one),
            _ => None,
        }
    }
}
