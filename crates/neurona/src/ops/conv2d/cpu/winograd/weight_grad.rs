//! The gradient for 3×3 filters: windows and output gradients are transformed, multiplied point by point as 36 matrix
//! products over tiles, and the sums are transformed back.

use super::super::weight_grad::column_sums;
use super::grid::Grid;
use super::transform::{Filters, GROUP, POINTS, TAPS, Tile, transforms};
use super::{APART, FILTERS, ON, possible};
use crate::cpu::gemm::micro::{Ahead, Start, Tile as Product};
use crate::cpu::gemm::panel::{Panel, panels};
use crate::cpu::kernel::{Io, share};
use crate::ops::conv2d::cpu::Geometry;
use std::ops::Range;

/// Bytes of transformed tiles that are multiplied at a time: they stay in the last-level cache.
const CHUNK: usize = 8 << 20;
/// Tiles between visits to the sums: both operands' parts stay in the first-level cache.
const DEPTH: usize = 128;
/// Filters of a task that has all points.
const ROWS: usize = 56;
/// No part of a product's sum starts elsewhere.
const START: &[usize] = &[0];

/// Who keeps the sums.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The workspace: a task has one point and all channels, which read the tiles once.
    Points,
    /// The task: it has all points of some channels, and transforms them back at once. Sums of many channels would go
    /// to memory and back.
    Channels,
}

/// Inputs, outputs and sizes are those of the layer's weight gradient.
pub(in super::super) struct WeightGrad {
    grid: Grid,
    groups: usize,
    /// Channels of a group.
    c: usize,
    k: usize,
    with_bias: bool,
    way: Way,
    /// Parts of all tiles that are transformed and multiplied in turn, and most tiles of one.
    chunks: usize,
    chunk: usize,
    /// Tasks that transform a chunk.
    pieces: usize,
    panels: Vec<Panel>,
    /// Blocks of filters, one task each and panel.
    row_blocks: usize,
    /// Tasks that transform sums back.
    finishes: usize,
    /// Where each filter's transformed gradients start.
    a_rows: Vec<usize>,
    /// Where each filter's sums start, in the workspace or by panel in a task's block.
    c_rows: Vec<Vec<usize>>,
}

impl WeightGrad {
    /// The gradient in this way, where it is possible and faster.
    pub fn new(g: Geometry, with_bias: bool) -> Option<Self> {
        if *ON { Self::possible(g, with_bias).filter(Self::faster) } else { None }
    }

    /// The gradient in this way, where it is possible.
    pub fn possible(g: Geometry, with_bias: bool) -> Option<Self> {
        if !possible(&g) {
            return None;
        }
        let (groups, c, k) = (g.groups, g.group_c(), g.group_k());
        let grid = Grid { n: g.n, size: [g.h, g.w], out: [g.oh(), g.ow()], padding: g.padding };
        let total = grid.total();
        let sums = POINTS * groups * c * k * size_of::<f32>();
        let tile = POINTS * groups * (c.next_multiple_of(GROUP) + k.next_multiple_of(GROUP)) * size_of::<f32>();
        let way = if groups == 1 && sums > FILTERS && total * tile <= 2 * sums { Way::Channels } else { Way::Points };
        // Sums are read and written again for each chunk.
        let most = if way == Way::Channels { total } else { CHUNK.max(sums) / tile };
        let chunks = total.div_ceil(most.max(1));
        let chunk = total.div_ceil(chunks);
        let panels = panels(c);
        let a_rows = (0..k).map(|k| k / GROUP * GROUP * chunk + k % GROUP).collect();
        let row_blocks = if way == Way::Channels { k.div_ceil(ROWS) } else { 1 };
        let c_rows = match way {
            Way::Points => vec![(0..k).map(|k| k * c).collect()],
            Way::Channels => {
                let of = |panel: &Panel| (0..k.div_ceil(row_blocks)).map(|k| k * panel.width.columns).collect();
                panels.iter().map(of).collect()
            }
        };
        Some(WeightGrad {
            grid,
            groups,
            c,
            k,
            with_bias,
            way,
            chunks,
            chunk,
            pieces: (POINTS * groups * (c + k) * chunk / 65_536).clamp(1, 64).min(chunk),
            panels,
            row_blocks,
            finishes: if way == Way::Points { (sums / 65_536).clamp(1, 64).min(groups * k) } else { 1 },
            a_rows,
            c_rows,
        })
    }

    /// Whether it costs less than plain sums. For each pair of channels a tile costs 72 operations, and the transforms
    /// of its channels about 500 each; writing sums and transforming them back takes the memory as long as about 1,500
    /// operations.
    fn faster(&self) -> bool {
        let tiles = self.grid.total() as f64;
        let pixels = (self.grid.n * self.grid.out[0] * self.grid.out[1]) as f64;
        let (c, k) = (self.c as f64, self.k as f64);
        self.c.min(self.k) >= 16 && tiles * (72.0 + 500.0 / c + 500.0 / k) + 1500.0 < 0.8 * 18.0 * pixels
    }

    pub fn phases(&self) -> Vec<usize> {
        let products = if self.way == Way::Points { POINTS } else { self.row_blocks * self.panels.len() };
        let mut phases = [self.pieces, products].repeat(self.chunks);
        phases.push(if self.way == Way::Points || self.with_bias { self.finishes } else { 0 });
        phases
    }

    /// Floats of a point of one group's windows, and of its gradients.
    fn group(&self) -> [usize; 2] {
        [self.c, self.k].map(|channels| channels.next_multiple_of(GROUP) * self.chunk)
    }

    /// Floats of a point of the windows and of the gradients, and of the sums.
    fn planes(&self) -> [usize; 3] {
        let sums = if self.way == Way::Points { self.k * self.c } else { 0 };
        let [windows, gradients] = self.group();
        [windows, gradients, sums].map(|floats| self.groups * floats + APART)
    }

    /// Filters of all groups.
    fn all_filters(&self) -> usize {
        self.groups * self.k
    }

    /// Where each of these starts, and then the bias's sums, one row each piece.
    fn places(&self) -> [usize; 4] {
        let [windows, gradients, sums] = self.planes().map(|plane| POINTS * plane);
        [0, windows, windows + gradients, windows + gradients + sums]
    }

    pub fn workspace(&self) -> usize {
        (self.places()[3] + self.pieces * self.all_filters()) * size_of::<f32>()
    }

    /// Columns of the widest panel, and rows of the largest block.
    fn block(&self) -> [usize; 2] {
        let widest = self.panels.iter().map(|p| p.width.columns).max().unwrap_or(0);
        [widest, self.k.div_ceil(self.row_blocks)]
    }

    /// Floats of the nine taps of one filter.
    fn taps(&self) -> usize {
        TAPS * TAPS * (self.c + APART)
    }

    pub fn scratch(&self) -> usize {
        let [widest, rows] = self.block();
        let sums = if self.way == Way::Channels { POINTS * (rows * widest + APART) } else { 0 };
        (self.taps() + sums) * size_of::<f32>()
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        let chunk = phase / 2;
        match (chunk == self.chunks, phase % 2, self.way) {
            (true, ..) => self.finish(task, io),
            (_, 0, _) => self.transform(chunk, task, io),
            (_, _, Way::Points) => self.one_point(chunk, task, io),
            (_, _, Way::Channels) => self.all_points(task, io),
        }
    }

    fn tiles(&self, chunk: usize) -> Range<usize> {
        share(self.grid.total(), self.chunks, chunk)
    }

    /// Transforms some windows and gradients: `[point][group][some of its channels][tile][channel]`.
    fn transform(&self, chunk: usize, task: usize, io: &Io<'_>) {
        let tiles = self.tiles(chunk);
        let [windows, gradients, _] = self.planes();
        let to = io.workspace.ptr::<f32>();
        let [group_windows, group_gradients] = self.group();
        let (x, dy) = (io.inputs[0].ptr::<f32>(), io.inputs[1].ptr::<f32>());
        for i in share(tiles.len(), self.pieces, task) {
            let tile = tiles.start + i;
            for group in 0..self.groups {
                let window = Tile {
                    channels: self.c,
                    points: to.wrapping_add(group * group_windows + i * GROUP),
                    plane: windows,
                    group: self.chunk * GROUP,
                    ..self.grid.window(tile, x.wrapping_add(group * self.c), self.groups * self.c)
                };
                let gradient = Tile {
                    channels: self.k,
                    points: to.wrapping_add(self.places()[1] + group * group_gradients + i * GROUP),
                    plane: gradients,
                    group: self.chunk * GROUP,
                    ..self.grid.pixels(tile, dy.wrapping_add(group * self.k), self.all_filters())
                };
                // SAFETY: no task writes an input, and what lies outside of images is not read; these tiles belong to
                // this task.
                unsafe {
                    (transforms().window)(&window);
                    (transforms().gradient)(&gradient);
                }
            }
        }
        if self.with_bias && chunk == 0 {
            let pixels = share(self.grid.n * self.grid.out[0] * self.grid.out[1], self.pieces, task);
            let k = self.all_filters();
            let at = self.places()[3] + task * k;
            // SAFETY: no task writes an input; this row of sums belongs to this task.
            unsafe {
                let dy = &io.inputs[1].slice::<f32>()[pixels.start * k..pixels.end * k];
                column_sums(io.workspace.slice_mut(at..at + k), dy, k, 0..k);
            }
        }
    }

    /// Multiplies some of a group's filters' gradients by a panel's windows at one point.
    ///
    /// # Safety
    /// The sums belong to the caller, and nobody writes the transformed tiles.
    unsafe fn multiply(
        &self,
        [point, group]: [usize; 2],
        [filters, tiles]: [Range<usize>; 2],
        panel: &Panel,
        (sums, rows): (*mut f32, &[usize]),
        start: Start,
        io: &Io<'_>,
    ) {
        let [windows, gradients, _] = self.planes();
        let [group_windows, group_gradients] = self.group();
        let step = |tile: usize, plane: usize| point * plane + tile * GROUP;
        let channels = panel.start / GROUP * GROUP * self.chunk + panel.start % GROUP;
        let x = io.workspace.ptr::<f32>();
        let product = Product {
            a: x.wrapping_add(self.places()[1] + step(tiles.start, gradients) + group * group_gradients),
            a_rows: std::ptr::null(),
            a_segments: START.as_ptr(),
            a_step: GROUP,
            segments: 1,
            length: tiles.len(),
            b: x.wrapping_add(step(tiles.start, windows) + group * group_windows + channels),
            b_segments: START.as_ptr(),
            b_step: GROUP,
            c: sums,
            c_rows: std::ptr::null(),
            columns: 0,
            start,
            relu: false,
            far: false,
            ahead: Ahead::NOTHING,
        };
        // SAFETY: the caller's promise.
        unsafe { panel.rows(product, &self.a_rows[filters], rows) };
    }

    /// Adds a chunk's products at one point to the sums in the workspace, `[point][group][k][c]`.
    fn one_point(&self, chunk: usize, point: usize, io: &Io<'_>) {
        let tiles = self.tiles(chunk).len();
        let sums = io.workspace.ptr::<f32>().wrapping_add(self.places()[2] + point * self.planes()[2]);
        let parts = tiles.div_ceil(DEPTH);
        for part in 0..parts {
            let start = if chunk + part == 0 { Start::Zero } else { Start::Sum };
            for (group, panel) in (0..self.groups).flat_map(|group| self.panels.iter().map(move |p| (group, p))) {
                let ranges = [0..self.k, share(tiles, parts, part)];
                let at = group * self.k * self.c + panel.start;
                let sums = (sums.wrapping_add(at), &self.c_rows[0][..]);
                // SAFETY: this point's sums belong to this task; no task of this phase writes tiles.
                unsafe { self.multiply([point, group], ranges, panel, sums, start, io) };
            }
        }
    }

    /// Multiplies a panel and some filters at all points, and transforms the sums back.
    fn all_points(&self, task: usize, io: &Io<'_>) {
        let index = task % self.panels.len();
        let panel = &self.panels[index];
        let filters = share(self.k, self.row_blocks, task / self.panels.len());
        let width = panel.width.columns;
        let plane = self.block()[1] * self.block()[0] + APART;
        let sums = io.scratch.ptr::<f32>().wrapping_add(self.taps());
        let rows = &self.c_rows[index][..filters.len()];
        let parts = self.chunk.div_ceil(DEPTH);
        for point in 0..POINTS {
            for part in 0..parts {
                let start = if part == 0 { Start::Zero } else { Start::Sum };
                let ranges = [filters.clone(), share(self.chunk, parts, part)];
                let sums = (sums.wrapping_add(point * plane), rows);
                // SAFETY: the sums lie in this thread's scratch; no task of this phase writes tiles.
                unsafe { self.multiply([point, 0], ranges, panel, sums, start, io) };
            }
        }
        for (i, filter) in filters.enumerate() {
            self.back(sums.wrapping_add(i * width), plane, filter, panel.start..panel.start + panel.columns, io);
        }
    }

    /// Transforms a filter's sums for some channels back.
    fn back(&self, points: *mut f32, plane: usize, filter: usize, channels: Range<usize>, io: &Io<'_>) {
        let (values, tap) = (TAPS * TAPS, channels.len() + APART);
        let taps = io.scratch.ptr::<f32>();
        let count = channels.len();
        let filters = Filters { taps, tap, turned: false, points, plane, count, scale: [1.0; GROUP] };
        // SAFETY: scratch belongs to this thread, and these channels of this filter to this task.
        let (taps, dw) = unsafe {
            (transforms().taps)(&filters);
            let at = filter * self.c * values;
            let dw = io.outputs[0].slice_mut::<f32>(at + channels.start * values..at + channels.end * values);
            (io.scratch.slice_mut::<f32>(0..values * tap), dw)
        };
        for (channel, dw) in dw.chunks_exact_mut(values).enumerate() {
            for (value, taps) in dw.iter_mut().zip(taps.chunks_exact(tap)) {
                *value = taps[channel];
            }
        }
    }

    /// Transforms some filters' sums of the workspace back, and adds up the bias's.
    fn finish(&self, task: usize, io: &Io<'_>) {
        let filters = share(self.all_filters(), self.finishes, task);
        if self.way == Way::Points {
            let sums = io.workspace.ptr::<f32>().wrapping_add(self.places()[2]);
            for filter in filters.clone() {
                self.back(sums.wrapping_add(filter * self.c), self.planes()[2], filter, 0..self.c, io);
            }
        }
        if self.with_bias {
            // SAFETY: no task of this phase writes the workspace; these filters belong to this task.
            let (sums, db) = unsafe {
                (&io.workspace.slice::<f32>()[self.places()[3]..], io.outputs[1].slice_mut::<f32>(filters.clone()))
            };
            for (db, filter) in db.iter_mut().zip(filters) {
                *db = (0..self.pieces).map(|piece| sums[piece * self.all_filters() + filter]).sum();
            }
        }
    }
}
