//! Packed filters for each half of the tasks.
//!
//! What one thread packs and another uses goes from core to core, and the next step's, written in the same place, back again:
//! where they have no cache in common, that takes several times as long as packing a few filters twice.

use crate::cpu::kernel::{Buf, Io};
use crate::cpu::storage::GAP;

/// Bytes of filters that are packed twice, at most.
const FEW: usize = 16 << 10;
/// Tasks that packing twice is worth while for.
const TASKS: usize = 4;

/// Filters of so many bytes, once or twice.
pub(super) struct Copies {
    bytes: usize,
    count: usize,
}

impl Copies {
    /// As many as so many tasks should have.
    pub fn new(bytes: usize, tasks: usize) -> Self {
        let count = if bytes <= FEW && tasks >= TASKS { 2 } else { 1 };
        Copies { bytes: (bytes + GAP).next_multiple_of(64), count }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.count * self.bytes
    }

    /// The copy that this one of so many tasks uses.
    pub fn of(&self, task: usize, tasks: usize) -> usize {
        task * self.count / tasks
    }

    /// Where a copy lies, in a buffer with room for all.
    pub fn part(&self, copy: usize, all: Buf) -> Buf {
        all.part::<u8>(copy * self.bytes, self.bytes)
    }

    /// What a task sees whose workspace is a copy.
    pub fn io<'a>(&self, copy: usize, io: &Io<'a>) -> Io<'a> {
        Io { inputs: io.inputs, outputs: io.outputs, workspace: self.part(copy, io.workspace), scratch: io.scratch }
    }
}
