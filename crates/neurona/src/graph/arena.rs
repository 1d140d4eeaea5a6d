//! The memory of a plan's values: those that never live at the same time share bytes.

use super::ir::Value;
use crate::cpu::storage::GAP;
use crate::tensor::Device;
use std::collections::HashMap;

/// Cache lines of CPU cores are 64 bytes; a GPU's widest loads, and its copy engine, want 128; its vendor's libraries 256.
const ALIGN: usize = 256;

pub(super) fn aligned(bytes: usize) -> usize {
    bytes.max(1).div_ceil(ALIGN) * ALIGN
}

/// On a GPU, values of up to this many bytes stay where they are for this many steps longer than they are needed. Work on
/// larger ones fills the GPU by itself.
const SMALL: usize = 32 << 20;
const APART: usize = 3;

/// Values of a plan on CPU cores that together take no more than this share no memory. What a core writes where another has
/// written last comes from that one's cache first, where they have none in common at several times the cost; in memory of its
/// own a value's lines stay with the core that writes them step after step. Half of a last-level cache: in what is larger
/// than that, more memory costs more than it saves.
const ROOMY: usize = 16 << 20;

/// Lays lifetimes out in one block of memory, so that values that never live at the same time share bytes.
#[derive(Default)]
pub(super) struct Arena {
    lifetimes: Vec<Lifetime>,
    of: HashMap<Value, usize>,
    pub size: usize,
}

struct Lifetime {
    bytes: usize,
    first: usize,
    last: usize,
}

impl Arena {
    pub fn made(&mut self, v: Option<Value>, bytes: usize, step: usize) -> usize {
        self.lifetimes.push(Lifetime { bytes, first: step, last: step });
        if let Some(v) = v {
            self.of.insert(v, self.lifetimes.len() - 1);
        }
        self.lifetimes.len() - 1
    }

    pub fn used(&mut self, v: Value, step: usize) -> usize {
        let lifetime = self.of[&v];
        self.lifetimes[lifetime].last = step;
        lifetime
    }

    /// Whether there is room enough for all values to lie apart.
    pub fn fits_apart(&self, device: Device) -> bool {
        device == Device::Cpu && self.lifetimes.iter().map(|life| life.bytes).sum::<usize>() <= ROOMY
    }

    /// One behind the other, at a distance.
    pub fn apart(&mut self) -> Vec<usize> {
        let mut place = |life: &Lifetime| {
            let offset = self.size;
            self.size = aligned(offset + life.bytes + GAP);
            offset
        };
        self.lifetimes.iter().map(&mut place).collect()
    }

    /// Largest first, each at the lowest offset that is free during its life.
    pub fn offsets(&mut self, device: Device) -> Vec<usize> {
        // On a GPU steps run side by side where they share no memory; those in which work is small enough to gain from
        // that get memory that was not in use just before.
        if device != Device::Cpu {
            self.lifetimes.iter_mut().filter(|life| life.bytes <= SMALL).for_each(|life| life.last += APART);
        }
        let mut order: Vec<usize> = (0..self.lifetimes.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(self.lifetimes[i].bytes), self.lifetimes[i].first));
        let mut offsets = vec![0; self.lifetimes.len()];
        let mut placed: Vec<usize> = Vec::new();
        for i in order {
            let life = &self.lifetimes[i];
            let mut taken: Vec<(usize, usize)> = placed
                .iter()
                .filter(|&&j| self.lifetimes[j].first <= life.last && life.first <= self.lifetimes[j].last)
                .map(|&j| (offsets[j], offsets[j] + aligned(self.lifetimes[j].bytes)))
                .collect();
            taken.sort_unstable();
            let mut offset = 0;
            for (start, end) in taken {
                if offset + aligned(life.bytes) <= start {
                    break;
                }
                offset = offset.max(end);
            }
            offsets[i] = offset;
            self.size = self.size.max(offset + aligned(life.bytes));
            placed.push(i);
        }
        offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_apart_share_nothing_and_keep_a_distance() {
        let mut arena = Arena::default();
        for bytes in [256, 4864, 18_944, 1000, 512, 1 << 20, 6400, 0, 256] {
            arena.made(None, bytes, 0);
        }
        let (offsets, mut end) = (arena.apart(), 0);
        for (offset, life) in offsets.iter().zip(&arena.lifetimes) {
            assert!(*offset >= end && offset.is_multiple_of(ALIGN));
            end = offset + life.bytes + GAP;
        }
        assert!(end <= arena.size);
    }
}
