//! Winograd's way for 3×3 filters with stride 1, forward and for the input's gradient: tiles of 4×4 pixels are made
//! with 36 products for each pair of channels instead of 144.
//!
//! Tiles and filters are transformed, multiplied point by point as 36 matrix products over channels, and transformed
//! back. The gradient for the input is a convolution too, with filters turned around and channels exchanged.

mod grid;
mod transform;
mod weight_grad;

pub(super) use weight_grad::WeightGrad;

use super::Geometry;
use super::measure::Measure;
use crate::cpu::gemm::micro::{Ahead, Start, Tile as Product};
use crate::cpu::gemm::panel::{Panel, Transposed, packed_width, panels};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, share};
use crate::cpu::stream::OWN;
use grid::Grid;
use std::ops::Range;
use std::sync::LazyLock;
use transform::{Filters, GROUP, OUT, POINTS, TAPS, Tile, UNLIMITED, transforms};

/// `NEURONA_WINOGRAD=0` switches it off: sums then have the error of plain ones.
static ON: LazyLock<bool> = LazyLock::new(|| std::env::var("NEURONA_WINOGRAD").map_or(true, |v| v != "0"));

/// Whether Winograd's way may be gone.
pub(crate) fn on() -> bool {
    *ON
}

/// Bytes of transformed tiles and sums that a task works on: they stay in the second-level cache.
const CACHE: usize = 640 << 10;
/// Bytes of transformed filters that each task may read: more would come from memory again and again.
const FILTERS: usize = 12 << 20;
/// Tiles at most whose sums for one panel stay in the second-level cache beside such filters.
const TILES: usize = 70;
/// Floats between rows, and between planes, whose sizes are often powers of two: they would meet in the same few lines
/// of the cache, and loads would wait for stores that have only the last bits of their addresses in common.
const APART: usize = 16;

/// The sums of a point have no parts.
const START: &[usize] = &[0];

/// What is done with the sums.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// Operands as the forward convolution has them: image, filters, then maybe bias and scale.
    Forward { bias: bool, scaled: bool, activation: Activation },
    /// Operands: the output's gradient, filters.
    InputGrad,
}

/// Which operand is transformed first, for all tasks; each transforms what it needs of the other.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The filters: a task then has a block of tiles, for which it goes through all of them.
    Blocks,
    /// The tiles: filters of many channels take more memory than caches have. A task has a panel of filters, and few
    /// tiles meet it at once.
    Panels,
}

/// A convolution of images `[n, h, w, c]` to `[n, oh, ow, k]`, which for the gradient is the other way round than
/// the layer's.
pub(super) struct Winograd {
    pass: Pass,
    /// Whether the pixels are measured too.
    statistics: bool,
    /// Whether each 2 by 2 of them become their greatest.
    pooled: bool,
    way: Way,
    grid: Grid,
    groups: usize,
    /// Channels of a group.
    c: usize,
    k: usize,
    /// Tiles that a task works on.
    block: usize,
    blocks: usize,
    /// Panels of one group's output channels.
    panels: Vec<Panel>,
    /// Columns of these panels with the zeros that fill the last.
    packed_k: usize,
    /// Parts of the panels of all groups, one task each and block.
    panel_blocks: usize,
    /// Pieces of the phase that transforms the first operand: of each panel, or of all tiles.
    pieces: usize,
    /// Whether its images are larger than the own caches of some cores, and asked for ahead. With fewer, and many threads, the
    /// next block is another thread's, and asking would take it away.
    far: bool,
    /// Floats from tile to tile of those transformed.
    row: usize,
    /// Where each tile's channels start.
    a_rows: Vec<usize>,
    /// Where the sums of each tile start, by panel.
    c_rows: Vec<Vec<usize>>,
}

impl Winograd {
    /// The pass in this way, where it is possible and faster.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        if on() { Self::possible(g, pass).filter(Self::faster) } else { None }
    }

    /// The pass in this way, where it is possible.
    pub fn possible(g: Geometry, pass: Pass) -> Option<Self> {
        if !possible(&g) {
            return None;
        }
        let (size, out, c, k, padding) = match pass {
            Pass::Forward { .. } => ([g.h, g.w], [g.oh(), g.ow()], g.group_c(), g.group_k(), g.padding),
            Pass::InputGrad => {
                ([g.oh(), g.ow()], [g.h, g.w], g.group_k(), g.group_c(), g.padding.map(|p| TAPS - 1 - p))
            }
        };
        let grid = Grid { n: g.n, size, out, padding };
        let total = grid.total();
        let (panels, packed_k) = (panels(k), packed_width(k));
        let widest = panels.iter().map(|p| p.width.columns).max()?;
        let tallest = panels.iter().map(|p| p.width.rows()).max()?;
        let all_panels = g.groups * panels.len();
        let filters = POINTS * g.groups * c * packed_k * size_of::<f32>();
        // Tiles of several groups would not lie in whole groups of channels.
        let way = if filters > FILTERS && g.groups == 1 { Way::Panels } else { Way::Blocks };
        let row = if way == Way::Panels { GROUP.min(c) } else { g.groups * c + APART };
        let tasks = task_count(g.flops() as usize / 4);
        let most = match way {
            Way::Blocks => CACHE / (POINTS * size_of::<f32>() * (row + widest)),
            Way::Panels => TILES,
        };
        // Whole tiles of the product; and tasks for some threads.
        let fair = (total / tasks.min(16)).next_multiple_of(tallest);
        let block = (most / tallest * tallest).clamp(tallest, fair.max(tallest)).min(total);
        let blocks = total.div_ceil(block);
        let (panel_blocks, pieces) = match way {
            // Each block of panels transforms the tiles again.
            Way::Blocks => {
                let pieces = (POINTS * g.groups * c * k / 65_536).clamp(1, 64).div_ceil(all_panels);
                (tasks.min(16).div_ceil(blocks).clamp(1, all_panels.min(4)), pieces.clamp(1, c))
            }
            Way::Panels => (all_panels, (POINTS * c * total / 65_536).clamp(1, 64).min(total)),
        };
        let images = g.groups * g.n * (size[0] * size[1] * c + out[0] * out[1] * k) * size_of::<f32>();
        let a_rows = (0..block).map(|tile| tile * row).collect();
        let c_rows = panels.iter().map(|p| (0..block).map(|tile| tile * p.width.columns).collect()).collect();
        Some(Winograd {
            pass,
            statistics: false,
            pooled: false,
            way,
            grid,
            groups: g.groups,
            c,
            k,
            block,
            blocks,
            panels,
            packed_k,
            panel_blocks,
            pieces,
            far: images > 4 * OWN,
            row,
            a_rows,
            c_rows,
        })
    }

    /// Whether it costs less than plain sums. For each pair of channels a tile costs 72 operations, and the transforms
    /// of its channels about 400 each; transforming a filter takes as long as about 1,200 operations.
    fn faster(&self) -> bool {
        let tiles = self.grid.total() as f64;
        let pixels = (self.grid.n * self.grid.out[0] * self.grid.out[1]) as f64;
        let (c, k) = (self.c as f64, self.k as f64);
        self.c.min(self.k) >= 16 && tiles * (72.0 + 400.0 / c + 400.0 / k) + 1200.0 < 0.8 * 18.0 * pixels
    }

    /// Which group a panel is of, and which of that group's.
    fn panel(&self, index: usize) -> (usize, &Panel) {
        (index / self.panels.len(), &self.panels[index % self.panels.len()])
    }

    /// Panels of all groups.
    fn all_panels(&self) -> usize {
        self.groups * self.panels.len()
    }

    /// Where the filters of a panel start in a point of the workspace.
    fn filters_at(&self, index: usize) -> usize {
        let (group, panel) = self.panel(index);
        (group * self.packed_k + panel.start) * self.c
    }

    fn widest(&self) -> usize {
        self.panels.iter().map(|p| p.width.columns).max().unwrap_or(0)
    }

    /// Whether its first phase is about filters.
    pub fn filters_first(&self) -> bool {
        self.way == Way::Blocks
    }

    pub fn phases(&self) -> Vec<usize> {
        let first = if self.way == Way::Blocks { self.all_panels() * self.pieces } else { self.pieces };
        vec![first, self.blocks * self.panel_blocks]
    }

    /// The operand that is transformed first.
    pub fn workspace(&self) -> usize {
        let floats = match self.way {
            Way::Blocks => self.groups * self.c * self.packed_k + APART,
            Way::Panels => self.grid.total() * self.c.next_multiple_of(self.row),
        };
        POINTS * floats * size_of::<f32>()
    }

    /// What a task transforms of the other, and its sums for one panel.
    pub fn scratch(&self) -> usize {
        let widest = self.widest();
        let channels = GROUP.min(self.c);
        let taps = TAPS * TAPS * (channels + 1) * widest;
        let floats = match self.way {
            Way::Blocks => (POINTS * (self.block * (self.row + widest) + APART)).max(taps),
            Way::Panels => taps + POINTS * (widest * (channels + self.block) + 2 * APART),
        };
        floats * size_of::<f32>()
    }

    /// Parts of the pixels: tiles that a task works on.
    pub fn parts(&self) -> usize {
        self.blocks
    }

    /// The same, with statistics of each block of tiles as its second result.
    pub fn measuring(self) -> Self {
        Winograd { statistics: true, ..self }
    }

    /// The same, with each 2 by 2 pixels pooled before they are written.
    pub fn pooling(self) -> Self {
        Winograd { pooled: true, ..self }
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        match (self.way, phase) {
            (Way::Blocks, 0) => self.all_filters(task, io),
            (Way::Blocks, _) => self.some_tiles(task, io),
            (Way::Panels, 0) => self.all_tiles(task, io),
            (Way::Panels, _) => self.some_filters(task, io),
        }
    }

    /// Transforms some filters of a panel: `[point][group][panel][c][columns]` in the workspace.
    fn all_filters(&self, task: usize, io: &Io<'_>) {
        let index = task / self.pieces;
        let channels = share(self.c, self.pieces, task % self.pieces);
        for first in channels.clone().step_by(GROUP) {
            let at = self.filters_at(index) + first * self.panel(index).1.width.columns;
            let to = io.workspace.ptr::<f32>().wrapping_add(at);
            self.filters(index, first..channels.end.min(first + GROUP), to, self.plane(), io);
        }
    }

    /// Which block of panels, and which of tiles, a task of the second phase is about. In training the filters are new:
    /// tasks of the same panels are then neighbours, so that a thread meets those that it has transformed itself. Else
    /// all threads have them, and tasks of the same tiles are neighbours.
    fn panels_and_part(&self, task: usize) -> (usize, usize) {
        if self.statistics || self.pass == Pass::InputGrad {
            (task / self.blocks, task % self.blocks)
        } else {
            (task % self.panel_blocks, task / self.panel_blocks)
        }
    }

    /// Transforms a block of tiles, multiplies it by some panels, and transforms the sums back.
    fn some_tiles(&self, task: usize, io: &Io<'_>) {
        let (some, part) = self.panels_and_part(task);
        let tiles = share(self.grid.total(), self.blocks, part);
        let images = io.scratch.ptr::<f32>();
        let plane = self.block * self.row;
        self.images(tiles.clone(), images, plane, GROUP, io);
        let sums = images.wrapping_add(POINTS * plane);
        let chosen = share(self.all_panels(), self.panel_blocks, some);
        for index in chosen.clone() {
            let filters = io.workspace.ptr::<f32>().wrapping_add(self.filters_at(index));
            let filters = (filters.cast_const(), self.plane());
            let images = images.wrapping_add(self.panel(index).0 * self.c);
            let ahead = |point| self.ahead(point, index, part, &chosen, io);
            // SAFETY: tiles and sums lie in this thread's scratch, filters in the workspace, which nobody writes in
            // this phase.
            unsafe { self.multiply(index, tiles.len(), self.c, (images, plane), filters, sums, Start::Zero, ahead) };
            self.pixels(tiles.clone(), index, sums, part, io);
        }
    }

    /// What to ask for while a panel's tiles are multiplied at a point: with the first half of the points the pixels that
    /// become of them, which are read even to be overwritten, with the others some of the next block's.
    fn ahead(&self, point: usize, index: usize, part: usize, chosen: &Range<usize>, io: &Io<'_>) -> Ahead {
        if !self.far {
            return Ahead::NOTHING;
        }
        let half = POINTS / 2;
        let (group, panel) = self.panel(index);
        if point < half {
            let tiles = share(self.grid.total(), self.blocks, part);
            let pixels = if self.pooled { self.grid.pooled(tiles) } else { self.grid.given(tiles) };
            let some = share(pixels.len(), half, point);
            let apart = self.groups * self.k;
            let first = (pixels.start + some.start) * apart + group * self.k + panel.start;
            let from = io.outputs[0].ptr::<f32>().wrapping_add(first).cast_const();
            return Ahead { from: [from, std::ptr::null()], rows: some.len(), apart };
        }
        let pixels = match part + 1 < self.blocks {
            true => self.grid.taken(share(self.grid.total(), self.blocks, part + 1)),
            false => 0..0,
        };
        let channels = self.groups * self.c;
        let product = (index - chosen.start) * half + point - half;
        let some = share(pixels.len() * channels, chosen.len() * half, product);
        let from = io.inputs[0].ptr::<f32>().wrapping_add(pixels.start * channels + some.start);
        Ahead::run(from, some.len(), panel.width.columns)
    }

    /// Floats of a point in the workspace.
    fn plane(&self) -> usize {
        self.workspace() / (POINTS * size_of::<f32>())
    }

    /// Transforms some tiles: `[point][group of channels][tile][c]` in the workspace.
    fn all_tiles(&self, task: usize, io: &Io<'_>) {
        let tiles = share(self.grid.total(), self.pieces, task);
        let to = io.workspace.ptr::<f32>().wrapping_add(tiles.start * self.row);
        self.images(tiles, to, self.plane(), self.grid.total() * self.row, io);
    }

    /// Transforms the filters of a panel, some channels at a time, and multiplies a block of tiles by them.
    fn some_filters(&self, task: usize, io: &Io<'_>) {
        let (index, part) = self.panels_and_part(task);
        let tiles = share(self.grid.total(), self.blocks, part);
        let (_, panel) = self.panel(index);
        let taps = TAPS * TAPS * (GROUP.min(self.c) + 1) * self.widest();
        let filters = io.scratch.ptr::<f32>().wrapping_add(taps);
        let sums = filters.wrapping_add(POINTS * (GROUP.min(self.c) * self.widest() + APART));
        for first in (0..self.c).step_by(GROUP) {
            let channels = first..self.c.min(first + GROUP);
            let filter_plane = channels.len() * panel.width.columns + APART;
            self.filters(index, channels.clone(), filters, filter_plane, io);
            let images = io.workspace.ptr::<f32>().wrapping_add(tiles.start * self.row + first * self.grid.total());
            let start = if first == 0 { Start::Zero } else { Start::Sum };
            let (images, filters) = ((images.cast_const(), self.plane()), (filters.cast_const(), filter_plane));
            // SAFETY: filters and sums lie in this thread's scratch, tiles in the workspace, which nobody writes in
            // this phase.
            unsafe {
                self.multiply(index, tiles.len(), channels.len(), images, filters, sums, start, |_| Ahead::NOTHING)
            };
        }
        self.pixels(tiles, index, sums, part, io);
    }

    /// Transforms the filters of a panel for some channels, to `[point][channel][columns]`, `plane` from point to point.
    fn filters(&self, index: usize, channels: Range<usize>, to: *mut f32, plane: usize, io: &Io<'_>) {
        let (group, panel) = self.panel(index);
        let first = group * self.k + panel.start;
        let (width, values) = (panel.width.columns, TAPS * TAPS);
        let tap = (channels.len() + 1) * width;
        let weight = io.inputs[1].ptr::<f32>();
        let taps = io.scratch.ptr::<f32>();
        let packed = Transposed {
            source: weight.wrapping_add((first * self.c + channels.start) * values),
            stride: self.c * values,
            columns: panel.columns,
            taps: values,
            groups: channels.len() + 1,
            step: width,
            width,
            range: 0..channels.len() * values,
        };
        let mut scale = [1.0; GROUP];
        match self.pass {
            Pass::Forward { scaled, .. } => {
                // SAFETY: no task writes an input; scratch belongs to this thread.
                unsafe { packed.pack(taps) };
                if scaled {
                    // SAFETY: no task writes an input.
                    let from = unsafe { &io.inputs[3].slice::<f32>()[first..][..panel.columns] };
                    scale.chunks_exact_mut(width).for_each(|scale| scale[..from.len()].copy_from_slice(from));
                }
            }
            Pass::InputGrad => {
                for (i, channel) in channels.clone().enumerate() {
                    let at = (group * self.c + channel) * self.k + panel.start;
                    let source = weight.wrapping_add(at * values);
                    let packed = Transposed {
                        source,
                        stride: values,
                        taps: 1,
                        groups: 1,
                        step: tap,
                        range: 0..values,
                        ..packed
                    };
                    // SAFETY: as above.
                    unsafe { packed.pack(taps.wrapping_add(i * width)) };
                }
            }
        }
        let turned = self.pass == Pass::InputGrad;
        // SAFETY: the taps have just been packed; the caller owns what is written.
        unsafe {
            (transforms().filters)(&Filters {
                taps,
                tap,
                turned,
                points: to,
                plane,
                count: channels.len() * width,
                scale,
            })
        };
    }

    /// Multiplies the first `tiles` of `images` by filters of one panel, `length` channels of each, point by point.
    /// Both operands are where they start and how far it is from point to point.
    ///
    /// # Safety
    /// Operands must be readable, and the sums (`[point][tile][columns]`) belong to the caller.
    unsafe fn multiply(
        &self,
        index: usize,
        tiles: usize,
        length: usize,
        images: (*const f32, usize),
        filters: (*const f32, usize),
        sums: *mut f32,
        start: Start,
        ahead: impl Fn(usize) -> Ahead,
    ) {
        let (_, panel) = self.panel(index);
        let width = panel.width.columns;
        for point in 0..POINTS {
            let product = Product {
                a: images.0.wrapping_add(point * images.1),
                a_rows: std::ptr::null(),
                a_segments: START.as_ptr(),
                a_step: 1,
                segments: 1,
                length,
                b: filters.0.wrapping_add(point * filters.1),
                b_segments: START.as_ptr(),
                b_step: width,
                c: sums.wrapping_add(point * (self.block * width + APART)),
                c_rows: std::ptr::null(),
                columns: 0,
                start,
                limits: None,
                far: false,
                ahead: ahead(point),
            };
            // SAFETY: the caller's promise.
            unsafe { panel.rows(product, &self.a_rows[..tiles], &self.c_rows[index % self.panels.len()][..tiles]) };
        }
    }

    /// Transforms image tiles, `plane` from point to point and `group` from one [`GROUP`] of channels to the next.
    fn images(&self, tiles: Range<usize>, to: *mut f32, plane: usize, group: usize, io: &Io<'_>) {
        let channels = self.groups * self.c;
        for (i, tile) in tiles.enumerate() {
            let window = self.grid.window(tile, io.inputs[0].ptr(), channels);
            let tile = Tile { channels, points: to.wrapping_add(i * self.row), plane, group, ..window };
            // SAFETY: no task writes an input, and what lies outside of the image is not read; the caller owns what is
            // written.
            unsafe { (transforms().window)(&tile) };
        }
    }

    /// Transforms a block's sums for one panel back, writes the pixels, and measures them as a part when asked.
    fn pixels(&self, tiles: Range<usize>, index: usize, sums: *mut f32, part: usize, io: &Io<'_>) {
        let (group, panel) = self.panel(index);
        let (width, first, channels) = (panel.width.columns, group * self.k + panel.start, self.groups * self.k);
        let (bias, activation) = match self.pass {
            Pass::Forward { bias: true, activation, .. } => {
                (io.inputs[2].ptr::<f32>().wrapping_add(first).cast_const(), activation)
            }
            Pass::Forward { activation, .. } => (std::ptr::null(), activation),
            Pass::InputGrad => (std::ptr::null(), Activation::None),
        };
        let limits = activation.limits().unwrap_or(UNLIMITED);
        let y = io.outputs[0].ptr::<f32>().wrapping_add(first);
        let mut measure = Measure::new(panel.columns);
        for (i, at) in tiles.enumerate() {
            let (place, give) = match self.pooled {
                true => (self.grid.windows(at, y, channels), transforms().windows),
                false => (self.grid.pixels(at, y, channels), transforms().pixels),
            };
            let tile = Tile {
                channels: panel.columns,
                points: sums.wrapping_add(i * width),
                plane: self.block * width + APART,
                bias,
                limits,
                ..place
            };
            // SAFETY: these columns of this tile's pixels belong to this task, the sums to its thread.
            unsafe { give(&tile) };
            if self.statistics {
                let mut places = [0; OUT * OUT];
                let pixels = tile.rows.clone().flat_map(|row| tile.columns.clone().map(move |column| [row, column]));
                let inside = pixels.zip(&mut places).map(|([row, column], place)| {
                    *place = row * tile.steps[0] + column * tile.steps[1];
                });
                let inside = inside.count();
                // SAFETY: just written by this task.
                unsafe { measure.add(tile.image.cast_const(), &places[..inside]) };
            }
        }
        if self.statistics {
            measure.put(io, part, channels, first);
        }
    }
}

/// Whether filters are 3×3 and nothing is skipped.
fn possible(g: &Geometry) -> bool {
    let simple = [g.r, g.s] == [TAPS, TAPS] && g.stride == [1, 1] && g.dilation == [1, 1];
    let something = [g.n, g.group_c(), g.group_k(), g.oh(), g.ow()].iter().all(|&size| size > 0);
    simple && something && g.padding.iter().all(|&p| p < TAPS)
}
