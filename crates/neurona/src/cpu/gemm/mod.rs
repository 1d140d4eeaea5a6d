//! Matrix products on CPU cores: `C = A·B`, each operand plain or transposed, with bias and
//! activation in the same pass.
//!
//! Four ways, chosen by shape: dot products along contiguous rows when few rows meet a
//! transposed right operand (a linear layer with a small batch in training: the weights are read once and
//! never copied); tiles straight from the right operand when it is not transposed and there are
//! few rows, for very few rows in parts of the reduction that are added up afterwards; tiles from packed panels
//! otherwise. The left operand's values are broadcast one at a
//! time, so its layout costs little, and it is packed only where its rows would push each other
//! out of the L1 cache.

pub(crate) mod micro;
mod packing;
pub(crate) mod panel;
mod reference;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod vector;

pub use reference::MatMulReference;

use crate::cpu::kernel::{Io, Kernel, Prepared, share};
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::{Error, Result};
use micro::{Ahead, Dot, Start, Tile, dots};
use num_traits::Float;
use packing::Packing;
pub(crate) use packing::crowded;
use panel::{Panel, panels};
use std::ops::Range;

/// What happens to a result before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// Negative values become zero.
    Relu,
    /// And those above 6 become 6.
    Relu6,
}

impl Activation {
    /// Its value at `x`; a NaN stays one.
    pub fn apply<T: Float>(self, x: T) -> T {
        let positive = if self != Activation::None && x < T::zero() { T::zero() } else { x };
        match T::from(6) {
            Some(most) if self == Activation::Relu6 && positive > most => most,
            _ => positive,
        }
    }

    /// The least and the greatest value that there is behind it, if it changes any.
    pub(crate) fn limits(self) -> Option<[f32; 2]> {
        match self {
            Activation::None => None,
            Activation::Relu => Some([0.0, f32::INFINITY]),
            Activation::Relu6 => Some([0.0, 6.0]),
        }
    }

    /// Whether it is relu, for kernels on GPUs, which know no other.
    pub(crate) fn is_relu(self, op: &'static str) -> Result<bool> {
        match self {
            Activation::None => Ok(false),
            Activation::Relu => Ok(true),
            Activation::Relu6 => Err(Error::op(op, "has no relu6 of its own on GPUs")),
        }
    }

    /// What names of steps end with.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Activation::None => "",
            Activation::Relu => "·relu",
            Activation::Relu6 => "·relu6",
        }
    }
}

/// The nearest value between two limits; a NaN stays one.
#[inline(always)]
pub(crate) fn within<T: Float>(x: T, [least, most]: [T; 2]) -> T {
    let x = if x < least { least } else { x };
    if x > most { most } else { x }
}

/// Where the elements of a (batch of) matrices lie, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatLayout {
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next; it or `row` is 1.
    pub col: usize,
    /// From one matrix to the next; 0 when all are the same.
    pub batch: usize,
}

/// Steps of the reduction between visits to the result: a packed panel of so many lies in the
/// L2 cache beside the rows it meets.
pub(crate) const DEPTH: usize = 512;

/// Rows of the left operand that meet one panel after the other: of `DEPTH` steps they lie in the L2 cache.
const HIGH: usize = 128;

/// A right operand of so few rows is not packed: a panel of it lies in the L1 cache as it is.
const SHALLOW: usize = 64;

/// Packed floats that caches hold. Beyond them few rows wait for memory, whichever way they are multiplied.
const CACHED: usize = 4 << 20;
/// A right operand of more floats than this does not stay in the L2 cache: read where it lies, it comes in as rows.
pub(crate) const LARGE: usize = 1 << 18;

/// Bands of rows that a result has at least when its rows are shared out: for so many threads one each.
const BANDS: usize = 16;

/// Rows that are few beside the right operand: parts of its sums are small beside it.
const THIN: usize = 8;

/// How a product is computed.
enum Way {
    Dot,
    /// In so many parts of the reduction, each straight, which are then added up.
    Parts(usize),
    /// So many steps of the reduction at a time.
    Straight(usize),
    Packed(Packing),
}

/// A matrix product with `f32` elements: inputs `a`, `b` and, when asked, a bias of `n`;
/// output `[batch, m, n]`, row-major, overwritten.
pub struct MatMul {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    a: MatLayout,
    b: MatLayout,
    bias: bool,
    masked: bool,
    activation: Activation,
    way: Way,
    /// Blocks of rows and of columns (or panels) of one matrix: one task each.
    grid: (usize, usize),
    /// Neighbouring tasks share rows and not columns.
    by_rows: bool,
    panels: Vec<Panel>,
    /// Where each row of `a` and of the result starts.
    a_rows: Vec<usize>,
    c_rows: Vec<usize>,
}

impl MatMul {
    /// `batch` products of an `m × k` and a `k × n` matrix.
    ///
    /// ```
    /// use neurona::cpu::gemm::{Activation, MatLayout, MatMul};
    /// use neurona::cpu::kernel::{Buf, Io, Kernel};
    /// let plain = |columns| MatLayout { row: columns, col: 1, batch: 0 };
    /// let product = MatMul::new(1, 1, 2, 2, plain(2), plain(2), false, Activation::None);
    /// let (mut a, mut b, mut c) = ([1f32, 2.0], [1f32, 2.0, 3.0, 4.0], [0f32; 2]);
    /// let mut shared = vec![0f32; product.workspace() / 4];
    /// for (phase, tasks) in product.phases().into_iter().enumerate() {
    ///     for task in 0..tasks {
    ///         product.run(phase, task, &Io {
    ///             inputs: &[Buf::over(&mut a), Buf::over(&mut b)],
    ///             outputs: &[Buf::over(&mut c)],
    ///             workspace: Buf::over(&mut shared),
    ///             scratch: Buf::empty(),
    ///         });
    ///     }
    /// }
    /// assert_eq!(c, [7.0, 10.0]);
    /// ```
    pub fn new(
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        a: MatLayout,
        b: MatLayout,
        bias: bool,
        activation: Activation,
    ) -> Self {
        Self::of(batch, m, n, k, a, b, bias, activation, false, false)
    }

    /// The same. Packing costs nothing when the right operand `lasts` from run to run. When it is `masked`, the third input
    /// is no bias but a matrix of the result's size: where that is not above zero, the result becomes zero.
    pub(crate) fn of(
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        a: MatLayout,
        b: MatLayout,
        bias: bool,
        activation: Activation,
        lasts: bool,
        masked: bool,
    ) -> Self {
        let panels = panels(n);
        let tasks = task_count(2 * batch * m * n * k).div_ceil(batch.max(1));
        let dots = dots();
        let tallest = panels.first().map_or(1, |p| p.width.rows());
        let packed = lasts && (m > dots.len() || n * k <= CACHED);
        // The larger of the right operand and the result stays with its thread. A large right operand, layers' weights,
        // does as columns, which mostly a thread has packed itself; a large result, weights' gradients, as rows: whoever
        // comes next reads it in the order of its elements.
        let by_rows = k < m;
        let least = if by_rows { BANDS } else { 1 };
        let plain = batch == 1 && !bias && activation == Activation::None && !lasts;
        let parts = parts(m, n, k);
        let (way, grid) = if b.col == 1 && plain && parts > 1 {
            (Way::Parts(parts), (1, parts))
        } else if b.col != 1 && a.col == 1 && m <= 8 * dots.len() && !packed && !masked {
            (Way::Dot, (1, tasks.min(n.div_ceil(4)).max(1)))
        } else {
            let rows = m.div_ceil(tallest);
            if b.col == 1 && (m <= 4 * tallest || k <= SHALLOW) {
                let (mut depth, mut blocks) = (DEPTH, panels.len());
                let crowded = crowded(16, b.row);
                // Memory is read along its rows: few steps at a time over many columns. The fewest where rows of the
                // operand meet in the caches and are fetched ahead only to be pushed out; but with more rows on the
                // left the result would be fetched too often.
                if k * n >= LARGE && (m <= 8 || !crowded) {
                    depth = if m > 8 { 256 } else { 128 };
                    if m <= 2 && crowded {
                        depth = 8;
                    }
                    blocks = panels.len().div_ceil(8).max(panels.len().min(4));
                }
                (Way::Straight(depth), grid(tasks, m, n, rows, blocks, least))
            } else {
                let packing = Packing::new(tallest, batch, m, n, k, a, b, lasts);
                (Way::Packed(packing), grid(tasks, m, n, rows, panels.len(), least))
            }
        };
        let a_row = if let Way::Packed(packing) = &way { packing.left_row() } else { a.row };
        let a_rows = (0..m).map(|i| i * a_row).collect();
        let c_rows = (0..m).map(|i| i * n).collect();
        MatMul { batch, m, n, k, a, b, bias, masked, activation, way, grid, by_rows, panels, a_rows, c_rows }
    }

    fn tiles(&self, task: usize, io: &Io<'_>) {
        let (rows, columns) = self.grid;
        let (matrix, block) = (task / (rows * columns), task % (rows * columns));
        let (row, column) =
            if self.by_rows { (block / columns, block % columns) } else { (block % rows, block / rows) };
        let rows = share(self.m, rows, row);
        let panels = &self.panels[share(self.panels.len(), columns, column)];
        let depth = if let Way::Straight(depth) = self.way { depth } else { DEPTH };
        let blocks = self.k.div_ceil(depth).max(1);
        let chunks = rows.len().div_ceil(HIGH);
        for depth in 0..blocks {
            let steps = share(self.k, blocks, depth);
            for chunk in 0..chunks {
                let part = share(rows.len(), chunks, chunk);
                let part = rows.start + part.start..rows.start + part.end;
                for panel in panels {
                    let to = io.outputs[0].ptr::<f32>().wrapping_add(matrix * self.m * self.n);
                    self.tile(matrix, panel, part.clone(), steps.clone(), steps.start == 0, to, io);
                    if self.masked && steps.end == self.k {
                        self.mask(matrix, panel, part.clone(), io);
                    }
                }
            }
        }
    }

    /// Masks what has just been computed, while it is in the first cache.
    fn mask(&self, matrix: usize, panel: &Panel, rows: Range<usize>, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || {
                for row in rows {
                    let at = (matrix * self.m + row) * self.n + panel.start;
                    mask(at..at + panel.columns, io);
                }
            },
        );
    }

    /// A part of the reduction, for all rows and columns, in the workspace.
    fn part(&self, parts: usize, part: usize, io: &Io<'_>) {
        let steps = share(self.k, parts, part);
        let to = io.workspace.ptr::<f32>().wrapping_add(part * self.m * self.n);
        for panel in &self.panels {
            self.tile(0, panel, 0..self.m, steps.clone(), true, to, io);
        }
    }

    /// Adds the parts of some elements up, in the order of the reduction.
    fn join(&self, parts: usize, task: usize, io: &Io<'_>) {
        let own = share(self.m * self.n, joins(parts, self.m * self.n), task);
        add_parts(parts, own, self.masked, io);
    }

    /// These steps of the sums of these rows and of a panel's columns, from the beginning or added to what is there, in a
    /// matrix that starts at `to`.
    fn tile(
        &self,
        matrix: usize,
        panel: &Panel,
        rows: Range<usize>,
        steps: Range<usize>,
        fresh: bool,
        to: *mut f32,
        io: &Io<'_>,
    ) {
        let packing = if let Way::Packed(packing) = &self.way { Some(packing) } else { None };
        let (b, b_step) = match packing {
            Some(packing) => (packing.right(io, matrix, panel, steps.start), panel.width.columns),
            None => {
                let at = matrix * self.b.batch + steps.start * self.b.row + panel.start;
                (io.inputs[1].ptr::<f32>().wrapping_add(at), self.b.row)
            }
        };
        let start = match (fresh, self.bias) {
            (true, true) => Start::Bias(io.inputs[2].ptr::<f32>().wrapping_add(panel.start)),
            (true, false) => Start::Zero,
            _ => Start::Sum,
        };
        let a = packing.and_then(|packing| packing.left(io, matrix, steps.start)).unwrap_or_else(|| {
            io.inputs[0].ptr::<f32>().wrapping_add(matrix * self.a.batch + steps.start * self.a.col)
        });
        let tile = Tile {
            a,
            a_rows: std::ptr::null(),
            a_segments: &0,
            a_step: self.a.col,
            segments: 1,
            length: steps.len(),
            b,
            b_segments: &0,
            b_step,
            c: to.wrapping_add(panel.start),
            c_rows: std::ptr::null(),
            columns: 0,
            start,
            limits: self.activation.limits().filter(|_| steps.end == self.k),
            far: false,
            ahead: Ahead::NOTHING,
        };
        // SAFETY: offsets stay inside the operands by their layouts; this task alone writes these rows and columns of
        // the result.
        unsafe { panel.rows(tile, &self.a_rows[rows.clone()], &self.c_rows[rows]) };
    }

    fn dots(&self, task: usize, io: &Io<'_>) {
        let (matrix, block) = (task / self.grid.1, task % self.grid.1);
        // Whole groups of four columns a task, as the kernel takes them four at a time.
        let groups = share(self.n.div_ceil(4), self.grid.1, block);
        let dots = dots();
        let tallest = dots.len();
        let blocks = self.m.div_ceil(tallest);
        // So many rows of the right operand stay in the L1 cache while all left rows meet them.
        let at_once = (4096 / self.k.max(1)).max(1);
        for first in groups.clone().step_by(at_once) {
            let columns = first * 4..((first + at_once).min(groups.end) * 4).min(self.n);
            for block in 0..blocks {
                let rows = share(self.m, blocks, block);
                let bias = if self.bias {
                    io.inputs[2].ptr::<f32>().wrapping_add(columns.start)
                } else {
                    std::ptr::null_mut()
                };
                let at = (matrix * self.m + rows.start) * self.n + columns.start;
                let dot = Dot {
                    a: (io.inputs[0].ptr::<f32>()).wrapping_add(matrix * self.a.batch + rows.start * self.a.row),
                    a_row: self.a.row,
                    b: (io.inputs[1].ptr::<f32>()).wrapping_add(matrix * self.b.batch + columns.start * self.b.col),
                    b_row: self.b.col,
                    length: self.k,
                    c: io.outputs[0].ptr::<f32>().wrapping_add(at),
                    c_row: self.n,
                    columns: columns.len(),
                    bias,
                    limits: self.activation.limits(),
                };
                // SAFETY: as for tiles; the kernel is of the instruction set in use.
                unsafe { dots[rows.len() - 1].1(&dot) };
            }
        }
    }
}

/// Parts of the reduction that a product of few rows by a large matrix is cut into, layers' weights in the order of their
/// memory. A thread then has the same rows of the weights as in a layer's forward product and its update: whole ones. Read
/// by columns, each half of them would come from another core's cache, and go back when it is next written.
pub(crate) fn parts(m: usize, n: usize, k: usize) -> usize {
    if m == 0 || m > THIN || k * n >= LARGE {
        return 1;
    }
    // What it takes to bring a weight to the registers counts as so many multiplications.
    let tasks = n * k * (m + 4) / 80_000;
    // As many for one thread as for another.
    let most = tasks.min(BANDS).min(k / (2 * m));
    1 << most.checked_ilog2().unwrap_or(0)
}

/// Tasks that add up so many parts of so many elements.
pub(crate) fn joins(parts: usize, elements: usize) -> usize {
    pieces(parts * elements)
}

/// Adds up the parts of these elements, which are one behind the other in the workspace, in the order of the reduction;
/// masks them when asked.
pub(crate) fn add_parts(parts: usize, own: Range<usize>, masked: bool, io: &Io<'_>) {
    // SAFETY: parts were written in the earlier phase; these elements of the result belong to this task.
    let (sums, out) = unsafe { (io.workspace.slice::<f32>(), io.outputs[0].slice_mut::<f32>(own.clone())) };
    let size = sums.len() / parts;
    vectorized(
        #[inline(always)]
        || {
            out.copy_from_slice(&sums[own.clone()]);
            for part in 1..parts {
                let more = &sums[part * size..][own.clone()];
                out.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            if masked {
                mask(own.clone(), io);
            }
        },
    );
}

/// Masks elements of the result that belong to the running task, by the third operand.
#[inline(always)]
pub(crate) fn mask(own: Range<usize>, io: &Io<'_>) {
    // SAFETY: nobody writes an input; these elements belong to this task.
    let (mask, out) = unsafe { (&io.inputs[2].slice::<f32>()[own.clone()], io.outputs[0].slice_mut::<f32>(own)) };
    for (value, mask) in out.iter_mut().zip(mask) {
        *value = if *mask > 0.0 { *value } else { 0.0 };
    }
}

/// Tasks for so much arithmetic: enough for many threads, none too small to be worth a hand-over.
pub(crate) fn task_count(flops: usize) -> usize {
    (flops / 60_000).clamp(1, 64)
}

/// Cuts `m × n` into at least `tasks` blocks, as square as can be: a block's operands are read once. As far as that goes,
/// `least_rows` blocks lie one below the other.
fn grid(tasks: usize, m: usize, n: usize, most_rows: usize, most_columns: usize, least_rows: usize) -> (usize, usize) {
    let tasks = tasks.min(most_rows * most_columns).max(1);
    let columns = |rows: usize| tasks.div_ceil(rows).min(most_columns.max(1));
    let most_rows = most_rows.clamp(1, tasks);
    (least_rows.min(most_rows)..=most_rows)
        .map(|rows| (rows, columns(rows)))
        .filter(|(rows, columns)| rows * columns >= tasks)
        .min_by_key(|(rows, columns)| m.div_ceil(*rows) + n.div_ceil(*columns))
        .unwrap_or((1, 1))
}

impl Kernel for MatMul {
    fn phases(&self) -> Vec<usize> {
        let tasks = if self.m == 0 || self.n == 0 { 0 } else { self.batch * self.grid.0 * self.grid.1 };
        match &self.way {
            Way::Packed(packing) if tasks > 0 => {
                let mut phases = vec![packing.tasks(); packing.phases()];
                phases.push(tasks);
                phases
            }
            Way::Parts(parts) if tasks > 0 => vec![*parts, joins(*parts, self.m * self.n)],
            _ => vec![tasks],
        }
    }

    fn workspace(&self) -> usize {
        match &self.way {
            Way::Packed(packing) => packing.bytes(),
            Way::Parts(parts) => parts * self.m * self.n * size_of::<f32>(),
            _ => 0,
        }
    }

    fn prepared(&self) -> Option<Prepared> {
        if let Way::Packed(packing) = &self.way { packing.prepared() } else { None }
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        match &self.way {
            Way::Dot => self.dots(task, io),
            Way::Parts(parts) if phase == 0 => self.part(*parts, task, io),
            Way::Parts(parts) => self.join(*parts, task, io),
            Way::Packed(packing) if phase < packing.phases() => packing.run(phase, task, io),
            Way::Straight(_) | Way::Packed(_) => self.tiles(task, io),
        }
    }

    fn flops(&self) -> u64 {
        2 * (self.batch * self.m * self.n * self.k) as u64
    }
}
