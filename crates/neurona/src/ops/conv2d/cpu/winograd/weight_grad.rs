//! The gradient for 3×3 filters: windows and output gradients are transformed, multiplied point by point as 36 matrix
//! products over tiles, and the sums are transformed back.

use super::super::weight_grad::{Fresh, sums::column_sums};
use super::grid::Grid;
use super::transform::{Filters, GROUP, POINTS, TAPS, Tile, transforms};
use super::{APART, FILTERS, ON, possible};
use crate::cpu::gemm::micro::{Ahead, Start, Tile as Product};
use crate::cpu::gemm::panel::{Panel, panels};
use crate::cpu::kernel::{Io, share};
use crate::cpu::simd::vectorized;
use crate::ops::conv2d::cpu::Geometry;
use std::ops::Range;

/// Bytes of transformed tiles that are multiplied at a time: they stay in the last-level cache.
const CHUNK: usize = 4 << 20;
/// Tiles between visits to the sums: both operands' parts stay in the first-level cache.
const DEPTH: usize = 128;
/// Filters of a task that has all points.
const ROWS: usize = 56;
/// Bytes of sums that a core's own cache holds beside tiles.
const SUMS: usize = 640 << 10;
/// Bytes of transformed tiles beside them.
const TAKEN: usize = 448 << 10;
/// Tasks with sums of their own, enough to go round, but sums that are soon added up; and tiles at least of each.
const TASKS: usize = 16;
const TILES: usize = 64;
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
    /// The task: it has some images, whose tiles it transforms a few at a time and multiplies at once. They stay in its core's
    /// own cache, where so few sums have room beside them, instead of going to another core's.
    Images,
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
    /// Tasks that transform a chunk, or runs of images that tasks have.
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
        let way = if groups == 1 && sums > FILTERS && total * tile <= 2 * sums {
            Way::Channels
        } else if sums <= SUMS && total >= TASKS * TILES {
            Way::Images
        } else {
            Way::Points
        };
        // Sums are read and written again for each chunk.
        let most = match way {
            Way::Channels => total,
            Way::Points => CHUNK.max(sums) / tile,
            Way::Images => (TAKEN / (POINTS * groups * (c + k) * size_of::<f32>())).clamp(16, DEPTH),
        };
        let chunks = if way == Way::Images { 1 } else { total.div_ceil(most.max(1)) };
        let chunk = if way == Way::Images { most } else { total.div_ceil(chunks) };
        let panels = panels(c);
        let a_rows = (0..k).map(|k| k / GROUP * GROUP * chunk + k % GROUP).collect();
        let row_blocks = if way == Way::Channels { k.div_ceil(ROWS) } else { 1 };
        let c_rows = match way {
            Way::Points | Way::Images => vec![(0..k).map(|k| k * c).collect()],
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
            pieces: match way {
                Way::Images => TASKS,
                _ => (POINTS * groups * (c + k) * chunk / 65_536).clamp(1, 64).min(chunk),
            },
            panels,
            row_blocks,
            finishes: if way == Way::Channels { 1 } else { (sums / 65_536).clamp(1, 64).min(groups * k) },
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
        let mut phases = match self.way {
            Way::Points => [self.pieces, POINTS].repeat(self.chunks),
            Way::Channels => [self.pieces, self.row_blocks * self.panels.len()].repeat(self.chunks),
            Way::Images => vec![self.pieces],
        };
        phases.push(if self.way != Way::Channels || self.with_bias { self.finishes } else { 0 });
        phases
    }

    /// Floats of a point of one group's windows, and of its gradients.
    fn group(&self) -> [usize; 2] {
        [self.c, self.k].map(|channels| channels.next_multiple_of(GROUP) * self.chunk)
    }

    /// Floats of a point of the windows and of the gradients, and of the sums.
    fn planes(&self) -> [usize; 3] {
        let sums = if self.way == Way::Channels { 0 } else { self.k * self.c };
        let [windows, gradients] = self.group();
        [windows, gradients, sums].map(|floats| self.groups * floats + APART)
    }

    /// Filters of all groups.
    fn all_filters(&self) -> usize {
        self.groups * self.k
    }

    /// Floats of the transformed windows of a chunk, of its gradients too, and of the sums.
    fn sizes(&self) -> [usize; 3] {
        let [windows, gradients, sums] = self.planes().map(|plane| POINTS * plane);
        [windows, windows + gradients, sums]
    }

    /// Where the sums of a task's images, or all, start in the workspace; behind the last the bias's, one row each piece.
    fn sums_at(&self, task: usize) -> usize {
        let [_, tiles, sums] = self.sizes();
        if self.way == Way::Images { task * sums } else { tiles + task * sums }
    }

    fn bias_at(&self) -> usize {
        self.sums_at(if self.way == Way::Images { self.pieces } else { 1 })
    }

    pub fn workspace(&self) -> usize {
        (self.bias_at() + self.pieces * self.all_filters()) * size_of::<f32>()
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
        let more = match self.way {
            Way::Points => 0,
            Way::Channels => POINTS * (rows * widest + APART),
            Way::Images => self.sizes()[1].max(POINTS * (self.c + APART)),
        };
        (self.taps() + more) * size_of::<f32>()
    }

    /// Whether each task has images of its own, none of which another one needs.
    pub fn has_images(&self) -> bool {
        self.way == Way::Images && self.grid.n.is_multiple_of(self.pieces)
    }

    /// The first phase with gradients by the output that are made where they are needed. Their memory is an input all the
    /// same.
    pub fn run_fresh(&self, task: usize, io: &Io<'_>, fresh: &Fresh<'_>) {
        assert!(self.has_images());
        self.some_images(task, io, Some(fresh));
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        let chunk = phase / 2;
        match (self.way, phase % 2) {
            (Way::Images, 0) => self.some_images(task, io, None),
            (Way::Images, _) => self.finish(task, io),
            _ if chunk == self.chunks => self.finish(task, io),
            (_, 0) => self.transform(chunk, task, io),
            (Way::Points, _) => self.one_point(chunk, task, io),
            (Way::Channels, _) => self.all_points(task, io),
        }
    }

    fn tiles(&self, chunk: usize) -> Range<usize> {
        share(self.grid.total(), self.chunks, chunk)
    }

    /// Transforms some windows and gradients of a chunk.
    fn transform(&self, chunk: usize, task: usize, io: &Io<'_>) {
        let tiles = self.tiles(chunk);
        let own = share(tiles.len(), self.pieces, task);
        let run = [self.chunks * self.pieces, chunk * self.pieces + task];
        self.add_bias([task, chunk], run, io);
        self.take(tiles.start + own.start..tiles.start + own.end, own.start, io.workspace.ptr(), io);
    }

    /// Adds one of some equal runs of all pixels to a row of the bias's sums, which begins with the first chunk. These are
    /// about the pixels whose tiles are transformed next.
    fn add_bias(&self, [row, chunk]: [usize; 2], [runs, run]: [usize; 2], io: &Io<'_>) {
        if !self.with_bias {
            return;
        }
        let pixels = share(self.grid.n * self.grid.out[0] * self.grid.out[1], runs, run);
        let k = self.all_filters();
        let at = self.bias_at() + row * k;
        // SAFETY: no task writes an input; these sums belong to the task.
        let (sums, dy) = unsafe {
            let sums = io.workspace.slice_mut::<f32>(at..at + k);
            (sums, &io.inputs[1].slice::<f32>()[pixels.start * k..pixels.end * k])
        };
        if chunk == 0 {
            sums.fill(0.0);
        }
        column_sums(sums, dy, k, 0..k);
    }

    /// Transforms windows and gradients to `[point][group][some of its channels][tile][channel]`, from a tile of the chunk on.
    fn take(&self, tiles: Range<usize>, first: usize, to: *mut f32, io: &Io<'_>) {
        let [windows, gradients, _] = self.planes();
        let [group_windows, group_gradients] = self.group();
        let (x, dy) = (io.inputs[0].ptr::<f32>(), io.inputs[1].ptr::<f32>());
        for (i, tile) in tiles.enumerate() {
            let at = (first + i) * GROUP;
            for group in 0..self.groups {
                let window = Tile {
                    channels: self.c,
                    points: to.wrapping_add(group * group_windows + at),
                    plane: windows,
                    group: self.chunk * GROUP,
                    ..self.grid.window(tile, x.wrapping_add(group * self.c), self.groups * self.c)
                };
                let gradient = Tile {
                    channels: self.k,
                    points: to.wrapping_add(self.sizes()[0] + group * group_gradients + at),
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
    }

    /// Multiplies some of a group's filters' gradients by a panel's windows at one point, of the tiles `taken`.
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
        ahead: Ahead,
        taken: *const f32,
    ) {
        let [windows, gradients, _] = self.planes();
        let [group_windows, group_gradients] = self.group();
        let step = |tile: usize, plane: usize| point * plane + tile * GROUP;
        let channels = panel.start / GROUP * GROUP * self.chunk + panel.start % GROUP;
        let product = Product {
            a: taken.wrapping_add(self.sizes()[0] + step(tiles.start, gradients) + group * group_gradients),
            a_rows: std::ptr::null(),
            a_segments: START.as_ptr(),
            a_step: GROUP,
            segments: 1,
            length: tiles.len(),
            b: taken.wrapping_add(step(tiles.start, windows) + group * group_windows + channels),
            b_segments: START.as_ptr(),
            b_step: GROUP,
            c: sums,
            c_rows: std::ptr::null(),
            columns: 0,
            start,
            limits: None,
            far: false,
            ahead,
        };
        // SAFETY: the caller's promise.
        unsafe { panel.rows(product, &self.a_rows[filters], rows) };
    }

    /// What one of a point's products asks for: some pixels of tiles that are transformed next. Each point asks for as much,
    /// and those that come first for what comes first: about the images that this thread transforms then.
    fn ahead(
        &self,
        next: Range<usize>,
        point: usize,
        [products, product]: [usize; 2],
        columns: usize,
        [x_from, dy_from]: [*const f32; 2],
    ) -> Ahead {
        if next.is_empty() {
            return Ahead::NOTHING;
        }
        let floats = |pixels: Range<usize>, channels: usize| {
            let own = share(pixels.len(), POINTS, point);
            (pixels.start + own.start) * channels..(pixels.start + own.end) * channels
        };
        let x = floats(self.grid.taken(next.clone()), self.groups * self.c);
        let dy = floats(self.grid.given(next), self.all_filters());
        let some = share(x.len() + dy.len(), products, product);
        let from = match some.start.checked_sub(x.len()) {
            None => x_from.wrapping_add(x.start + some.start),
            Some(start) => dy_from.wrapping_add(dy.start + start),
        };
        Ahead::run(from, some.len(), columns)
    }

    /// Transforms a task's images and adds up their products, in sums of its own.
    fn some_images(&self, task: usize, io: &Io<'_>, fresh: Option<&Fresh<'_>>) {
        let all = share(self.grid.total(), self.pieces, task);
        let chunks = all.len().div_ceil(self.chunk).max(1);
        let tiles = |chunk: usize| {
            let own = share(all.len(), chunks, chunk);
            all.start + own.start..all.start + own.end
        };
        let taken = io.scratch.ptr::<f32>().wrapping_add(self.taps());
        let sums = io.workspace.ptr::<f32>().wrapping_add(self.sums_at(task));
        let products = self.groups * self.panels.len();
        let of_image = self.grid.total() / self.grid.n.max(1);
        let size = self.grid.out[0] * self.grid.out[1] * self.all_filters();
        let given = [0, 1].map(|i| io.inputs[i].ptr::<f32>().cast_const());
        let from = fresh.map_or(given, |fresh| [given[0], fresh.from]);
        for chunk in 0..chunks {
            if let Some(fresh) = fresh {
                // The images that begin here.
                let tiles = tiles(chunk);
                for image in tiles.start.div_ceil(of_image)..tiles.end.div_ceil(of_image) {
                    // SAFETY: this task has this image.
                    (fresh.make)(image, unsafe { io.inputs[1].slice_mut(image * size..(image + 1) * size) });
                }
            }
            self.add_bias([task, chunk], [self.pieces * chunks, task * chunks + chunk], io);
            self.take(tiles(chunk), 0, taken, io);
            let next = if chunk + 1 < chunks { tiles(chunk + 1) } else { 0..0 };
            let start = if chunk == 0 { Start::Zero } else { Start::Sum };
            for point in 0..POINTS {
                for (product, (group, panel)) in self.all_panels().enumerate() {
                    let ahead = self.ahead(next.clone(), point, [products, product], panel.width.columns, from);
                    let at = point * self.planes()[2] + group * self.k * self.c + panel.start;
                    let sums = (sums.wrapping_add(at), &self.c_rows[0][..]);
                    let ranges = [0..self.k, 0..tiles(chunk).len()];
                    // SAFETY: these sums belong to this task, the transformed tiles to its thread.
                    unsafe { self.multiply([point, group], ranges, panel, sums, start, ahead, taken) };
                }
            }
        }
    }

    /// The panels of all groups.
    fn all_panels(&self) -> impl Iterator<Item = (usize, &Panel)> {
        (0..self.groups).flat_map(|group| self.panels.iter().map(move |panel| (group, panel)))
    }

    /// Adds a chunk's products at one point to the sums in the workspace, `[point][group][k][c]`.
    fn one_point(&self, chunk: usize, point: usize, io: &Io<'_>) {
        let tiles = self.tiles(chunk).len();
        let sums = io.workspace.ptr::<f32>().wrapping_add(self.sums_at(0) + point * self.planes()[2]);
        let parts = tiles.div_ceil(DEPTH);
        let (products, mut product) = (parts * self.groups * self.panels.len(), 0);
        let from = [0, 1].map(|i| io.inputs[i].ptr::<f32>().cast_const());
        for part in 0..parts {
            let start = if chunk + part == 0 { Start::Zero } else { Start::Sum };
            for (group, panel) in self.all_panels() {
                let ranges = [0..self.k, share(tiles, parts, part)];
                let at = group * self.k * self.c + panel.start;
                let sums = (sums.wrapping_add(at), &self.c_rows[0][..]);
                let next = if chunk + 1 < self.chunks { self.tiles(chunk + 1) } else { 0..0 };
                let ahead = self.ahead(next, point, [products, product], panel.width.columns, from);
                product += 1;
                // SAFETY: this point's sums belong to this task; no task of this phase writes tiles.
                unsafe { self.multiply([point, group], ranges, panel, sums, start, ahead, io.workspace.ptr::<f32>()) };
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
                unsafe {
                    self.multiply([point, 0], ranges, panel, sums, start, Ahead::NOTHING, io.workspace.ptr::<f32>())
                };
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

    /// Adds up a filter's sums of all tasks in scratch; where they start, and how far it is from point to point.
    fn total(&self, filter: usize, io: &Io<'_>) -> (*mut f32, usize) {
        let (from, plane) = (self.planes()[2], self.c + APART);
        // SAFETY: scratch belongs to this thread; no task of this phase writes the workspace.
        let (total, sums) = unsafe {
            (io.scratch.slice_mut::<f32>(self.taps()..self.taps() + POINTS * plane), io.workspace.slice::<f32>())
        };
        vectorized(
            #[inline(always)]
            || {
                for (point, total) in total.chunks_exact_mut(plane).enumerate() {
                    let total = &mut total[..self.c];
                    total.fill(0.0);
                    for task in 0..self.pieces {
                        let at = self.sums_at(task) + point * from + filter * self.c;
                        total.iter_mut().zip(&sums[at..at + self.c]).for_each(|(sum, x)| *sum += x);
                    }
                }
            },
        );
        (total.as_mut_ptr(), plane)
    }

    /// Transforms some filters' sums of the workspace back, and adds up the bias's.
    fn finish(&self, task: usize, io: &Io<'_>) {
        let filters = share(self.all_filters(), self.finishes, task);
        let (sums, plane) = (io.workspace.ptr::<f32>().wrapping_add(self.sums_at(0)), self.planes()[2]);
        for filter in filters.clone() {
            match self.way {
                Way::Points => self.back(sums.wrapping_add(filter * self.c), plane, filter, 0..self.c, io),
                Way::Images => {
                    let (total, plane) = self.total(filter, io);
                    self.back(total, plane, filter, 0..self.c, io);
                }
                Way::Channels => {}
            }
        }
        if self.with_bias {
            // SAFETY: no task of this phase writes the workspace; these filters belong to this task.
            let (sums, db) = unsafe {
                (&io.workspace.slice::<f32>()[self.bias_at()..], io.outputs[1].slice_mut::<f32>(filters.clone()))
            };
            for (db, filter) in db.iter_mut().zip(filters) {
                *db = (0..self.pieces).map(|piece| sums[piece * self.all_filters() + filter]).sum();
            }
        }
    }
}
