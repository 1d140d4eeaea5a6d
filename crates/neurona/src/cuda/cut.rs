//! How work on matrices is cut into blocks, beside `columns.cuh`, `rows.cuh` and `windows.cuh`.

use super::kernel::{Argument, Function, Grid, Launch};
use super::{Gpu, Source, cuda_type};
use crate::Result;
use crate::tensor::DType;

/// Elements that a thread loads at once from rows of this length: a power of two that divides it, at most 16 bytes.
pub(crate) fn vector(dtype: DType, length: usize) -> usize {
    1 << length.trailing_zeros().min((16 / dtype.size()).trailing_zeros())
}

/// The next place in a workspace, where everything begins at a multiple of 256 bytes.
pub(crate) fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// Kernels of one file, compiled with the same macros.
pub(crate) struct Module<'a> {
    pub gpu: &'a Gpu,
    pub source: &'static Source,
    pub macros: Vec<(&'static str, String)>,
}

impl<'a> Module<'a> {
    pub fn new(gpu: &'a Gpu, source: &'static Source) -> Self {
        Module { gpu, source, macros: Vec::new() }
    }

    /// With a type.
    pub fn of(self, name: &'static str, dtype: DType) -> Self {
        self.with(name, cuda_type(dtype))
    }

    /// With a macro.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.macros.push((name, value.to_string()));
        self
    }

    pub fn function(&self, name: &str) -> Result<Function> {
        self.gpu.function(self.source, name, &self.macros)
    }

    pub fn launch(&self, name: &str, grid: Grid, arguments: Vec<Argument>) -> Result<Launch> {
        Ok(Launch { function: self.function(name)?, grid, arguments })
    }
}

/// Sweeps over a matrix `[rows, c]` that treat every column alike: blocks of a strip of columns and a run of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub vector: usize,
    /// Threads across and down.
    pub threads: [usize; 2],
    pub strips: usize,
    pub runs: usize,
    /// Rows of a run; the last may have fewer.
    pub run: usize,
}

/// What a thread does at each row of [`Columns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// Columns at once.
    pub vector: usize,
    /// Threads of a block at most.
    pub threads: usize,
    /// That all rows together read.
    pub bytes: usize,
}

impl Columns {
    /// `COLUMN_THREADS` of `columns.cuh`.
    pub const THREADS: usize = 384;
    /// Strips are a line of memory wide: the narrower they are, the fewer runs keep all multiprocessors busy, and the
    /// less there is to join.
    const ACROSS: usize = 8;

    pub fn new(gpu: &Gpu, dtype: DType, rows: usize, c: usize) -> Self {
        let sweep = Sweep { vector: vector(dtype, c), threads: Self::THREADS, bytes: rows * c * dtype.size() };
        Columns::of(gpu, rows, c, sweep)
    }

    /// Rows that stand for more than their own elements, or need more of a thread.
    pub fn of(gpu: &Gpu, rows: usize, c: usize, sweep: Sweep) -> Self {
        let Sweep { vector, threads, bytes } = sweep;
        let strips = (c / vector).div_ceil(Self::ACROSS);
        let across = (c / vector).div_ceil(strips);
        let down = (threads / across).min(rows.next_power_of_two());
        // One block a multiprocessor is enough for what the cache holds, two hide the latency of memory.
        let waves = if bytes > 16 << 20 { 2 } else { 1 };
        let runs = (gpu.multiprocessors * waves / strips).clamp(1, rows.div_ceil(4 * down).max(1));
        // Without rows there is one run of none: sums over no rows are wanted too.
        let run = rows.div_ceil(runs).max(1);
        Columns { vector, threads: [across, down], strips, runs: rows.div_ceil(run).max(1), run }
    }

    /// Every strip and run.
    pub fn grid(&self) -> Grid {
        let blocks = [self.strips as u32, self.runs as u32, 1];
        Grid { blocks, threads: [self.threads[0] as u32, self.threads[1] as u32, 1], shared: 0 }
    }

    /// Every strip once.
    pub fn strips(&self) -> Grid {
        Grid { blocks: [self.strips as u32, 1, 1], ..self.grid() }
    }

    /// Whether the blocks of a second sweep would read so much when each joined the runs of its own columns (`bytes` a
    /// column and run) that a launch for it is cheaper.
    pub fn joins_first(&self, bytes: usize) -> bool {
        let across = self.threads[0] * self.vector;
        self.strips * self.runs * self.runs * across * bytes > 16 << 20
    }
}

/// Work on the rows of `[rows, n]`: some threads a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub vector: usize,
    pub lanes: usize,
    pub rows: usize,
}

impl Rows {
    pub fn new(dtype: DType, rows: usize, n: usize) -> Self {
        let vector = vector(dtype, n);
        Rows { vector, lanes: lanes(rows, n / vector), rows }
    }

    fn threads(&self) -> usize {
        self.lanes.max(128)
    }

    /// Every row once.
    pub fn grid(&self) -> Grid {
        Grid::line(self.rows.div_ceil(self.threads() / self.lanes), self.threads() as u32)
    }
}

/// Threads for a row of so many vectors: two each while a warp has enough, and whole blocks for few long rows.
pub(crate) fn lanes(rows: usize, vectors: usize) -> usize {
    match vectors {
        0..=64 => vectors.div_ceil(2).next_power_of_two().max(1),
        65..=128 => 32,
        129..=512 if rows >= 1024 => 32,
        129..=8192 => 256,
        _ => 1024,
    }
}
