//! How products on ordinary arithmetic units (`include/product.cuh`) are cut into blocks.

use crate::tensor::DType;

/// What a block computes, and how fast a multiprocessor full of such blocks is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    pub m: usize,
    pub n: usize,
    thread_m: usize,
    thread_n: usize,
    slices: usize,
    /// Blocks that a multiprocessor holds at once.
    resident: usize,
    /// Products a cycle of a multiprocessor, of 128.
    rate: f64,
}

/// Large tiles read each operand less often; small ones leave fewer multiprocessors idle.
const TILES: [Tile; 5] = [
    Tile { m: 128, n: 128, thread_m: 8, thread_n: 8, slices: 1, resident: 2, rate: 100.0 },
    Tile { m: 128, n: 64, thread_m: 8, thread_n: 8, slices: 1, resident: 4, rate: 95.0 },
    Tile { m: 64, n: 64, thread_m: 8, thread_n: 4, slices: 1, resident: 4, rate: 80.0 },
    Tile { m: 32, n: 32, thread_m: 4, thread_n: 4, slices: 4, resident: 2, rate: 55.0 },
    Tile { m: 32, n: 16, thread_m: 4, thread_n: 4, slices: 8, resident: 2, rate: 40.0 },
];

/// Cycles of one step's way from memory to the arithmetic when nothing else hides it.
const STEP: f64 = 700.0;
/// Cycles from the start of a kernel to its first product, and from its last one to the next kernel's start.
const LAUNCH: f64 = 4000.0;
/// Bytes a cycle of the whole GPU for sums that are written, read and added.
const TRAFFIC: f64 = 1500.0;
/// Parts of a depth begin at a multiple of this: of every tile's step.
pub(crate) const ALIGNED: usize = 64;

impl Tile {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        (self.m / self.thread_m * (self.n / self.thread_n) * self.slices) as u32
    }

    /// The macros that name it to the kernels.
    pub fn macros(&self) -> Vec<(&'static str, String)> {
        let names = ["TILE_M", "TILE_N", "THREAD_M", "THREAD_N", "SLICES", "RESIDENT"];
        let values = [self.m, self.n, self.thread_m, self.thread_n, self.slices, self.resident];
        names.into_iter().zip(values.map(|v| v.to_string())).collect()
    }

    /// Tiles of one product.
    pub fn count(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.m).max(1) * columns.div_ceil(self.n).max(1)
    }
}

/// Products of one kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// Products of these sizes in one launch.
    pub count: usize,
    /// Sums go through memory even when the depth is not divided.
    pub always_finished: bool,
}

/// How the products of one kernel are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cut {
    pub tile: Tile,
    /// Blocks that share a sum.
    pub parts: usize,
    /// Depth of each.
    pub part: usize,
}

impl Products {
    /// The fastest cut by a simple model of the GPU: the busiest multiprocessor decides.
    pub fn cut(&self, dtype: DType, multiprocessors: usize) -> Cut {
        // f64 has registers for half as many sums.
        let tiles = if dtype == DType::F64 { &TILES[2..] } else { &TILES[..] };
        let mut best: Option<(f64, Cut)> = None;
        for &tile in tiles {
            let blocks = tile.count(self.rows, self.columns) * self.count;
            let most = self.depth.div_ceil(4 * ALIGNED).clamp(1, 1024);
            let mut parts = 1;
            while parts <= most {
                let part = self.depth.div_ceil(parts).next_multiple_of(ALIGNED).max(ALIGNED);
                let parts_now = self.depth.div_ceil(part).max(1);
                let time = self.cycles(&tile, blocks * parts_now, parts_now, part, multiprocessors);
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, Cut { tile, parts: parts_now, part }));
                }
                parts = (parts + 1).max(parts * 5 / 4);
            }
        }
        best.map_or(Cut { tile: TILES[0], parts: 1, part: ALIGNED }, |(_, cut)| cut)
    }

    fn cycles(&self, tile: &Tile, blocks: usize, parts: usize, part: usize, multiprocessors: usize) -> f64 {
        let busiest = blocks.div_ceil(multiprocessors.max(1));
        let depth = part.min(self.depth.max(1)) as f64;
        let work = (tile.m * tile.n) as f64 * depth;
        // Fewer blocks than fit leave the arithmetic waiting for memory.
        let full = (busiest.min(tile.resident) as f64 / tile.resident as f64).sqrt();
        let rounds = busiest.div_ceil(tile.resident) as f64;
        let arithmetic = busiest as f64 * work / (tile.rate * full);
        let waiting = rounds * (depth / (8 * tile.slices) as f64 * STEP + LAUNCH / 4.0);
        let adding = if parts > 1 || self.always_finished {
            let sums = (self.rows * self.columns * self.count) as f64 * 8.0 * parts as f64;
            LAUNCH + sums / TRAFFIC
        } else {
            0.0
        };
        arithmetic.max(waiting) + adding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rows: usize, columns: usize, depth: usize) -> Cut {
        Products { rows, columns, depth, count: 1, always_finished: false }.cut(DType::F32, 132)
    }

    #[test]
    fn large_products_take_large_tiles_and_thin_ones_share_their_sums() {
        assert_eq!((cut(4096, 4096, 4096).tile.m, cut(4096, 4096, 4096).parts), (128, 1));
        assert!(cut(64, 64, 100_000).parts > 16);
        assert_eq!(cut(128, 10, 256).parts, 1);
    }

    #[test]
    fn parts_cover_the_depth() {
        for depth in [0, 1, 63, 64, 65, 1000, 12_345] {
            let cut = cut(100, 100, depth);
            assert!(cut.parts * cut.part >= depth && (cut.parts - 1) * cut.part < depth.max(1));
            assert_eq!(cut.part % ALIGNED, 0);
        }
    }
}
