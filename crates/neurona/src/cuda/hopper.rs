//! How work is cut for the pipeline of `hopper.cuh`.

use super::cut::Module;
use super::{Gpu, Source};
use crate::tensor::DType;

/// Bytes of shared memory that the blocks of a multiprocessor divide; each takes 1 KB more than it asks for.
const SHARED: usize = 228 << 10;

/// The macros of `hopper.cuh`, where they are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub m: usize,
    pub n: usize,
    pub groups: [usize; 2],
    pub depth: usize,
    pub chunk: [usize; 2],
    pub stages: usize,
    /// Blocks that run on a multiprocessor at the same time.
    pub blocks: usize,
    /// Pieces of output that leave at the same time; none: sums go to slots.
    pub buffers: usize,
}

impl Tile {
    /// Two groups of warps below each other.
    pub const fn new(m: usize, n: usize, stages: usize, blocks: usize) -> Tile {
        Tile { m, n, groups: [2, 1], depth: 64, chunk: [64, 64], stages, blocks, buffers: 1 }
    }

    pub fn threads(&self) -> u32 {
        (128 * self.groups[0] * self.groups[1] + 32) as u32
    }

    /// Rows of a group.
    pub fn group_rows(&self) -> usize {
        self.m / self.groups[0]
    }

    /// Columns of a piece of output.
    pub fn out_chunk(&self) -> usize {
        if self.n / self.groups[1] < 64 { 32 } else { 64 }
    }

    /// Bytes for output on its way out.
    pub fn out_bytes(&self) -> usize {
        self.groups[0] * self.groups[1] * self.buffers * 128 * self.out_chunk()
    }

    /// Dynamic shared memory of the plain pipeline.
    pub fn shared(&self) -> usize {
        self.stages * (2 * self.depth * (self.m + self.n) + 16) + self.out_bytes()
    }

    /// Whether as many blocks as planned have room for this much each.
    pub fn has_room(&self, shared: usize) -> bool {
        (shared + 1024) * self.blocks <= SHARED
    }

    /// Stable from run to run.
    pub fn name(&self) -> String {
        let Tile { m, n, groups: [down, across], depth, chunk: [_, chunk], stages, blocks, buffers } = *self;
        format!(
            "{m}x{n} {down}x{across} groups, {stages} stages of {depth}, chunks of {chunk}, {blocks} blocks, {buffers} buffers"
        )
    }

    /// Kernels compiled for this tile and element type.
    pub fn module<'a>(&self, gpu: &'a Gpu, source: &'static Source, dtype: DType) -> Module<'a> {
        let module = Module::new(gpu, source).of("ELEMENT", dtype);
        let module = module.with("TILE_M", self.m).with("TILE_N", self.n).with("DEPTH", self.depth);
        let module = module.with("GROUPS_M", self.groups[0]).with("GROUPS_N", self.groups[1]);
        let module = module.with("A_CHUNK", self.chunk[0]).with("B_CHUNK", self.chunk[1]);
        let module = module.with("STAGES", self.stages).with("BLOCKS_PER_SM", self.blocks);
        match self.buffers {
            0 => module.with("OUTPUT", 0),
            buffers => module.with("OUT_BUFFERS", buffers),
        }
    }
}

/// Warps that add one element's slots, about four slots each, when `shares` divide the work on `tiles`.
pub(crate) fn slices(shares: usize, tiles: usize) -> usize {
    let slots = shares as f64 / tiles as f64 + 1.0;
    (0..5).map(|i| 1 << i).find(|slices| f64::from(*slices) * 4.0 >= slots).unwrap_or(32) as usize
}

/// Numbers as a struct of 32-bit integers.
pub(crate) fn integers(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as i32).to_ne_bytes()).collect()
}
