//! Gradient for the weights: a sum over pixels of outer products of an output gradient and the
//! window under it. Channels are split among tasks, and parts of the batch are summed apart while
//! that memory is small. The last phase adds the parts up and turns them into OIHW.

pub(super) mod sums;

use super::few::{self, Few};
use super::grouped::{Grouped, Pass};
use super::source::Source;
use super::winograd;
use super::{Cut, Geometry};
use crate::cpu::gemm::micro::{Ahead, Start, Tile};
use crate::cpu::gemm::panel::{Panel, packed_width, panels};
use crate::cpu::gemm::{Activation, MatLayout, MatMul, task_count};
use crate::cpu::kernel::{Buf, Io, Kernel, share};
use crate::cpu::stream::OWN;
use std::ops::Range;
use sums::{STREAMS, column_sums};

/// Bytes of partial sums beyond which the batch is not split.
const PARTIALS: usize = 8 << 20;
/// Pixels between visits to the sums, at least; more while both operands stay in the L1 cache.
const PIXELS: usize = 128;
const L1_FLOATS: usize = 6 << 10;
/// Columns that a task adds up for the bias beside a matrix product.
const COLUMNS: usize = 128;

/// Gradient of a convolution for its weights, `f32`: inputs `x` `[n, h, w, c]` and `dy`
/// `[n, oh, ow, k]`; outputs `[k, c/groups, r, s]` and, when asked, the bias's `[k]`, overwritten.
pub struct WeightGrad {
    g: Geometry,
    /// Another way, for few channels a group.
    grouped: Option<Grouped>,
    /// Another way, for 3×3 filters and many tiles.
    winograd: Option<winograd::WeightGrad>,
    /// Another way, for 1×1 filters and few pixels, and its phases; the bias has one after them.
    product: Option<(MatMul, usize)>,
    with_bias: bool,
    /// Of output rows.
    cut: Cut,
    /// Which operand is broadcast.
    way: Way,
    /// Panels of the other: of a run of a window, or of one group's output channels.
    panels: Vec<Panel>,
    /// Blocks of one group's broadcast values and of its panels: one task each, group and part.
    blocks: (usize, usize),
    source: Source,
    /// Whether the output's gradients, which tasks then read once, are asked for ahead.
    far: bool,
    /// Whether a copy of the input holds some channels only.
    sliced: bool,
    /// For each block of broadcast values, where they lie and where their sums go.
    rows: Vec<(Vec<usize>, Vec<usize>)>,
    /// For each block of rows and each filter row, or for all of them: the rows of the output that meet the image.
    lines: Vec<Vec<Lines>>,
    /// Filters that are added up side by side, and tasks that do so.
    filters: usize,
    reduces: usize,
    /// Where the batch is not split, most channels of a task: it turns its sums into OIHW itself, in its cache.
    alone: Option<usize>,
}

/// Rows of a part's output, for as many images as it may have: where each starts in the input, and in the output.
struct Lines {
    x: Vec<usize>,
    dy: Vec<usize>,
    /// Rows of one image.
    image: usize,
}

/// Gradients by the output that somebody makes just before they are needed, while they are in a core's caches.
pub(crate) struct Fresh<'a> {
    /// Makes those of an image, `[oh, ow, k]`.
    pub make: &'a dyn Fn(usize, &mut [f32]),
    /// Room for an image's, in the running thread's scratch beside what this kernel asks for itself; nothing where they are
    /// kept.
    pub room: Buf,
    /// Of what they are made, images of the same size: asked for ahead.
    pub from: *const f32,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Sums are `[k][r·s·c]`. Windows are vectors, in runs of a filter row (few channels) or a
    /// filter value.
    Gradients { runs: usize },
    /// Sums are `[r·s·c][k]`. For windows too short to fill vectors.
    Windows,
}

impl WeightGrad {
    /// The gradient of a convolution of the given sizes.
    pub fn new(g: Geometry, with_bias: bool) -> Self {
        let (c, k) = (g.group_c(), g.group_k());
        let tasks = task_count(g.flops() as usize);
        let fill = |n: usize| n as f64 / packed_width(n).max(1) as f64;
        let joined = g.groups == 1 && g.dilation[1] == 1 && fill(g.s * c) > fill(c);
        let (runs, run) = if joined { (g.r, g.s * c) } else { (g.taps(), c) };
        let way = if fill(run) > 0.9 * fill(k) && c >= 16 || fill(run) > 1.1 * fill(k) {
            Way::Gradients { runs }
        } else {
            Way::Windows
        };
        let panels = panels(if way == Way::Windows { k } else { run });
        let broadcast = if way == Way::Windows { c } else { k };

        // Channels first: parts of the batch cost memory traffic, the more the fewer their pixels.
        let splittable = !(joined && way != Way::Windows);
        let most_panels = if splittable { panels.len().max(1) } else { 1 };
        let tall = if way == Way::Windows { (c * g.taps()).div_ceil(56) } else { k.div_ceil(56) };
        let most_rows = tall.clamp(1, broadcast.max(1));
        let partial = g.k * g.taps() * c * size_of::<f32>();
        let pixels = g.n * g.oh() * g.ow();
        let enough = if partial <= 1 << 14 { (pixels / 256).max(g.n.min(pixels / 96)) } else { pixels / 512 };
        let parts = tasks.min(PARTIALS / partial.max(1)).min(enough).max(1);
        let mut cut = Cut::new(g.n, g.oh(), g.ow(), parts, super::PIXELS);
        if parts == 1 && cut.groups > 0 {
            (cut.groups, cut.blocks) = (1, 1);
        }
        let rest = tasks.div_ceil((cut.parts() * g.groups).max(1));
        let panel_blocks = rest.clamp(1, most_panels);
        let row_blocks = rest.div_ceil(panel_blocks).clamp(1, most_rows);

        let mut grad = WeightGrad {
            g,
            grouped: Grouped::new(g, Pass::WeightGrad { with_bias }),
            winograd: winograd::WeightGrad::new(g, with_bias),
            product: g.few_points().then(|| {
                let rows = |row: usize| MatLayout { row, col: 1, batch: 0 };
                let turned = MatLayout { row: 1, col: g.k, batch: 0 };
                let product = MatMul::new(1, g.k, g.c, g.n * g.h * g.w, turned, rows(g.c), false, Activation::None);
                let phases = product.phases().len();
                (product, phases)
            }),
            with_bias,
            cut,
            way,
            panels,
            blocks: (row_blocks, panel_blocks),
            source: Source::new(g),
            far: (row_blocks, panel_blocks, g.groups) == (1, 1, 1) && pixels * g.k * size_of::<f32>() > 4 * OWN,
            sliced: false,
            rows: Vec::new(),
            lines: Vec::new(),
            filters: if way == Way::Windows { STREAMS } else { 1 },
            reduces: 0,
            alone: None,
        };
        if cut.parts() == 1 && way != Way::Windows {
            grad.alone = (0..panel_blocks).map(|block| grad.channels(0, block).len()).max();
        }
        // A copy holds only the channels that its task reads.
        let channel_blocks = if way == Way::Windows { row_blocks } else { panel_blocks };
        grad.sliced = grad.source.copied && (channel_blocks > 1 || g.groups > 1);
        if grad.sliced {
            let sizes = (0..channel_blocks).map(|block| grad.channels(block, block).len());
            grad.source.pixel = sizes.max().unwrap_or(0);
        }
        let most = g.k.div_ceil(grad.filters).max(1);
        grad.reduces = (grad.partial() * cut.parts() / 16_384).clamp(1, 64).min(most);
        grad.rows = (0..row_blocks).map(|block| grad.broadcast(block)).collect();
        // Products with the padding's rows are left out.
        let lists = if way == Way::Windows || g.padding[0] == 0 { 1 } else { g.r };
        let reached = |r: usize| if lists == 1 { 0..g.oh() } else { g.reached(0, r) };
        let blocks = 0..cut.parts().min(cut.blocks);
        grad.lines = blocks.map(|block| (0..lists).map(|r| grad.meet(block, reached(r))).collect()).collect();
        grad
    }

    /// The gradient for kernels that make the output's gradients themselves, an image at a time: where one task needs an
    /// image, and needs all of it.
    ///
    /// Where they are `kept`, the second input is their memory, and making them must be hidden behind something: Winograd's
    /// products.
    pub(crate) fn of_fresh(g: Geometry, with_bias: bool, kept: bool) -> Option<Self> {
        if Few::new(g, few::Pass::WeightGrad { with_bias, step: None }).is_some() {
            return None;
        }
        let grad = WeightGrad::new(g, with_bias);
        if kept {
            let has_images = grad.winograd.as_ref().is_some_and(winograd::WeightGrad::has_images);
            return (has_images && grad.grouped.is_none()).then_some(grad);
        }
        let other_ways = grad.grouped.is_some() || grad.winograd.is_some() || grad.product.is_some();
        let whole = grad.cut.groups > 0 && grad.cut.blocks == 1 && grad.blocks == (1, 1) && g.groups == 1 && g.k > 0;
        (whole && !other_ways && grad.alone.is_none()).then_some(grad)
    }

    /// Its first phase with such gradients. Of the inputs, the images alone are read, unless gradients are kept.
    pub(crate) fn run_fresh(&self, task: usize, io: &Io<'_>, fresh: Fresh<'_>) {
        match &self.winograd {
            Some(winograd) => winograd.run_fresh(task, io, &fresh),
            None => self.multiply(task, io, Some(fresh)),
        }
    }

    /// The rows of a block that are among these rows of the output.
    fn meet(&self, block: usize, reached: Range<usize>) -> Lines {
        let (g, block_rows, own) = (&self.g, self.cut.block_rows(), self.cut.part(block).1);
        let place = |row: usize| row.clamp(own.start, own.end) - own.start;
        let rows = place(reached.start)..place(reached.end);
        let image = rows.len();
        let (line, size) = (self.source.g.stride[0] * self.source.line(), self.source.image(block_rows));
        let all = (0..self.cut.images()).flat_map(|i| rows.clone().map(move |row| (i, row)));
        let (x, dy) = all.map(|(i, row)| (i * size + row * line, (i * block_rows + row) * g.ow() * g.k)).unzip();
        Lines { x, dy, image }
    }

    /// The channels of a group that a task reads.
    fn channels(&self, row_block: usize, panel_block: usize) -> Range<usize> {
        let g = &self.g;
        if self.way == Way::Windows {
            return share(g.group_c(), self.blocks.0, row_block);
        }
        if self.blocks.1 == 1 {
            return 0..g.group_c();
        }
        let panels = &self.panels[share(self.panels.len(), self.blocks.1, panel_block)];
        panels.first().map_or(0..0, |first| {
            let last = &panels[panels.len() - 1];
            first.start..last.start + last.columns
        })
    }

    /// Offset of a filter value in what is read.
    fn tap(&self, tap: usize) -> usize {
        let (g, source) = (&self.g, &self.source);
        let (r, s) = (tap / g.s, tap % g.s);
        r * g.dilation[0] * source.line() + s * g.dilation[1] * source.pixel
    }

    fn broadcast(&self, block: usize) -> (Vec<usize>, Vec<usize>) {
        let g = &self.g;
        let size = g.taps() * g.group_c();
        if self.way != Way::Windows {
            let filters = share(g.group_k(), self.blocks.0, block);
            let (first, size) = self.alone.map_or((0, size), |channels| (filters.start, g.taps() * channels));
            return filters.map(|k| (k, (k - first) * size)).unzip();
        }
        let channels = self.channels(block, 0);
        let first = if self.sliced { channels.start } else { 0 };
        (0..g.taps())
            .flat_map(|tap| channels.clone().map(move |c| (tap, c)))
            .map(|(tap, c)| (self.tap(tap) + c - first, (tap * g.group_c() + c) * g.group_k()))
            .unzip()
    }

    /// Floats of one part's sums.
    fn partial(&self) -> usize {
        self.g.k * self.g.taps() * self.g.group_c()
    }

    /// Where the bias's sums start in the workspace.
    fn bias_at(&self) -> usize {
        if self.alone.is_some() { 0 } else { self.cut.parts() * self.partial() }
    }

    fn multiply(&self, task: usize, io: &Io<'_>, fresh: Option<Fresh<'_>>) {
        let g = &self.g;
        let (row_blocks, panel_blocks) = self.blocks;
        let (group, block) = (task / (row_blocks * panel_blocks), task % (row_blocks * panel_blocks));
        let (part, group) = (group / g.groups, group % g.groups);
        let (row_block, panel_block) = (block / panel_blocks, block % panel_blocks);
        let (images, rows) = self.cut.part(part);
        let dy_at = (images.start * g.oh() + rows.start) * g.ow() * g.k;
        let lines = images.len() * rows.len();
        let columns = group * g.group_k()..(group + 1) * g.group_k();
        let mut bias = (self.with_bias && block == 0).then(|| {
            let at = self.bias_at() + part * g.k;
            // SAFETY: these sums belong to this task.
            let sums = unsafe { io.workspace.slice_mut::<f32>(at + columns.start..at + columns.end) };
            sums.fill(0.0);
            sums
        });
        let mut channel = group * g.group_c();
        let mut skipped = 0;
        let mut channels = 0..g.c;
        if self.sliced {
            let inside = self.channels(row_block, panel_block);
            skipped = if self.way == Way::Windows { 0 } else { inside.start };
            channels = channel + inside.start..channel + inside.end;
            channel = 0;
        }
        let x = self.source.rows(&self.cut, images.clone(), rows.clone(), channels, io);
        let x = x.wrapping_add(channel);
        let at = part * self.partial() + group * self.partial() / g.groups;
        let sums = match self.alone {
            Some(_) => io.scratch.ptr::<f32>().wrapping_add(self.source.floats(&self.cut)),
            None => io.workspace.ptr::<f32>().wrapping_add(at),
        };
        let inside = self.channels(row_block, panel_block);
        let panels = &self.panels[share(self.panels.len(), panel_blocks, panel_block)];

        let (a_rows, c_rows) = &self.rows[row_block];
        let x_step = self.source.g.stride[1] * self.source.pixel;
        let at_once = PIXELS.max(L1_FLOATS / (x_step + g.k));
        let mut blocks = (lines * g.ow()).div_ceil(at_once).clamp(1, lines.max(1));
        if fresh.is_some() {
            blocks = blocks.next_multiple_of(images.len());
        }
        let line = g.ow() * g.k;
        for block in 0..blocks {
            let own = share(lines, blocks, block);
            let (from, at) = match &fresh {
                None => (io.inputs[1], dy_at + own.start * line),
                Some(fresh) => {
                    let (image, row) = (own.start / rows.len(), own.start % rows.len());
                    if row == 0 {
                        // SAFETY: the room is in this thread's scratch.
                        (fresh.make)(images.start + image, unsafe { fresh.room.slice_mut(0..g.oh() * line) });
                    }
                    (fresh.room, row * line)
                }
            };
            let floats = own.len() * line;
            if let Some(bias) = &mut bias {
                // Here, where the products read it next.
                // SAFETY: no task writes an input, and in the room nothing changes before the next image.
                let dy = unsafe { &from.slice::<f32>()[at..at + floats] };
                column_sums(bias, dy, g.k, columns.clone());
            }
            // Places of rows are counted from the part's first.
            let here = from.ptr::<f32>().wrapping_add(at);
            let dy = here.wrapping_sub(own.start * line).wrapping_add(group * g.group_k());
            let ahead = |products: usize, product: usize, width: usize| {
                if !self.far || fresh.is_some() {
                    return Ahead::NOTHING;
                }
                let some = share(floats, products, product);
                Ahead::run(here.wrapping_add(floats + some.start), some.len(), width)
            };
            // The rows that meet a filter row, as far as they belong to this block.
            let block_lines = |r: usize| {
                let met = &self.lines[part % self.cut.blocks];
                let met = &met[r % met.len()];
                let own = share(met.image * images.len(), blocks, block);
                (met.x[own.clone()].as_ptr(), met.dy[own.clone()].as_ptr(), own.len())
            };
            let (x_lines, dy_lines, segments) = block_lines(0);
            let mut tile = Tile {
                a: x,
                a_rows: std::ptr::null(),
                a_segments: x_lines,
                a_step: x_step,
                segments,
                length: g.ow(),
                b: dy,
                b_segments: dy_lines,
                b_step: g.k,
                c: sums,
                c_rows: std::ptr::null(),
                columns: 0,
                start: if block == 0 { Start::Zero } else { Start::Sum },
                limits: None,
                far: false,
                ahead: Ahead::NOTHING,
            };
            match self.way {
                Way::Windows => {
                    for (i, panel) in panels.iter().enumerate() {
                        let (b, c) = (dy.wrapping_add(panel.start), sums.wrapping_add(panel.start));
                        let ahead = ahead(panels.len(), i, panel.width.columns);
                        // SAFETY: windows stay inside what is read; these sums belong to
                        // this task.
                        unsafe { panel.rows(Tile { b, c, ahead, ..tile }, a_rows, c_rows) };
                    }
                }
                Way::Gradients { runs } => {
                    (tile.a_step, tile.b_step) = (g.k, x_step);
                    let (run, before) = match self.alone {
                        Some(channels) => (g.taps() * channels / runs, inside.start),
                        None => (g.taps() * g.group_c() / runs, 0),
                    };
                    for index in 0..runs {
                        let tap = index * g.taps() / runs;
                        // Nor are products with the padding at the sides computed, where filter columns are apart.
                        let columns = if runs == g.taps() { g.reached(1, tap % g.s) } else { 0..g.ow() };
                        (tile.b_segments, tile.a_segments, tile.segments) = block_lines(tap / g.s);
                        (tile.a, tile.length) = (dy.wrapping_add(columns.start * g.k), columns.len());
                        let x = x.wrapping_add(self.tap(tap) + columns.start * x_step);
                        for (i, panel) in panels.iter().enumerate() {
                            let ahead = ahead(runs * panels.len(), index * panels.len() + i, panel.width.columns);
                            let b = x.wrapping_add(panel.start - skipped);
                            let c = sums.wrapping_add(index * run + panel.start - before);
                            // SAFETY: as above.
                            unsafe { panel.rows(Tile { b, c, ahead, ..tile }, a_rows, c_rows) };
                        }
                    }
                }
            }
        }
        if let Some(stride) = self.alone {
            self.turn(group, row_block, inside, stride, io);
        }
    }

    /// The bias's sums beside a matrix product.
    fn add_columns(&self, task: usize, io: &Io<'_>) {
        let Geometry { n, h, w, k, .. } = self.g;
        let columns = task * COLUMNS..k.min((task + 1) * COLUMNS);
        // SAFETY: no task writes an input; these columns belong to this task.
        let (dy, out) = unsafe { (io.inputs[1].slice::<f32>(), io.outputs[1].slice_mut::<f32>(columns.clone())) };
        out.fill(0.0);
        column_sums(out, &dy[..n * h * w * k], k, columns);
    }
}

#[cfg(test)]
impl WeightGrad {
    /// In this way instead of the one that the sizes choose.
    pub(super) fn by(self, winograd: Option<winograd::WeightGrad>) -> Self {
        WeightGrad { winograd, ..self }
    }
}

impl Kernel for WeightGrad {
    fn phases(&self) -> Vec<usize> {
        if let Some(grouped) = &self.grouped {
            return grouped.phases();
        }
        if let Some(winograd) = &self.winograd {
            return winograd.phases();
        }
        if let Some((product, _)) = &self.product {
            let mut phases = product.phases();
            if self.with_bias {
                phases.push(self.g.k.div_ceil(COLUMNS));
            }
            return phases;
        }
        if self.g.k == 0 {
            return vec![0, 0];
        }
        let blocks = self.g.groups * self.blocks.0 * self.blocks.1;
        let reduces = if self.alone.is_some() && !self.with_bias { 0 } else { self.reduces };
        vec![self.cut.parts() * blocks, reduces]
    }

    fn workspace(&self) -> usize {
        if let Some(grouped) = &self.grouped {
            return grouped.workspace();
        }
        if let Some(winograd) = &self.winograd {
            return winograd.workspace();
        }
        if let Some((product, _)) = &self.product {
            return product.workspace();
        }
        let sums = if self.alone.is_some() { 0 } else { self.partial() };
        self.cut.parts() * (sums + self.g.k) * size_of::<f32>()
    }

    fn scratch(&self) -> usize {
        if self.grouped.is_some() {
            return 0;
        }
        if let Some(winograd) = &self.winograd {
            return winograd.scratch();
        }
        if let Some((product, _)) = &self.product {
            return product.scratch();
        }
        let sums = self.alone.map_or(0, |channels| self.g.group_k().div_ceil(self.blocks.0) * self.g.taps() * channels);
        (self.source.floats(&self.cut) + sums).max(self.room()) * size_of::<f32>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if let Some(grouped) = &self.grouped {
            return grouped.run(phase, task, io);
        }
        if let Some(winograd) = &self.winograd {
            return winograd.run(phase, task, io);
        }
        if let Some((product, phases)) = &self.product {
            return if phase < *phases {
                product.run(phase, task, &Io { inputs: &[io.inputs[1], io.inputs[0]], ..*io })
            } else {
                self.add_columns(task, io)
            };
        }
        if phase == 0 { self.multiply(task, io, None) } else { self.reduce(task, io) }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
