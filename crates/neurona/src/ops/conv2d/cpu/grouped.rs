//! Convolution with few channels a group, one at the least (depthwise): matrix products of so few columns would leave most
//! of a register empty. All three passes run along the channels of several groups, which lie side by side, and along the
//! pixels of a line. Padding is never read: near the edges, pixels meet fewer filter values.

mod tile;

use super::{Cut, Geometry};
use crate::cpu::gemm::panel::Transposed;
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, share};
use crate::cpu::simd::vectorized;
use std::ops::Range;
use tile::{Lines, Loops, Registers, Stretch, Sums, TAPS, Tap, loops, slides};

/// Lanes that a task has at least, where channels are split: two lines of a cache for each pixel, and whole registers.
const LANES: usize = 64;
/// Lanes of the widest registers.
const WIDEST: usize = 16;

/// Which of the three passes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    Forward { bias: bool, scaled: bool, activation: Activation },
    InputGrad,
    WeightGrad { with_bias: bool },
}

/// A pass of a convolution of few channels a group.
pub(super) struct Grouped {
    g: Geometry,
    pass: Pass,
    cut: Cut,
    /// How channels of source and result (of input and output, for the gradient by the weights) lie in registers.
    registers: Registers,
    /// How many registers they take.
    count: usize,
    /// Blocks of registers, one task each and part.
    blocks: usize,
    /// Tasks that bring filters into the order of registers.
    pieces: usize,
    /// For each row of the result, the filter rows that reach it; for the gradient by the weights, of the output.
    rows: Vec<Vec<Tap>>,
    /// The columns of a row, cut where the filter columns that reach them change.
    columns: Vec<Columns>,
    loops: &'static Loops,
}

/// Columns of a line that the same filter columns reach.
struct Columns {
    first: usize,
    count: usize,
    /// Where the first pixel's source lies for each of them, from left to right.
    taps: Vec<Tap>,
    /// How many they are, where each is one pixel further than the one before; else 0.
    sliding: usize,
}

impl Grouped {
    /// A pass, when the channels of a group are so few that a register holds several groups.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        if g.groups < 2 {
            return None;
        }
        let back = pass == Pass::InputGrad;
        let ([height, width], source_width, from, to) = {
            let (input, output) = ([g.h, g.w], [g.oh(), g.ow()]);
            let (c, k) = (g.group_c(), g.group_k());
            if back { (input, output[1], k, c) } else { (output, input[1], c, k) }
        };
        let registers = Registers::new(from, to, g.taps())?;
        let count = g.groups.div_ceil(registers.held);
        let tasks = task_count(g.flops() as usize);
        let parts = match pass {
            // Each part has sums of its own, which must be few beside what it reads.
            Pass::WeightGrad { .. } => tasks.min(g.n * height * width / (8 * g.taps() * from)).max(1),
            _ => tasks,
        };
        let mut cut = Cut::new(g.n, height, width, parts, super::PIXELS);
        if parts == 1 && cut.groups > 0 {
            (cut.groups, cut.blocks) = (1, 1);
        }
        let blocks = tasks.div_ceil(cut.parts().max(1)).clamp(1, (count * registers.width() / LANES).max(1));
        let pieces = (count * registers.weights / 16_384).clamp(1, count);
        let reach = |axis: usize, at: usize| reach(&g, axis, at, back);
        let (pixel, value) = (g.groups * from, from * registers.width());
        let rows = (0..height)
            .map(|row| {
                let tap =
                    |(r, from): (usize, usize)| Tap { source: from * source_width * pixel, weight: r * g.s * value };
                reach(0, row).map(tap).collect()
            })
            .collect();
        // Neighbouring pixels of a class meet neighbouring ones of the source.
        let classes = if back { g.stride[1] } else { 1 };
        let step = if back { pixel } else { g.stride[1] * pixel };
        let mut columns: Vec<Columns> = Vec::new();
        for class in 0..classes {
            let first = columns.len();
            for column in (class..width).step_by(classes) {
                let tap = |(s, from): (usize, usize)| Tap { source: from * pixel, weight: s * value };
                let mut taps: Vec<Tap> = reach(1, column).map(tap).collect();
                taps.sort_unstable_by_key(|tap| tap.source);
                let weights = |taps: &[Tap]| taps.iter().map(|t| t.weight).collect::<Vec<_>>();
                match columns[first..].last_mut() {
                    Some(last) if weights(&last.taps) == weights(&taps) => last.count += 1,
                    _ => {
                        let neighbours = taps.windows(2).all(|pair| pair[1].source - pair[0].source == step);
                        let sliding = if neighbours { taps.len() } else { 0 };
                        columns.push(Columns { first: column, count: 1, taps, sliding });
                    }
                }
            }
        }
        Some(Grouped { g, pass, cut, registers, count, blocks, pieces, rows, columns, loops: loops() })
    }

    /// Floats of all weights, with what fills registers.
    fn weights(&self) -> usize {
        self.count * self.registers.weights
    }

    /// Floats of one part's sums: those of the weights, then of the bias.
    fn partial(&self) -> usize {
        self.weights() + self.g.k.next_multiple_of(WIDEST)
    }

    /// Parts of the pixels.
    pub fn parts(&self) -> usize {
        self.cut.parts()
    }

    /// What a task of the last phase has: a part, its images, its rows, and channels of the result.
    pub fn share(&self, task: usize) -> (usize, [Range<usize>; 3]) {
        let part = task / self.blocks;
        let (images, rows) = self.cut.part(part);
        let groups = self.groups(self.block(task));
        (part, [images, rows, groups.start * self.registers.to..groups.end * self.registers.to])
    }

    /// The registers of a task.
    fn block(&self, task: usize) -> Range<usize> {
        share(self.count, self.blocks, task % self.blocks)
    }

    /// The groups that some registers hold.
    fn groups(&self, registers: Range<usize>) -> Range<usize> {
        let held = self.registers.held;
        registers.start * held..(registers.end * held).min(self.g.groups)
    }

    pub fn phases(&self) -> Vec<usize> {
        let tasks = self.cut.parts() * self.blocks;
        match self.pass {
            Pass::WeightGrad { .. } => vec![tasks, self.blocks],
            _ => vec![if tasks == 0 { 0 } else { self.pieces }, tasks],
        }
    }

    pub fn workspace(&self) -> usize {
        let floats = match self.pass {
            Pass::WeightGrad { .. } => self.cut.parts() * self.partial(),
            _ => self.weights(),
        };
        floats * size_of::<f32>()
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        match (self.pass, phase) {
            (Pass::WeightGrad { with_bias }, 0) => self.weight_grad(task, with_bias, io),
            (Pass::WeightGrad { with_bias }, _) => self.reduce(task, with_bias, io),
            (_, 0) => self.turn(task, io),
            _ => self.pixels(task, io),
        }
    }

    /// Brings the filters of some registers into their order: `[register][r][s][channel of the source][lane]`.
    fn turn(&self, task: usize, io: &Io<'_>) {
        let Registers { from, to, weights, .. } = self.registers;
        let (taps, width) = (self.g.taps(), self.registers.width());
        let source = io.inputs[1].ptr::<f32>().cast_const();
        for register in share(self.count, self.pieces, task) {
            let groups = self.groups(register..register + 1);
            let lanes = groups.len() * to;
            // SAFETY: these registers' weights belong to this task.
            let out = unsafe { io.workspace.slice_mut::<f32>(register * weights..(register + 1) * weights) };
            let forward = Transposed {
                source: source.wrapping_add(groups.start * to * from * taps),
                stride: from * taps,
                columns: lanes,
                taps,
                groups: from,
                step: width,
                width,
                range: 0..from * taps,
            };
            // A group's only filter is the same from both sides.
            if self.pass != Pass::InputGrad || !self.registers.moves() {
                // SAFETY: no task writes an input, and there is room for a register's filters.
                unsafe { forward.pack(out.as_mut_ptr()) };
            } else {
                out.fill(0.0);
                for (i, group) in groups.clone().enumerate() {
                    for channel in 0..from {
                        let filter = Transposed {
                            source: source.wrapping_add((group * from + channel) * to * taps),
                            stride: taps,
                            columns: to,
                            taps: 1,
                            groups: 1,
                            step: from * width,
                            width: to,
                            range: 0..taps,
                        };
                        // SAFETY: as above; a group's filters have its lanes.
                        unsafe { filter.pack(out[channel * width + i * to..].as_mut_ptr()) };
                    }
                }
            }
            if let Pass::Forward { scaled: true, .. } = self.pass {
                // SAFETY: no task writes an input.
                let scale = unsafe { &io.inputs[3].slice::<f32>()[groups.start * to..][..lanes] };
                vectorized(
                    #[inline(always)]
                    || {
                        for out in out.chunks_exact_mut(width) {
                            out.iter_mut().zip(scale).for_each(|(x, scale)| *x *= scale);
                        }
                    },
                );
            }
        }
    }

    /// Forward and the gradient by the input: each pixel of the result is a sum over its filter values.
    fn pixels(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let Registers { from, to, weights, .. } = self.registers;
        let (_, [images, rows, _]) = self.share(task);
        let block = self.block(task);
        let groups = self.groups(block.clone());
        let (bias, activation, back) = match self.pass {
            Pass::Forward { bias, activation, .. } => (bias, activation, false),
            _ => (false, Activation::None, true),
        };
        let (input, output) = (g.h * g.w * g.c, g.oh() * g.ow() * g.k);
        let (source, result, width) = if back { (output, input, g.w) } else { (input, output, g.ow()) };
        let (pixel, out_pixel) = (g.groups * from, g.groups * to);
        let (step, out_step) = if back { (pixel, g.stride[1] * out_pixel) } else { (g.stride[1] * pixel, out_pixel) };
        let bias: *const f32 =
            if bias { io.inputs[2].ptr::<f32>().wrapping_add(groups.start * to) } else { std::ptr::null() };
        // Lines that the next row is the first to read come while this one is computed, where no cache has them yet.
        let line = g.w * g.c;
        let ahead = if !back && g.far() { g.stride[0] } else { 0 };
        for (image, row) in images.flat_map(|image| rows.clone().map(move |row| (image, row))) {
            let below = (row * g.stride[0] + g.rows_under(1)).saturating_sub(g.padding[0]);
            for columns in &self.columns {
                let at = image * result + (row * width + columns.first) * out_pixel + groups.start * to;
                let stretch = Stretch {
                    registers: &self.registers,
                    rows: &self.rows[row],
                    columns: &columns.taps,
                    sliding: columns.sliding,
                    count: columns.count,
                    groups: groups.len(),
                    source: io.inputs[0].ptr::<f32>().wrapping_add(image * source + groups.start * from),
                    step,
                    weight: io.workspace.ptr::<f32>().wrapping_add(block.start * weights),
                    bias,
                    limits: activation.limits(),
                    out: io.outputs[0].ptr::<f32>().wrapping_add(at),
                    out_step,
                    ahead,
                    next: io.inputs[0]
                        .ptr::<f32>()
                        .wrapping_add(image * source + below * line + columns.first * g.stride[1] * g.c),
                    line,
                };
                // SAFETY: no task writes an input, nor the workspace in this phase; `reach` has found that the filter
                // values meet pixels inside the image; these channels of these rows belong to this task.
                unsafe { (self.loops.stretch)(&stretch) };
            }
        }
    }

    fn weight_grad(&self, task: usize, with_bias: bool, io: &Io<'_>) {
        let g = &self.g;
        let Registers { from, to, weights, .. } = self.registers;
        let (part, [images, rows, channels]) = self.share(task);
        let block = self.block(task);
        let groups = self.groups(block.clone());
        let sums = part * self.partial() + block.start * weights;
        let bias = part * self.partial() + self.weights() + channels.start;
        // SAFETY: these registers and channels of this part's sums belong to this task.
        let bias = unsafe {
            io.workspace.slice_mut::<f32>(sums..sums + block.len() * weights).fill(0.0);
            io.workspace.slice_mut::<f32>(bias..bias + channels.len())
        };
        bias.fill(0.0);
        let (x_step, dy_step) = (g.stride[1] * g.c, g.k);
        let out = io.workspace.ptr::<f32>().wrapping_add(sums);
        let slides = g.stride[1] == 1 && g.dilation[1] == 1 && slides(g.s);
        for (image, oh) in images.flat_map(|image| rows.clone().map(move |oh| (image, oh))) {
            let line = ((image * g.oh() + oh) * g.ow()) * g.k;
            if with_bias {
                // SAFETY: no task writes an input.
                let dy = unsafe { &io.inputs[1].slice::<f32>()[line..line + g.ow() * g.k] };
                vectorized(
                    #[inline(always)]
                    || {
                        for dy in dy.chunks_exact(g.k) {
                            bias.iter_mut().zip(&dy[channels.clone()]).for_each(|(sum, v)| *sum += v);
                        }
                    },
                );
            }
            let x = io.inputs[0].ptr::<f32>().wrapping_add(image * g.h * g.w * g.c + groups.start * from);
            let dy = io.inputs[1].ptr::<f32>().wrapping_add(line + groups.start * to);
            if slides {
                let lines = Lines {
                    registers: &self.registers,
                    rows: &self.rows[oh],
                    columns: g.s,
                    count: g.w,
                    out_count: g.ow(),
                    padding: g.padding[1],
                    groups: groups.len(),
                    x,
                    x_step,
                    dy,
                    dy_step,
                    out,
                };
                // SAFETY: no task writes an input; `reach` has found that filter rows meet lines inside the image; these
                // registers of this part's sums belong to this task.
                unsafe { (self.loops.lines)(&lines) };
                continue;
            }
            for columns in &self.columns {
                let mut pairs = self.rows[oh].iter().flat_map(|row| columns.taps.iter().map(move |tap| (row, tap)));
                loop {
                    let (mut taps, mut count) = ([Tap { source: 0, weight: 0 }; TAPS], 0);
                    for (row, column) in pairs.by_ref().take(TAPS) {
                        taps[count] = Tap { source: row.source + column.source, weight: row.weight + column.weight };
                        count += 1;
                    }
                    if count == 0 {
                        break;
                    }
                    let taps = Sums {
                        registers: &self.registers,
                        taps: &taps[..count],
                        count: columns.count,
                        groups: groups.len(),
                        x,
                        x_step,
                        dy: dy.wrapping_add(columns.first * g.k),
                        dy_step,
                        out,
                    };
                    // SAFETY: no task writes an input; `reach` has found that the filter values meet pixels inside the
                    // image; these registers of this part's sums belong to this task.
                    unsafe { (self.loops.sums)(&taps) };
                }
            }
        }
    }

    /// Adds up the parts of some registers, and turns them into filters.
    fn reduce(&self, task: usize, with_bias: bool, io: &Io<'_>) {
        let Registers { from, to, weights, .. } = self.registers;
        let (taps, width, block) = (self.g.taps(), self.registers.width(), self.block(task));
        let size = from * taps;
        const ROOM: usize = 16 * WIDEST;
        let groups = self.groups(block.clone());
        let channels = groups.start * to..groups.end * to;
        // SAFETY: no task writes the workspace in this phase; these channels belong to this task.
        let (sums, dw) = unsafe {
            let dw = io.outputs[0].slice_mut::<f32>(channels.start * size..channels.end * size);
            (io.workspace.slice::<f32>(), dw)
        };
        vectorized(
            #[inline(always)]
            || {
                let total = |at: usize, out: &mut [f32]| {
                    for part in sums.chunks_exact(self.partial()) {
                        out.iter_mut().zip(&part[at..]).for_each(|(sum, x)| *sum += x);
                    }
                };
                for (register, dw) in block.zip(dw.chunks_mut(self.registers.held * to * size)) {
                    for first in (0..size).step_by(ROOM / WIDEST) {
                        let mut room = [0f32; ROOM];
                        let room = &mut room[..(ROOM / WIDEST).min(size - first) * width];
                        total(register * weights + first * width, room);
                        for (i, room) in room.chunks_exact(width).enumerate() {
                            let (tap, channel) = ((first + i) / from, (first + i) % from);
                            let dw = dw[channel * taps + tap..].iter_mut().step_by(size);
                            dw.zip(room).for_each(|(dw, sum)| *dw = *sum);
                        }
                    }
                }
                if with_bias {
                    // SAFETY: as above.
                    let db = unsafe { io.outputs[1].slice_mut::<f32>(channels.clone()) };
                    db.fill(0.0);
                    total(self.weights() + channels.start, db);
                }
            },
        );
    }
}

/// The filter values along an axis that reach a place of the result, and where each comes from: of the output from the
/// input, or `back`.
fn reach(g: &Geometry, axis: usize, at: usize, back: bool) -> impl Iterator<Item = (usize, usize)> {
    let (taps, size) = if axis == 0 { (g.r, [g.h, g.oh()]) } else { (g.s, [g.w, g.ow()]) };
    let (stride, padding, dilation) = (g.stride[axis], g.padding[axis], g.dilation[axis]);
    (0..taps).filter_map(move |tap| {
        let from = match back {
            false => (at * stride + tap * dilation).checked_sub(padding)?,
            true => {
                let from = (at + padding).checked_sub(tap * dilation)?;
                from.is_multiple_of(stride).then_some(from / stride)?
            }
        };
        (from < size[usize::from(back)]).then_some((tap, from))
    })
}
