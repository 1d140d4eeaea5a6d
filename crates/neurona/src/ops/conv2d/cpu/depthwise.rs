//! Convolution with one filter a channel: no matrix product, since nothing is summed over channels. All three passes run
//! along channels, which lie side by side, and along the pixels of a line. Padding is never read: near the edges, pixels
//! meet fewer filter values.

mod tile;

use super::{Cut, Geometry};
use crate::cpu::gemm::panel::Transposed;
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, share};
use crate::cpu::simd::vectorized;
use std::ops::Range;
use tile::{Loops, Stretch, Sums, TAPS, Tap, loops};

/// Channels that a task has at least, where channels are split: two lines of a cache for each pixel, and whole registers.
const CHANNELS: usize = 64;

/// Which of the three passes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    Forward { bias: bool, scaled: bool, activation: Activation },
    InputGrad,
    WeightGrad { with_bias: bool },
}

/// A pass of a convolution whose groups are its channels.
pub(super) struct Depthwise {
    g: Geometry,
    pass: Pass,
    cut: Cut,
    /// Blocks of channels, one task each and part.
    blocks: usize,
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

impl Depthwise {
    /// A pass, when the sizes are those of a depthwise convolution.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        if g.groups < 2 || g.groups != g.c || g.groups != g.k {
            return None;
        }
        let tasks = task_count(g.flops() as usize);
        let back = pass == Pass::InputGrad;
        let ([height, width], [_, source_width]) = {
            let (input, output) = ([g.h, g.w], [g.oh(), g.ow()]);
            if back { (input, output) } else { (output, input) }
        };
        let parts = match pass {
            // Each part has sums of its own, which must be few beside what it reads.
            Pass::WeightGrad { .. } => tasks.min(g.n * height * width / (8 * g.taps())).max(1),
            _ => tasks,
        };
        let mut cut = Cut::new(g.n, height, width, parts, super::PIXELS);
        if parts == 1 && cut.groups > 0 {
            (cut.groups, cut.blocks) = (1, 1);
        }
        let blocks = tasks.div_ceil(cut.parts().max(1)).clamp(1, (g.c / CHANNELS).max(1));
        let reach = |axis: usize, at: usize| reach(&g, axis, at, back);
        let rows = (0..height)
            .map(|row| {
                let tap = |(r, from): (usize, usize)| Tap { source: from * source_width * g.c, weight: r * g.s * g.c };
                reach(0, row).map(tap).collect()
            })
            .collect();
        // Neighbouring pixels of a class meet neighbouring ones of the source.
        let classes = if back { g.stride[1] } else { 1 };
        let step = if back { g.c } else { g.stride[1] * g.c };
        let mut columns: Vec<Columns> = Vec::new();
        for class in 0..classes {
            let from = columns.len();
            for column in (class..width).step_by(classes) {
                let mut taps: Vec<Tap> =
                    reach(1, column).map(|(s, from)| Tap { source: from * g.c, weight: s * g.c }).collect();
                taps.sort_unstable_by_key(|tap| tap.source);
                let weights = |taps: &[Tap]| taps.iter().map(|t| t.weight).collect::<Vec<_>>();
                match columns[from..].last_mut() {
                    Some(last) if weights(&last.taps) == weights(&taps) => last.count += 1,
                    _ => {
                        let neighbours = taps.windows(2).all(|pair| pair[1].source - pair[0].source == step);
                        let sliding = if neighbours { taps.len() } else { 0 };
                        columns.push(Columns { first: column, count: 1, taps, sliding });
                    }
                }
            }
        }
        Some(Depthwise { g, pass, cut, blocks, rows, columns, loops: loops() })
    }

    /// Floats of all weights.
    fn weights(&self) -> usize {
        self.g.taps() * self.g.c
    }

    /// Floats of one part's sums: those of the weights, then of the bias.
    fn partial(&self) -> usize {
        self.weights() + self.g.c
    }

    /// Parts of the pixels.
    pub fn parts(&self) -> usize {
        self.cut.parts()
    }

    /// What a task of the last phase has: a part, its images, its rows, and channels.
    pub fn share(&self, task: usize) -> (usize, [Range<usize>; 3]) {
        let part = task / self.blocks;
        let (images, rows) = self.cut.part(part);
        (part, [images, rows, self.channels(task % self.blocks)])
    }

    pub fn phases(&self) -> Vec<usize> {
        let tasks = self.cut.parts() * self.blocks;
        match self.pass {
            Pass::WeightGrad { .. } => vec![tasks, self.blocks],
            _ => vec![tasks.min(1), tasks],
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
            (_, 0) => self.turn(io),
            _ => self.pixels(task, io),
        }
    }

    /// Turns the filters into `[r][s][c]`.
    fn turn(&self, io: &Io<'_>) {
        let (taps, c) = (self.g.taps(), self.g.c);
        let filters = Transposed {
            source: io.inputs[1].ptr(),
            stride: taps,
            columns: c,
            taps: 1,
            groups: 1,
            step: c,
            width: c,
            range: 0..taps,
        };
        // SAFETY: no task writes an input; there is one task in this phase, and room for all filters.
        unsafe { filters.pack(io.workspace.ptr()) };
        if let Pass::Forward { scaled: true, .. } = self.pass {
            // SAFETY: as above.
            let (scale, out) = unsafe { (io.inputs[3].slice::<f32>(), io.workspace.slice_mut::<f32>(0..taps * c)) };
            vectorized(
                #[inline(always)]
                || {
                    for out in out.chunks_exact_mut(c) {
                        out.iter_mut().zip(scale).for_each(|(x, scale)| *x *= scale);
                    }
                },
            );
        }
    }

    /// The channels of a task.
    fn channels(&self, block: usize) -> Range<usize> {
        // Whole registers of every instruction set.
        let Range { start, end } = share(self.g.c.div_ceil(16), self.blocks, block);
        start * 16..(end * 16).min(self.g.c)
    }

    /// Forward and the gradient by the input: each pixel of the result is a sum over its filter values.
    fn pixels(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let (_, [images, rows, channels]) = self.share(task);
        let (bias, activation, back) = match self.pass {
            Pass::Forward { bias, activation, .. } => (bias, activation, false),
            _ => (false, Activation::None, true),
        };
        let (input, output) = (g.h * g.w * g.c, g.oh() * g.ow() * g.c);
        let (source, result, width) = if back { (output, input, g.w) } else { (input, output, g.ow()) };
        let (step, out_step) = if back { (g.c, g.stride[1] * g.c) } else { (g.stride[1] * g.c, g.c) };
        let bias: *const f32 =
            if bias { io.inputs[2].ptr::<f32>().wrapping_add(channels.start) } else { std::ptr::null() };
        for (image, row) in images.flat_map(|image| rows.clone().map(move |row| (image, row))) {
            for columns in &self.columns {
                let at = image * result + (row * width + columns.first) * g.c + channels.start;
                let stretch = Stretch {
                    rows: &self.rows[row],
                    columns: &columns.taps,
                    sliding: columns.sliding,
                    count: columns.count,
                    channels: channels.len(),
                    source: io.inputs[0].ptr::<f32>().wrapping_add(image * source + channels.start),
                    step,
                    weight: io.workspace.ptr::<f32>().wrapping_add(channels.start),
                    bias,
                    relu: activation == Activation::Relu,
                    out: io.outputs[0].ptr::<f32>().wrapping_add(at),
                    out_step,
                };
                // SAFETY: no task writes an input, nor the workspace in this phase; `reach` has found that the filter
                // values meet pixels inside the image; these channels of these rows belong to this task.
                unsafe { (self.loops.stretch)(&stretch) };
            }
        }
    }

    fn weight_grad(&self, task: usize, with_bias: bool, io: &Io<'_>) {
        let g = &self.g;
        let (part, [images, rows, channels]) = self.share(task);
        let sums = part * self.partial() + channels.start;
        for tap in 0..=g.taps() {
            let at = sums + tap * g.c;
            // SAFETY: these channels of this part's sums belong to this task.
            unsafe { io.workspace.slice_mut::<f32>(at..at + channels.len()) }.fill(0.0);
        }
        for (image, oh) in images.flat_map(|image| rows.clone().map(move |oh| (image, oh))) {
            let line = ((image * g.oh() + oh) * g.ow()) * g.c;
            if with_bias {
                let at = sums + self.weights();
                // SAFETY: no task writes an input; the sums as above.
                let (dy, bias) = unsafe {
                    let dy = &io.inputs[1].slice::<f32>()[line..line + g.ow() * g.c];
                    (dy, io.workspace.slice_mut::<f32>(at..at + channels.len()))
                };
                vectorized(
                    #[inline(always)]
                    || {
                        for dy in dy.chunks_exact(g.c) {
                            bias.iter_mut().zip(&dy[channels.clone()]).for_each(|(sum, v)| *sum += v);
                        }
                    },
                );
            }
            for columns in &self.columns {
                let dy = line + columns.first * g.c + channels.start;
                let x = image * g.h * g.w * g.c + channels.start;
                let mut pairs = self.rows[oh].iter().flat_map(|row| columns.taps.iter().map(move |tap| (row, tap)));
                loop {
                    let (mut sources, mut places, mut count) = ([0; TAPS], [0; TAPS], 0);
                    for (row, column) in pairs.by_ref().take(TAPS) {
                        (sources[count], places[count]) = (row.source + column.source, row.weight + column.weight);
                        count += 1;
                    }
                    if count == 0 {
                        break;
                    }
                    let taps = Sums {
                        sources: &sources[..count],
                        sums: &places[..count],
                        count: columns.count,
                        channels: channels.len(),
                        x: io.inputs[0].ptr::<f32>().wrapping_add(x),
                        x_step: g.stride[1] * g.c,
                        dy: io.inputs[1].ptr::<f32>().wrapping_add(dy),
                        dy_step: g.c,
                        out: io.workspace.ptr::<f32>().wrapping_add(sums),
                    };
                    // SAFETY: no task writes an input; `reach` has found that the filter values meet pixels inside the
                    // image; these channels of this part's sums belong to this task.
                    unsafe { (self.loops.sums)(&taps) };
                }
            }
        }
    }

    /// Adds up the parts of some channels, and turns them into filters.
    fn reduce(&self, block: usize, with_bias: bool, io: &Io<'_>) {
        let (taps, c, channels) = (self.g.taps(), self.g.c, self.channels(block));
        const ROOM: usize = 64;
        // SAFETY: no task writes the workspace in this phase; these channels belong to this task.
        let (sums, dw) = unsafe {
            let dw = io.outputs[0].slice_mut::<f32>(channels.start * taps..channels.end * taps);
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
                for (tap, first) in (0..taps).flat_map(|tap| channels.clone().step_by(ROOM).map(move |c| (tap, c))) {
                    let mut room = [0f32; ROOM];
                    let room = &mut room[..ROOM.min(channels.end - first)];
                    total(tap * c + first, room);
                    let dw = dw[(first - channels.start) * taps + tap..].iter_mut().step_by(taps);
                    dw.zip(room).for_each(|(dw, sum)| *dw = *sum);
                }
                if with_bias {
                    // SAFETY: as above.
                    let db = unsafe { io.outputs[1].slice_mut::<f32>(channels.clone()) };
                    db.fill(0.0);
                    total(taps * c + channels.start, db);
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
