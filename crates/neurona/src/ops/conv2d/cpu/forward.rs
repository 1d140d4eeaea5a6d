//! Forward: output pixels are rows of the left operand, read through their windows; packed
//! weights are the right operand.

use super::grouped::{Grouped, Pass};
use super::measure::{Measure, TOGETHER, WIDEST};
use super::meetings::{self, Meeting, run};
use super::source::{Source, WORTH};
use super::winograd::{self, Winograd};
use super::{CACHE, Cut, Geometry, PIXELS};
use crate::cpu::gemm::micro::{Ahead, Start, Tile, widths};
use crate::cpu::gemm::panel::{Panel, Transposed, filled_panels, width_of};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Buf, Io, Kernel, Prepared, share};
use crate::cpu::simd::vectorized;
use crate::cpu::stream::OWN;
use std::ops::Range;

/// Rows of a part where pixels of one column share a tile: half of a tile's.
const ROWS: usize = 7;
/// Tasks enough for some threads.
const TASKS: usize = 32;
/// Pixels of a part at most, about: their places, sixteen bytes each, stay in the first-level cache, and copies of padded
/// images in the second, which results on their way to memory pass through.
const MOST: usize = 2048;

/// Convolution with `f32` elements: inputs `x` `[n, h, w, c]`, `weight` `[k, c/groups, r, s]` and,
/// when asked, a bias of `k` and then a scale of `k` for the filters; output `[n, oh, ow, k]`, overwritten, and, when
/// asked, statistics of its channels in [`Forward::parts`], as batch normalisation takes them.
pub struct Forward {
    g: Geometry,
    /// Another way, for few channels a group.
    grouped: Option<Grouped>,
    /// Another way, for 3×3 filters and many tiles.
    winograd: Option<Winograd>,
    bias: bool,
    scaled: bool,
    activation: Activation,
    statistics: bool,
    cut: Cut,
    source: Source,
    /// Whether memory is asked for what comes next.
    far: bool,
    /// Whether the result is larger than the own caches of some cores.
    wide: bool,
    /// Panels of one group's output channels.
    panels: Vec<Panel>,
    /// Columns of these panels with the zeros that fill the last.
    packed_k: usize,
    /// Blocks of panels of all groups, one task each and part.
    panel_blocks: usize,
    /// Pieces in which one panel's weights are packed.
    pieces: usize,
    /// Whether the only task that needs a panel packs it itself, in its cache: packed weights then never go to memory.
    alone: bool,
    /// For each block of rows, or for all of them, the pixels that meet the same filter values.
    meetings: Vec<Vec<Meeting>>,
    /// Parts of the reduction between visits to the result.
    steps: usize,
}

impl Forward {
    /// A convolution of the given sizes.
    pub fn new(g: Geometry, bias: bool, scaled: bool, activation: Activation) -> Self {
        let tasks = task_count(g.flops() as usize);
        let cuts = tasks.max(g.n * g.oh() * g.ow() / MOST);
        let usual = Cut::new(g.n, g.oh(), g.ow(), cuts, PIXELS);
        let high = Cut::new(g.n, g.oh(), g.ow(), cuts, PIXELS.max(ROWS * g.ow()));
        // Near the left and the right edge, pixels of one column meet the same filter values: a part of many rows.
        let cut = if g.padding[1] > 0 && high.parts() * filled_panels(g.group_k(), run(&g)).len() >= TASKS {
            high
        } else {
            usual
        };
        let cut = [cut, usual].into_iter().find(|cut| meetings::fewer(&g, cut));
        Forward::cut(g, bias, scaled, activation, cut.unwrap_or(usual), tasks, cut.is_some())
    }

    /// The same, with statistics as its second output.
    pub fn measuring(self) -> Self {
        Forward { statistics: true, winograd: self.winograd.map(Winograd::measuring), ..self }
    }

    /// The same, with each 2 by 2 pixels pooled, in a way that can do so.
    pub fn pooling(self) -> Option<Self> {
        let winograd = self.winograd.filter(|_| self.grouped.is_none())?;
        Some(Forward { winograd: Some(winograd.pooling()), grouped: None, ..self })
    }

    /// Whether a convolution of these sizes is a matrix product.
    pub(crate) fn is_product(g: Geometry) -> bool {
        let forward = Forward::new(g, false, false, Activation::None);
        forward.grouped.is_none() && forward.winograd.is_none()
    }

    /// How many parts of the pixels a convolution of these sizes measures.
    pub fn parts_of(g: Geometry) -> usize {
        Forward::new(g, false, false, Activation::None).parts()
    }

    /// How many parts of the pixels are measured: those of tasks.
    pub fn parts(&self) -> usize {
        match (&self.grouped, &self.winograd) {
            (Some(grouped), _) => grouped.parts(),
            (_, Some(winograd)) => winograd.parts(),
            _ => self.cut.parts(),
        }
    }

    /// With the pixels cut like this; `skips` is whether products with padding are left out.
    fn cut(g: Geometry, bias: bool, scaled: bool, activation: Activation, cut: Cut, tasks: usize, skips: bool) -> Self {
        let panels = filled_panels(g.group_k(), run(&g));
        let total_panels = panels.len() * g.groups;
        let source = Source::broadcast(g, cut.parts(), total_panels);
        let most = if source.gathered() { total_panels / WORTH } else { total_panels };
        let panel_blocks = tasks.div_ceil(cut.parts().max(1)).clamp(1, most.max(1));
        let floats = g.taps() * g.group_c() * g.k;
        let pieces = (floats / 16_384).clamp(1, 64).div_ceil(total_panels.max(1));
        // Filters with a scale are those of inference, where packed ones are good for many runs. A band's are packed once
        // for all bands, which is what its single task says.
        let widest = panels.iter().map(|p| p.width.columns).max().unwrap_or(0);
        let panel = g.taps() * g.group_c() * widest * size_of::<f32>();
        let alone = tasks > 1 && !scaled && cut.parts() == 1 && panel_blocks == total_panels && panel <= CACHE;

        let meetings: Vec<_> = if skips {
            (0..cut.blocks).map(|block| meetings::skipping(&source, &cut, block, &panels)).collect()
        } else {
            vec![vec![Meeting::all(&source, &cut, &panels)]]
        };
        let steps = meetings.iter().flatten().map(Meeting::steps).max().unwrap_or(1);
        Forward {
            g,
            grouped: Grouped::new(g, Pass::Forward { bias, scaled, activation }),
            winograd: Winograd::new(g, winograd::Pass::Forward { bias, scaled, activation }),
            bias,
            scaled,
            activation,
            statistics: false,
            cut,
            source,
            far: g.far(),
            wide: g.n * g.oh() * g.ow() * g.k * size_of::<f32>() > 4 * OWN,
            packed_k: width_of(&panels),
            panels,
            panel_blocks,
            pieces: if alone { 1 } else { pieces.clamp(1, g.group_c().max(1)) },
            alone,
            meetings,
            steps,
        }
    }

    /// Length of the reduction.
    fn depth(&self) -> usize {
        self.g.taps() * self.g.group_c()
    }

    /// Where a panel of a group starts in the packed weights.
    fn packed_at(&self, group: usize, panel: &Panel) -> usize {
        (group * self.packed_k + panel.start) * self.depth()
    }

    /// Where packed weights lie, and where those of a panel start.
    fn packed(&self, group: usize, panel: &Panel, io: &Io<'_>) -> (Buf, usize) {
        if self.alone {
            (io.scratch, self.source.floats(&self.cut))
        } else {
            (io.workspace, self.packed_at(group, panel))
        }
    }

    fn pack(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let (unit, piece) = (task / self.pieces, task % self.pieces);
        let (group, panel) = (unit / self.panels.len(), &self.panels[unit % self.panels.len()]);
        let width = panel.width.columns;
        let (packed, at) = self.packed(group, panel, io);
        let channels = share(g.group_c(), self.pieces, piece);
        let from = (group * g.group_k() + panel.start) * self.depth();
        let filters = Transposed {
            source: io.inputs[1].ptr::<f32>().wrapping_add(from),
            stride: self.depth(),
            columns: panel.columns,
            taps: g.taps(),
            groups: g.group_c(),
            step: width,
            width,
            range: channels.start * g.taps()..channels.end * g.taps(),
        };
        // SAFETY: no task writes an input, and each packs its own channels of its own panel.
        unsafe { filters.pack(packed.ptr::<f32>().wrapping_add(at)) };
        if self.scaled {
            let column = group * g.group_k() + panel.start;
            // SAFETY: no task writes an input.
            let scale = unsafe { &io.inputs[3].slice::<f32>()[column..][..panel.columns] };
            for tap in 0..g.taps() {
                let steps = at + (tap * g.group_c() + channels.start) * width;
                // SAFETY: what this task has just packed.
                let packed = unsafe { packed.slice_mut::<f32>(steps..steps + channels.len() * width) };
                multiply_columns(packed, width, scale);
            }
        }
    }

    fn multiply(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let part = task / self.panel_blocks;
        let (images, rows) = self.cut.part(part);
        let total_panels = self.panels.len() * g.groups;
        let chosen = share(total_panels, self.panel_blocks, task % self.panel_blocks);
        let y_at = (images.start * g.oh() + rows.start) * g.ow() * g.k;
        let y = io.outputs[0].ptr::<f32>().wrapping_add(y_at);
        // SAFETY: this task alone writes these pixels' columns.
        unsafe { self.rows(images, rows, chosen, y, part, self.statistics, io) };
    }

    /// Computes rows of images, as many as a part has at most, for some panels, with weights that are packed. They go to
    /// `y`, pixel after pixel with all channels; the statistics of these pixels, when asked, go to those of the part.
    ///
    /// # Safety
    /// This task alone must own the panels' columns of these pixels at `y`, and read what lies at the inputs.
    unsafe fn rows(
        &self,
        images: Range<usize>,
        rows: Range<usize>,
        chosen: Range<usize>,
        y: *mut f32,
        part: usize,
        statistics: bool,
        io: &Io<'_>,
    ) {
        let g = &self.g;
        let pixels = images.len() * rows.len() * g.ow();
        let x = self.source.rows(&self.cut, images.clone(), rows.clone(), 0..g.c, io);
        if self.alone {
            self.pack(chosen.start, io);
        }

        let meetings = &self.meetings[part % self.meetings.len()];
        // The pixels of the next part, some with each tile: inside it where they are neighbours, else after it. Padded rows
        // come fast enough as they are copied.
        let fetches = self.far && g.points() && self.panel_blocks == 1;
        let tallest = widths()[widths().len() - 1].rows();
        let (tiles, mut done) = (self.steps * chosen.len() * pixels.div_ceil(tallest), 0);
        let next = (images.start * g.oh() + rows.start) * g.ow() + pixels;
        let together = fetches && g.stride == [1, 1];
        // Lines come from memory even to be overwritten: with each tile those of the next but one, where sums are short.
        let overwrites = self.wide && !fetches && self.steps == 1 && meetings.len() == 1;
        let (products, mut product) = (self.steps * chosen.len() * meetings.len(), 0);
        for step in 0..self.steps {
            let last = step + 1 == self.steps;
            for index in chosen.clone() {
                let group = index / self.panels.len();
                let panel = &self.panels[index % self.panels.len()];
                let width = panel.width.columns;
                let column = group * g.group_k() + panel.start;
                let (packed, b) = self.packed(group, panel, io);
                let start = match (step, self.bias) {
                    (0, true) => Start::Bias(io.inputs[2].ptr::<f32>().wrapping_add(column)),
                    (0, false) => Start::Zero,
                    _ => Start::Sum,
                };
                let mut measure = (statistics && last).then(|| Measure::new(panel.columns));
                for meeting in meetings {
                    let segments = share(meeting.segments.len(), self.steps, step);
                    let mut ahead = Ahead::NOTHING;
                    let count = (meeting.image * images.len()).min(pixels);
                    if overwrites {
                        let from = y.wrapping_add(column + 2 * tallest * g.k).cast_const();
                        ahead = Ahead { from: [from, std::ptr::null()], rows: count, apart: g.k };
                    } else if together {
                        let some = share(pixels * g.c, products, product);
                        let from = io.inputs[0].ptr::<f32>().wrapping_add(next * g.c + some.start);
                        ahead = Ahead::run(from, some.len(), width);
                        product += 1;
                    }
                    let tile = Tile {
                        a: x.wrapping_add(group * g.group_c()),
                        a_rows: std::ptr::null(),
                        a_segments: meeting.segments[segments.clone()].as_ptr(),
                        a_step: 1,
                        segments: segments.len(),
                        length: meeting.length,
                        b: packed.ptr::<f32>().wrapping_add(b),
                        b_segments: meeting.b_segments[index % self.panels.len()][segments].as_ptr(),
                        b_step: width,
                        c: y.wrapping_add(column),
                        c_rows: std::ptr::null(),
                        columns: 0,
                        start,
                        limits: self.activation.limits().filter(|_| last),
                        far: self.far && step == 0 && !overwrites,
                        ahead,
                    };
                    let (a_rows, c_rows) = (&meeting.a_rows[..count], &meeting.c_rows[..count]);
                    let from = tile.c.cast_const();
                    // SAFETY: windows stay inside what is read; the caller's promise. The rows of a tile that are
                    // measured have just been written by this task.
                    unsafe {
                        panel.rows_then(tile, a_rows, c_rows, |rows| {
                            if let Some(measure) = &mut measure {
                                measure.add(from, rows);
                            }
                            if fetches && !together && done < tiles {
                                let some = share(pixels, tiles, done);
                                self.source.prefetch(next + some.start..next + some.end, io);
                                done += 1;
                            }
                        });
                    }
                }
                if let Some(measure) = measure {
                    measure.put(io, part, g.k, column);
                }
            }
        }
    }

    /// Statistics of those channels of a part's images and rows that a task has written, from the second-level cache.
    fn measure(&self, part: usize, [images, rows, channels]: [Range<usize>; 3], io: &Io<'_>) {
        let g = &self.g;
        let y = io.outputs[0].ptr::<f32>().cast_const();
        for column in channels.clone().step_by(WIDEST) {
            let mut measure = Measure::new(WIDEST.min(channels.end - column));
            for image in images.clone() {
                let pixels = (image * g.oh() + rows.start) * g.ow()..(image * g.oh() + rows.end) * g.ow();
                for first in pixels.clone().step_by(TOGETHER) {
                    let places: [usize; TOGETHER] = std::array::from_fn(|i| (first + i) * g.k + column);
                    // SAFETY: these pixels belong to this task, which has written them.
                    unsafe { measure.add(y, &places[..TOGETHER.min(pixels.end - first)]) };
                }
            }
            measure.put(io, part, g.k, column);
        }
    }
}

/// Multiplies each row of `width` by the columns' scales; what lies beyond them is filling.
fn multiply_columns(rows: &mut [f32], width: usize, scale: &[f32]) {
    vectorized(
        #[inline(always)]
        || {
            for row in rows.chunks_exact_mut(width) {
                row.iter_mut().zip(scale).for_each(|(x, scale)| *x *= scale);
            }
        },
    );
}

/// A convolution that is computed a few rows at a time, for who makes something else of them at once: relu in it, no more
/// than the given rows.
pub(crate) struct Band(Forward);

impl Band {
    /// Bands of up to so many rows of one image; nothing where another way than a matrix product is faster, or the weights
    /// are too many to be read again for each band.
    pub fn new(g: Geometry, bias: bool, scaled: bool, activation: Activation, rows: usize) -> Option<Self> {
        let cut = Cut { n: 1, rows, groups: 1, blocks: 1 };
        let forward = Forward::cut(g, bias, scaled, activation, cut, 1, false);
        let usual = forward.grouped.is_none() && forward.winograd.is_none();
        // Bands are gathered in a cache.
        (usual && forward.workspace() <= WEIGHTS).then_some(Band(Forward { far: false, wide: false, ..forward }))
    }

    /// Tasks that pack the weights.
    pub fn packs(&self) -> usize {
        if self.0.g.k == 0 { 0 } else { self.0.g.groups * self.0.panels.len() * self.0.pieces }
    }

    /// The packed weights.
    pub fn prepared(&self) -> Option<Prepared> {
        self.0.prepared()
    }

    /// Bytes for packed weights.
    pub fn workspace(&self) -> usize {
        self.0.workspace()
    }

    /// Bytes at the start of scratch that a band needs.
    pub fn scratch(&self) -> usize {
        self.0.scratch()
    }

    /// Packs some weights into the workspace.
    pub fn pack(&self, task: usize, io: &Io<'_>) {
        self.0.pack(task, io);
    }

    /// Rows of an image, pixel after pixel with all channels.
    pub fn rows(&self, image: usize, rows: Range<usize>, y: &mut [f32], io: &Io<'_>) {
        let g = &self.0.g;
        assert!(
            y.len() >= rows.len() * g.ow() * g.k && rows.len() <= self.0.cut.rows && rows.end <= g.oh() && image < g.n
        );
        let panels = 0..self.0.panels.len() * g.groups;
        // SAFETY: `y` has room for the rows, and nobody else has it; nobody writes an input or the packed weights.
        unsafe { self.0.rows(image..image + 1, rows, panels, y.as_mut_ptr(), 0, false, io) };
    }
}

/// Bytes of packed weights that a core's own cache keeps beside the images.
const WEIGHTS: usize = 256 << 10;

#[cfg(test)]
impl Forward {
    /// In this way instead of the one that the sizes choose.
    pub(super) fn by(self, winograd: Option<Winograd>) -> Self {
        Forward { winograd, ..self }
    }
}

impl Kernel for Forward {
    fn phases(&self) -> Vec<usize> {
        if let Some(grouped) = &self.grouped {
            return grouped.phases();
        }
        if let Some(winograd) = &self.winograd {
            return winograd.phases();
        }
        let tasks = if self.g.k == 0 { 0 } else { self.cut.parts() * self.panel_blocks };
        let packs = if tasks == 0 || self.alone { 0 } else { self.g.groups * self.panels.len() * self.pieces };
        vec![packs, tasks]
    }

    fn workspace(&self) -> usize {
        if let Some(grouped) = &self.grouped {
            return grouped.workspace();
        }
        if let Some(winograd) = &self.winograd {
            return winograd.workspace();
        }
        if self.alone { 0 } else { self.g.groups * self.packed_k * self.depth() * size_of::<f32>() }
    }

    fn scratch(&self) -> usize {
        if self.grouped.is_some() {
            return 0;
        }
        if let Some(winograd) = &self.winograd {
            return winograd.scratch();
        }
        let widest = self.panels.iter().map(|p| p.width.columns).max().unwrap_or(0);
        let panel = if self.alone { self.depth() * widest } else { 0 };
        (self.source.floats(&self.cut) + panel) * size_of::<f32>()
    }

    fn prepared(&self) -> Option<Prepared> {
        let way = match (&self.grouped, &self.winograd) {
            (Some(_), _) => "filters by lanes",
            (_, Some(winograd)) if winograd.filters_first() => "transformed filters",
            (_, Some(_)) => return None,
            _ if self.alone => return None,
            _ => "filters",
        };
        let Geometry { k, r, s, groups, .. } = self.g;
        let form = (way, vec![k, self.g.group_c(), r, s, groups, usize::from(self.scaled), self.packed_k]);
        Some(Prepared { inputs: if self.scaled { vec![1, 3] } else { vec![1] }, form })
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if let Some(grouped) = &self.grouped {
            grouped.run(phase, task, io);
            if self.statistics && phase == 1 {
                let (part, ranges) = grouped.share(task);
                self.measure(part, ranges, io);
            }
            return;
        }
        if let Some(winograd) = &self.winograd {
            return winograd.run(phase, task, io);
        }
        if phase == 0 { self.pack(task, io) } else { self.multiply(task, io) }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
