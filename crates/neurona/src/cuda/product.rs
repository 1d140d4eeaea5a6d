//! How products (`include/product.cuh`, `include/tensor_product.cuh`) are cut into blocks.

use super::Gpu;
use crate::tensor::DType;

/// What a block computes, and how fast a multiprocessor full of such blocks is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    pub m: usize,
    pub n: usize,
    /// Sums of a thread, or of a warp on tensor cores.
    share: (usize, usize),
    slices: usize,
    /// Blocks that a multiprocessor holds at once.
    resident: usize,
    /// Products a cycle of a multiprocessor.
    rate: f64,
    tensor_cores: bool,
}

const fn tile(m: usize, n: usize, share: (usize, usize), slices: usize, resident: usize, rate: f64) -> Tile {
    Tile { m, n, share, slices, resident, rate, tensor_cores: false }
}

const fn tensor_tile(m: usize, n: usize, share: (usize, usize), slices: usize, resident: usize, rate: f64) -> Tile {
    Tile { m, n, share, slices, resident, rate, tensor_cores: true }
}

/// Large tiles read each operand less often; small ones leave fewer multiprocessors idle.
const TILES: [Tile; 7] = [
    tile(128, 128, (16, 8), 1, 2, 90.0),
    tile(128, 64, (8, 8), 1, 3, 86.0),
    tile(64, 128, (8, 8), 1, 3, 87.0),
    tile(64, 64, (8, 8), 1, 6, 84.0),
    tile(128, 32, (8, 4), 1, 4, 68.0),
    tile(32, 32, (4, 4), 4, 2, 50.0),
    tile(32, 16, (4, 4), 8, 2, 40.0),
];

/// f64 has registers for half as many sums, and shared memory for half as deep a step.
const F64_TILES: [Tile; 2] = [tile(64, 64, (8, 4), 1, 2, 30.0), tile(32, 32, (4, 4), 4, 1, 20.0)];

const TENSOR_TILES: [Tile; 6] = [
    tensor_tile(128, 128, (64, 64), 1, 2, 700.0),
    tensor_tile(128, 64, (64, 32), 1, 3, 600.0),
    tensor_tile(64, 128, (32, 64), 1, 3, 600.0),
    tensor_tile(64, 64, (32, 32), 1, 4, 450.0),
    tensor_tile(128, 32, (32, 32), 1, 4, 350.0),
    tensor_tile(32, 32, (32, 32), 4, 4, 200.0),
];

/// Values that come one by one pass through registers, and short pieces need many addresses: larger tiles have no room for
/// them.
const NARROW_TENSOR_TILES: [Tile; 3] = [
    tensor_tile(64, 64, (32, 32), 1, 2, 200.0),
    tensor_tile(128, 32, (32, 32), 1, 2, 180.0),
    tensor_tile(32, 32, (32, 32), 4, 2, 100.0),
];

/// Cycles of one step's way from memory to the arithmetic when nothing else hides it.
const STEP: f64 = 700.0;
/// The same on tensor cores, where more steps are on their way.
const TENSOR_STEP: f64 = 300.0;
/// Cycles from the start of a kernel to its first product, and from its last one to the next kernel's start.
const LAUNCH: f64 = 4000.0;
/// Bytes a cycle of the whole GPU for sums that are written, read and added.
const TRAFFIC: f64 = 1500.0;
/// Parts of a depth begin at a multiple of this: of every tile's step.
pub(crate) const ALIGNED: usize = 64;

impl Tile {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let shares = self.m / self.share.0 * (self.n / self.share.1) * self.slices;
        (if self.tensor_cores { 32 * shares } else { shares }) as u32
    }

    /// The macros that name it to the kernels.
    pub fn macros(&self) -> Vec<(&'static str, String)> {
        let names = ["TENSOR_CORES", "TILE_M", "TILE_N", "SHARE_M", "SHARE_N", "SLICES", "RESIDENT"];
        let tensor_cores = usize::from(self.tensor_cores);
        let values = [tensor_cores, self.m, self.n, self.share.0, self.share.1, self.slices, self.resident];
        names.into_iter().zip(values.map(|v| v.to_string())).collect()
    }

    /// What candidates that use it are called.
    pub fn candidate(&self) -> String {
        if self.tensor_cores { "own tensor cores".into() } else { "own".into() }
    }

    /// Neighbouring values that it keeps together.
    pub fn run(&self) -> usize {
        if self.tensor_cores { 8 } else { 4 }
    }

    /// Values of an operand that are read at once where rows of `size` follow each other.
    pub fn piece(&self, size: usize) -> usize {
        let pieces: &[usize] = if self.tensor_cores { &[8, 4, 2] } else { &[4] };
        pieces.iter().copied().find(|piece| size.is_multiple_of(*piece)).unwrap_or(1)
    }

    /// The type of operands that were packed for it.
    pub fn packed(&self, dtype: DType) -> DType {
        match dtype {
            DType::F64 => DType::F64,
            _ if self.tensor_cores => dtype,
            _ => DType::F32,
        }
    }

    /// Depth of a step.
    fn step(&self) -> usize {
        // `DEPTH` in the headers.
        if self.tensor_cores { (16 * self.slices).max(32) } else { 8 * self.slices }
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

/// The units that a product can run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub dtype: DType,
    pub tensor_cores: bool,
    pub multiprocessors: usize,
}

impl Units {
    /// The fastest that a GPU has for a type.
    pub fn of(gpu: &Gpu, dtype: DType) -> Units {
        let tensor_cores = gpu.capability() >= (8, 0) && matches!(dtype, DType::F16 | DType::BF16);
        Units { dtype, tensor_cores, multiprocessors: gpu.multiprocessors() }
    }

    /// The same GPU's ordinary units.
    pub fn ordinary(self) -> Units {
        Units { tensor_cores: false, ..self }
    }

    /// Tiles for operands whose rows in memory have these sizes.
    fn tiles(&self, rows: [usize; 2]) -> &'static [Tile] {
        match (self.dtype, self.tensor_cores) {
            (DType::F64, _) => &F64_TILES,
            (_, false) => &TILES,
            _ if rows.iter().all(|size| size.is_multiple_of(8)) => &TENSOR_TILES,
            _ => &NARROW_TENSOR_TILES,
        }
    }
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
    /// The fastest cut by a simple model of the GPU: the busiest multiprocessor decides. `rows`: sizes of the operands'
    /// rows in memory.
    pub fn cut(&self, units: Units, rows: [usize; 2]) -> Cut {
        let tiles = units.tiles(rows);
        let mut best: Option<(f64, Cut)> = None;
        for &tile in tiles {
            let blocks = tile.count(self.rows, self.columns) * self.count;
            let most = self.depth.div_ceil(4 * ALIGNED).clamp(1, 1024);
            let mut parts = 1;
            while parts <= most {
                let part = self.depth.div_ceil(parts).next_multiple_of(ALIGNED).max(ALIGNED);
                let parts_now = self.depth.div_ceil(part).max(1);
                let time = self.cycles(&tile, blocks * parts_now, parts_now, part, units.multiprocessors);
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, Cut { tile, parts: parts_now, part }));
                }
                parts = (parts + 1).max(parts * 5 / 4);
            }
        }
        best.map_or(Cut { tile: tiles[0], parts: 1, part: ALIGNED }, |(_, cut)| cut)
    }

    fn cycles(&self, tile: &Tile, blocks: usize, parts: usize, part: usize, multiprocessors: usize) -> f64 {
        let busiest = blocks.div_ceil(multiprocessors.max(1));
        let depth = part.min(self.depth.max(1)) as f64;
        let work = (tile.m * tile.n) as f64 * depth;
        // Fewer blocks than fit leave the arithmetic waiting for memory.
        let full = (busiest.min(tile.resident) as f64 / tile.resident as f64).sqrt();
        let rounds = busiest.div_ceil(tile.resident) as f64;
        let arithmetic = busiest as f64 * work / (tile.rate * full);
        let step = if tile.tensor_cores { TENSOR_STEP } else { STEP };
        let waiting = rounds * (depth / tile.step() as f64 * step + LAUNCH / 4.0);
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
        let units = Units { dtype: DType::F32, tensor_cores: false, multiprocessors: 132 };
        Products { rows, columns, depth, count: 1, always_finished: false }.cut(units, [depth, depth])
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

    #[test]
    fn tensor_cores_take_large_tiles_where_runs_stay_together() {
        let units = Units { dtype: DType::BF16, tensor_cores: true, multiprocessors: 132 };
        let products = Products { rows: 4096, columns: 4096, depth: 4096, count: 1, always_finished: false };
        let (even, odd) = (products.cut(units, [4096, 4096]).tile, products.cut(units, [4096, 4095]).tile);
        assert_eq!((even.m, even.n, even.threads()), (128, 128, 128));
        assert!(odd.m * odd.n <= 64 * 64 && odd.tensor_cores);
        assert!(!products.cut(units.ordinary(), [4096, 4096]).tile.tensor_cores);
        assert_eq!([even.piece(24), even.piece(12), even.piece(6), even.piece(3)], [8, 4, 2, 1]);
    }
}
