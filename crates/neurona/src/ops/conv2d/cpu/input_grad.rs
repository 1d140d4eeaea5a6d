//! Gradient for the input: each output pixel's gradient times the filters gives a patch, which is
//! added where its window lies. A task owns rows of the input and visits the output rows that
//! reach them, so that strides waste nothing and no two tasks write the same place.

use super::grouped::{Grouped, Pass};
use super::source::{WORTH, crowded, spread, worth_copies};
use super::winograd::{self, Winograd};
use super::{CACHE, Cut, Geometry};
use crate::cpu::gemm::micro::{Ahead, Start, Tile, widths};
use crate::cpu::gemm::panel::{Panel, Transposed, filled_panels, width_of};
use crate::cpu::gemm::{Activation, DEPTH, MatLayout, MatMul, task_count};
use crate::cpu::kernel::{Buf, Io, Kernel, Prepared, share};
use crate::cpu::stream::FAR;
use std::ops::Range;

/// Gradient of a convolution for its input, `f32`: inputs `dy` `[n, oh, ow, k]` and `weight`
/// `[k, c/groups, r, s]`; output `[n, h, w, c]`, overwritten.
pub struct InputGrad {
    g: Geometry,
    /// Another way, for few channels a group.
    grouped: Option<Grouped>,
    /// Another way, for 3×3 filters and many tiles.
    winograd: Option<Winograd>,
    /// Another way, for 1×1 filters and few pixels.
    product: Option<MatMul>,
    /// Of input rows.
    cut: Cut,
    /// Whether a whole filter row is one run of columns (few channels), or one value is.
    whole_rows: bool,
    /// Panels of one run.
    panels: Vec<Panel>,
    /// Columns of these panels with the zeros that fill the last.
    packed: usize,
    /// Blocks of (group, panel), one task each and part.
    panel_blocks: usize,
    /// Floats from pixel to pixel where a task gathers its sums.
    pixel: usize,
    /// For each block of rows and each filter column, or for all columns at once: the pixels that meet.
    meetings: Vec<Vec<Vec<Meeting>>>,
    /// For each filter row of a meeting, where its output row and its weights start.
    a_segments: Vec<usize>,
    b_segments: Vec<usize>,
    /// For a whole filter row, where its columns lie in a filter.
    order: Vec<usize>,
    /// Pieces in which one panel's weights are packed.
    pieces: usize,
    /// Whether the only task that needs a panel packs it itself, in its cache: packed weights then never go to memory.
    alone: bool,
    /// Floats from pixel to pixel where a task copies gradients, because those of a tile would be crowded in the L1 cache.
    spread: Option<usize>,
    /// Whether a part asks for the gradients of the next, which are in no cache yet.
    far: bool,
}

/// Output pixels and where their patches go, for as many images as a part may have. Patches of
/// one meeting do not overlap.
struct Meeting {
    /// The first filter row, and how many meet the same input row from different output rows:
    /// these are summed before the patch is touched.
    r: usize,
    count: usize,
    a_rows: Vec<usize>,
    c_rows: Vec<usize>,
    /// Entries of one image.
    image: usize,
}

/// Input pixels that a task should have at least.
const PIXELS: usize = 128;

impl InputGrad {
    /// The gradient of a convolution of the given sizes.
    pub fn new(g: Geometry) -> Self {
        let widest = widths()[widths().len() - 1].columns;
        let c = g.group_c();
        let whole_rows = g.groups == 1 && g.dilation[1] == 1 && g.s > 1 && c < 2 * widest && !c.is_multiple_of(widest);
        let columns = if whole_rows { g.s * c } else { c };
        let panels = filled_panels(columns, g.group_k().min(DEPTH));
        let tasks = task_count(g.flops() as usize);
        let cut = Cut::new(g.n, g.h, g.w, tasks, PIXELS);
        let units = if whole_rows { 1 } else { panels.len() * g.groups };
        let copies = g.points() && crowded(g.k) && worth_copies(cut.parts(), units);
        let most = if copies { units / WORTH } else { units };
        let panel_blocks = tasks.div_ceil(cut.parts().max(1)).clamp(1, most.max(1));
        let pixel = if g.padding[1] == 0 {
            g.c
        } else {
            let widest_block = (0..panel_blocks)
                .map(|b| share(units, panel_blocks, b))
                .map(|range| if whole_rows { c } else { block_columns(&panels, c, range) })
                .max();
            widest_block.unwrap_or(0)
        };
        let floats = g.k * g.taps() * c;
        let panel = g.taps() * g.group_k() * widest * size_of::<f32>();
        let alone = !whole_rows && cut.parts() == 1 && g.groups == 1 && panel_blocks == panels.len() && panel <= CACHE;
        let packed = if alone { widest } else { width_of(&panels) };
        // Filter rows that meet one input row are `apart`, and so are their output rows.
        let apart = g.stride[0] / gcd(g.stride[0], g.dilation[0]);
        let line = apart * g.dilation[0] / g.stride[0] * g.ow() * g.k;
        let filter_row = if whole_rows { 1 } else { g.s } * packed * g.group_k();
        let pieces = (floats / 16_384).clamp(1, 64).div_ceil((panels.len() * g.groups).max(1));
        let mut grad = InputGrad {
            g,
            grouped: Grouped::new(g, Pass::InputGrad),
            winograd: Winograd::new(g, winograd::Pass::InputGrad),
            product: g.few_points().then(|| {
                let rows = |row: usize| MatLayout { row, col: 1, batch: 0 };
                MatMul::new(1, g.n * g.h * g.w, g.c, g.k, rows(g.k), rows(g.c), false, Activation::None)
            }),
            cut,
            whole_rows,
            panels,
            packed,
            panel_blocks,
            pixel,
            meetings: Vec::new(),
            a_segments: (0..g.r).rev().map(|i| i * line).collect(),
            b_segments: (0..g.r).map(|i| i * apart * filter_row).collect(),
            order: (0..g.s * c).map(|i| i % c * g.taps() + i / c).collect(),
            pieces: if alone { 1 } else { pieces.min(g.group_k()).max(1) },
            alone,
            spread: copies.then(|| spread(g.k)),
            far: g.points() && panel_blocks == 1 && g.n * g.oh() * g.ow() * g.k * size_of::<f32>() > FAR,
        };
        // Patches that would fall on padding are left out, unless they are too few to be worth lists for each filter column.
        let inside: usize = (0..g.s).map(|s| g.reached(1, s).len()).sum();
        let lists = if whole_rows || inside * 100 >= g.s * g.ow() * 97 { 1 } else { g.s };
        let reached = |s: usize| if lists == 1 { 0..g.ow() } else { g.reached(1, s) };
        let blocks = 0..cut.parts().min(cut.blocks);
        grad.meetings = blocks.map(|block| (0..lists).map(|s| grad.meet(block, reached(s))).collect()).collect();
        grad
    }

    /// Floats of a part's image where sums are gathered.
    fn image(&self, rows: usize) -> usize {
        let rows = if self.direct() { self.g.h } else { rows };
        rows * self.g.padded_w() * self.pixel
    }

    /// Without padding at the sides, sums are gathered in the result itself.
    fn direct(&self) -> bool {
        self.g.padding[1] == 0
    }

    /// Whether no two patches meet anywhere, and sums begin with their only patch.
    fn apart(&self) -> bool {
        self.g.taps() == 1 && self.direct()
    }

    /// The filter rows that reach an input row, and the output row that the last comes from.
    fn reach(&self, h: usize) -> (Vec<usize>, usize) {
        let g = &self.g;
        let output = |r: usize| {
            let at = (h + g.padding[0]).checked_sub(r * g.dilation[0])?;
            (at.is_multiple_of(g.stride[0]) && at / g.stride[0] < g.oh()).then(|| at / g.stride[0])
        };
        let rows: Vec<usize> = (0..g.r).filter(|&r| output(r).is_some()).collect();
        let last = rows.last().and_then(|&r| output(r)).unwrap_or(0);
        (rows, last)
    }

    /// The rows of the output that filters of one value bring to these rows of the input.
    fn outputs(&self, rows: Range<usize>) -> Range<usize> {
        let output = |row: usize| row.div_ceil(self.g.stride[0]).min(self.g.oh());
        output(rows.start)..output(rows.end)
    }

    /// The meetings of a block of rows with these columns of the output.
    fn meet(&self, block: usize, reached: Range<usize>) -> Vec<Meeting> {
        let g = &self.g;
        let rows = self.cut.part(block).1;
        // Copied gradients are those of the block alone.
        let (pixel, outputs) = self.spread.map_or((g.k, 0..g.oh()), |pixel| (pixel, self.outputs(rows.clone())));
        // Patches of neighbouring columns overlap when they are whole filter rows.
        let classes = if self.whole_rows { g.s.div_ceil(g.stride[1]) } else { 1 };
        let reaches: Vec<_> = rows.clone().map(|h| self.reach(h)).collect();
        let most = reaches.iter().map(|(r, _)| r.len()).max().unwrap_or(0);
        // Rows near the edge meet fewer: one filter row at a time, to fill the tiles. And a long
        // sum needs no further ones.
        let together = |count: usize| count == most && g.group_k() <= 128;
        let line = self.a_segments.iter().rev().nth(1).copied().unwrap_or(0);
        let mut pairs = Vec::new();
        for (y, (reach, last)) in reaches.iter().enumerate() {
            if reach.is_empty() {
                continue;
            }
            let from = (last - outputs.start) * g.ow() * pixel;
            if together(reach.len()) {
                pairs.push((reach[0], reach.len(), y, from));
            } else {
                let alone = reach.iter().rev().enumerate();
                pairs.extend(alone.map(|(i, &r)| (r, 1, y, from + i * line)));
            }
        }
        pairs.sort_unstable();
        let mut meetings = Vec::new();
        for pairs in pairs.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (r, count, ..) = pairs[0];
            meetings.extend((0..classes).map(|class| {
                let columns = || (reached.start + class..reached.end).step_by(classes);
                let entries = (0..self.cut.images())
                    .flat_map(|image| pairs.iter().map(move |&(_, _, y, from)| (image, y, from)))
                    .flat_map(|(image, y, from)| columns().map(move |ow| (image, y, from, ow)));
                let (a_rows, c_rows): (Vec<_>, Vec<_>) = entries
                    .map(|(image, y, from, ow)| {
                        let to = y * g.padded_w() + ow * g.stride[1];
                        (
                            (image * outputs.len() * g.ow() + ow) * pixel + from,
                            image * self.image(self.cut.block_rows()) + to * self.pixel,
                        )
                    })
                    .unzip();
                let image = a_rows.len() / self.cut.images().max(1);
                Meeting { r, count, a_rows, c_rows, image }
            }));
        }
        meetings
    }

    /// Runs of columns: filter rows, or filter values.
    fn runs(&self) -> usize {
        if self.whole_rows { self.g.r } else { self.g.taps() }
    }

    /// Where a run of a group starts in the packed weights.
    fn packed_at(&self, group: usize, run: usize) -> usize {
        (group * self.runs() + run) * self.packed * self.g.group_k()
    }

    /// Where packed weights lie, and where those of a group's panel start.
    fn packed(&self, group: usize, panel: &Panel, io: &Io<'_>) -> (Buf, usize) {
        if self.alone {
            return (io.scratch, self.gathered());
        }
        (io.workspace, self.packed_at(group, 0) + panel.start * self.g.group_k())
    }

    /// Floats of the place where a task gathers sums, if that is not the result.
    fn gathered(&self) -> usize {
        if self.direct() { 0 } else { self.cut.images() * self.image(self.cut.block_rows()) }
    }

    /// Floats of the panel that a task packs for itself.
    fn panel(&self) -> usize {
        if self.alone { self.packed_at(1, 0) } else { 0 }
    }

    /// Packs some filters: `[group][run][panel][k][columns]`.
    fn pack(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let (c, k, taps) = (g.group_c(), g.group_k(), g.taps());
        let (unit, piece) = (task / self.pieces, task % self.pieces);
        let (group, panel) = (unit / self.panels.len(), &self.panels[unit % self.panels.len()]);
        let width = panel.width.columns;
        // SAFETY: no task writes an input.
        let weight = unsafe { io.inputs[1].slice::<f32>() };
        for row in share(k, self.pieces, piece) {
            let from = &weight[(group * k + row) * c * taps..][..c * taps];
            let (packed, at) = self.packed(group, panel, io);
            let at = at + row * width;
            if !self.whole_rows && taps > 1 {
                let channels = Transposed {
                    source: from[panel.start * taps..].as_ptr(),
                    stride: taps,
                    columns: panel.columns,
                    taps: 1,
                    groups: 1,
                    step: self.packed * k,
                    width,
                    range: 0..taps,
                };
                // SAFETY: as above; each task packs its own filters of its own panel.
                unsafe { channels.pack(packed.ptr::<f32>().wrapping_add(at)) };
                continue;
            }
            for run in 0..self.runs() {
                let at = at + run * self.packed * k;
                // SAFETY: as above.
                let out = unsafe { packed.slice_mut::<f32>(at..at + width) };
                let (inside, rest) = out.split_at_mut(panel.columns);
                rest.fill(0.0);
                if self.whole_rows {
                    let from = &from[run * g.s..];
                    let order = &self.order[panel.start..];
                    inside.iter_mut().zip(order).for_each(|(x, &at)| *x = from[at]);
                } else {
                    inside.copy_from_slice(&from[panel.start..][..panel.columns]);
                }
            }
        }
    }

    fn multiply(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let part = task / self.panel_blocks;
        let (images, rows) = self.cut.part(part);
        let units = if self.whole_rows { 1 } else { self.panels.len() * g.groups };
        let chosen = share(units, self.panel_blocks, task % self.panel_blocks);
        // The first channel of this task, and how many it has.
        let (channel, channels) = if self.whole_rows {
            (0, g.c)
        } else {
            let first = &self.panels[chosen.start % self.panels.len()];
            let group = chosen.start / self.panels.len();
            let count = block_columns(&self.panels, g.group_c(), chosen.clone());
            (group * g.group_c() + first.start, count)
        };
        let out = self.clear(images.clone(), rows.clone(), channel..channel + channels, io);
        let dy = match self.spread {
            Some(pixel) => self.copy(images.clone(), rows.clone(), pixel, io),
            None => io.inputs[0].ptr::<f32>().wrapping_add(images.start * g.oh() * g.ow() * g.k),
        };
        if self.alone {
            self.pack(chosen.start, io);
        }
        let depth_blocks = g.group_k().div_ceil(DEPTH).max(1);
        // The next part's gradients come while this one's are multiplied, some with each product.
        let outputs = self.outputs(rows.clone());
        let own = images.len() * outputs.len() * g.ow();
        let (products, mut product) = (depth_blocks * chosen.len(), 0);
        let next = ((images.start * g.oh() + outputs.start) * g.ow() + own) * g.k;
        let next = io.inputs[0].ptr::<f32>().wrapping_add(next);
        for depth in 0..depth_blocks {
            let steps = share(g.group_k(), depth_blocks, depth);
            for s in 0..if self.whole_rows { 1 } else { g.s } {
                let panels = if self.whole_rows { 0..self.panels.len() } else { chosen.clone() };
                for index in panels {
                    let (group, panel) = (index / self.panels.len(), &self.panels[index % self.panels.len()]);
                    let width = panel.width.columns;
                    let column = group * g.group_c() + panel.start - channel;
                    let (packed, at) = self.packed(group, panel, io);
                    let at = at - self.packed_at(group, 0) + steps.start * width;
                    let meetings = &self.meetings[part % self.cut.blocks];
                    for meeting in &meetings[s % meetings.len()] {
                        let run = if self.whole_rows { meeting.r } else { meeting.r * g.s + s };
                        let mut ahead = Ahead::NOTHING;
                        if self.far && product < products {
                            let some = share(own * g.k, products, product);
                            ahead = Ahead::run(next.wrapping_add(some.start), some.len(), width);
                            product += 1;
                        }
                        let tile = Tile {
                            a: dy.wrapping_add(group * g.group_k() + steps.start),
                            a_rows: std::ptr::null(),
                            a_segments: self.a_segments[g.r - meeting.count..].as_ptr(),
                            a_step: 1,
                            segments: meeting.count,
                            length: steps.len(),
                            b: packed.ptr::<f32>().wrapping_add(self.packed_at(group, run) + at),
                            b_segments: self.b_segments.as_ptr(),
                            b_step: width,
                            c: out.wrapping_add(s * g.dilation[1] * self.pixel + column),
                            c_rows: std::ptr::null(),
                            columns: 0,
                            start: if depth == 0 && self.apart() { Start::Zero } else { Start::Sum },
                            limits: None,
                            far: false,
                            ahead,
                        };
                        let count = meeting.image * images.len();
                        // SAFETY: patches of one meeting do not overlap, and lie inside the rows
                        // (with padding at the sides) that this task owns.
                        unsafe { panel.rows(tile, &meeting.a_rows[..count], &meeting.c_rows[..count]) };
                    }
                }
            }
        }
        if !self.direct() {
            self.write(images, rows, channel..channel + channels, io);
        }
    }

    /// The gradients that filters of one value bring to these rows, in scratch.
    fn copy(&self, images: Range<usize>, rows: Range<usize>, pixel: usize, io: &Io<'_>) -> *const f32 {
        let g = &self.g;
        let outputs = self.outputs(rows);
        let pixels = images.flat_map(|image| {
            let first = image * g.oh();
            (first + outputs.start) * g.ow()..(first + outputs.end) * g.ow()
        });
        let at = self.gathered() + self.panel();
        // SAFETY: no task writes an input.
        let dy = unsafe { io.inputs[0].slice::<f32>() };
        for (i, from) in pixels.enumerate() {
            // SAFETY: scratch belongs to this thread.
            let to = unsafe { io.scratch.slice_mut(at + i * pixel..at + i * pixel + g.k) };
            to.copy_from_slice(&dy[from * g.k..(from + 1) * g.k]);
        }
        io.scratch.ptr::<f32>().wrapping_add(at)
    }

    /// Zeros the place where sums are gathered, as far as they do not begin there, and says where it starts.
    fn clear(&self, images: Range<usize>, rows: Range<usize>, channels: Range<usize>, io: &Io<'_>) -> *mut f32 {
        let g = &self.g;
        if !self.direct() {
            let floats = images.len() * self.image(self.cut.block_rows());
            // SAFETY: scratch belongs to this thread.
            unsafe { io.scratch.slice_mut::<f32>(0..floats) }.fill(0.0);
            return io.scratch.ptr();
        }
        let begins = |axis: usize, at: usize| {
            let (at, stride) = (at + g.padding[axis], g.stride[axis]);
            self.apart() && at.is_multiple_of(stride) && at / stride < [g.oh(), g.ow()][axis]
        };
        for (image, h) in images.clone().flat_map(|image| rows.clone().map(move |h| (image, h))) {
            for w in (0..g.w).filter(|&w| !begins(0, h) || !begins(1, w)) {
                let at = ((image * g.h + h) * g.w + w) * g.c;
                // SAFETY: these channels of these rows belong to this task.
                unsafe { io.outputs[0].slice_mut::<f32>(at + channels.start..at + channels.end) }.fill(0.0);
            }
        }
        let first = (images.start * g.h + rows.start) * g.w * g.c + channels.start;
        io.outputs[0].ptr::<f32>().wrapping_add(first)
    }

    /// Copies the sums without their padding.
    fn write(&self, images: Range<usize>, rows: Range<usize>, channels: Range<usize>, io: &Io<'_>) {
        let g = &self.g;
        let size = self.image(self.cut.block_rows());
        for (i, image) in images.enumerate() {
            for (y, h) in rows.clone().enumerate() {
                let from = i * size + (y * g.padded_w() + g.padding[1]) * self.pixel;
                // SAFETY: scratch belongs to this thread.
                let from = unsafe { io.scratch.slice_mut::<f32>(from..from + g.w * self.pixel) };
                let to = (image * g.h + h) * g.w * g.c;
                if channels.len() == g.c && self.pixel == g.c {
                    // SAFETY: these rows belong to this task.
                    unsafe { io.outputs[0].slice_mut::<f32>(to..to + g.w * g.c) }.copy_from_slice(from);
                    continue;
                }
                for (w, from) in from.chunks_exact(self.pixel).enumerate() {
                    let to = to + w * g.c;
                    // SAFETY: these channels of these rows belong to this task.
                    unsafe { io.outputs[0].slice_mut::<f32>(to + channels.start..to + channels.end) }
                        .copy_from_slice(&from[..channels.len()]);
                }
            }
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Channels of neighbouring (group, panel) units; a group has `c`.
fn block_columns(panels: &[Panel], c: usize, units: Range<usize>) -> usize {
    let end = |unit: usize| {
        let (group, panel) = (unit / panels.len(), unit % panels.len());
        group * c + panels[panel].start
    };
    if units.is_empty() { 0 } else { end(units.end) - end(units.start) }
}

#[cfg(test)]
impl InputGrad {
    /// In this way instead of the one that the sizes choose.
    pub(super) fn by(self, winograd: Option<Winograd>) -> Self {
        InputGrad { winograd, ..self }
    }
}

impl Kernel for InputGrad {
    fn phases(&self) -> Vec<usize> {
        if let Some(grouped) = &self.grouped {
            return grouped.phases();
        }
        if let Some(winograd) = &self.winograd {
            return winograd.phases();
        }
        if let Some(product) = &self.product {
            return product.phases();
        }
        let tasks = if self.g.c == 0 { 0 } else { self.cut.parts() * self.panel_blocks };
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
        if let Some(product) = &self.product {
            return product.workspace();
        }
        if self.alone { 0 } else { self.packed_at(self.g.groups, 0) * size_of::<f32>() }
    }

    fn scratch(&self) -> usize {
        if self.grouped.is_some() {
            return 0;
        }
        if let Some(winograd) = &self.winograd {
            return winograd.scratch();
        }
        if let Some(product) = &self.product {
            return product.scratch();
        }
        let lines = self.cut.images() * self.cut.block_rows().div_ceil(self.g.stride[0]);
        let copied = self.spread.map_or(0, |pixel| lines * self.g.ow() * pixel);
        (self.gathered() + self.panel() + copied) * size_of::<f32>()
    }

    fn prepared(&self) -> Option<Prepared> {
        if let Some(product) = &self.product {
            return product.prepared();
        }
        let way = match (&self.grouped, &self.winograd) {
            (Some(_), _) => "turned filters by lanes",
            (_, Some(winograd)) if winograd.filters_first() => "turned and transformed filters",
            (_, Some(_)) => return None,
            _ if self.alone => return None,
            _ => "turned filters",
        };
        let Geometry { k, r, s, groups, stride, dilation, .. } = self.g;
        let form = (way, vec![k, self.g.group_c(), r, s, groups, stride[0], stride[1], dilation[0], dilation[1]]);
        Some(Prepared { inputs: vec![1], form })
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if let Some(grouped) = &self.grouped {
            return grouped.run(phase, task, io);
        }
        if let Some(winograd) = &self.winograd {
            return winograd.run(phase, task, io);
        }
        if let Some(product) = &self.product {
            return product.run(phase, task, io);
        }
        if phase == 0 { self.pack(task, io) } else { self.multiply(task, io) }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
