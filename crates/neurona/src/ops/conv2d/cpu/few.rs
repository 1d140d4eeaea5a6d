//! Few pixels and many weights, as in the last layers of a network at small batches: every weight meets only a handful
//! of pixels, so that bringing it to the core costs as much as the arithmetic.
//!
//! All three passes are products with weights (or their gradients) as a matrix of a row a filter, just as they lie in
//! memory: they are read once, or written once, and never packed or turned. What is brought into their order instead is
//! small: the windows of the pixels, or the patches of gradients.

use super::Geometry;
use super::weight_grad::sums::column_sums;
use crate::cpu::gemm::micro::{Ahead, Dot, Start, Tile, dots, widths};
use crate::cpu::gemm::panel::{Panel, Transposed, panels};
use crate::cpu::gemm::{Activation, DEPTH};
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::simd::vectorized;
use crate::cpu::stream::Stream;
use crate::cpu::tasks::pieces;
use crate::ops::sgd_step::Options;
use crate::ops::sgd_step::tile::{Along, Gradients};
use std::ops::Range;

/// What is computed. Operands and results are those of [`super::Forward`], [`super::InputGrad`] and
/// [`super::WeightGrad`].
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    Forward {
        bias: bool,
        activation: Activation,
    },
    InputGrad,
    /// With options of a step, what they ask for is done with each gradient as soon as it is there. Further operands are
    /// then the weights, their state and the step's numbers; further results the weights and their state.
    WeightGrad {
        with_bias: bool,
        step: Option<Options>,
    },
}

/// Pixels above which weights that are packed first make up for it.
const PIXELS: usize = 64;
/// Bytes of weights from which on packing them is what a pass waits for.
const WEIGHTS: usize = 512 << 10;
/// Filters below which the windows, which each filter shares, are too much of the work.
const FILTERS: usize = 128;
/// Channels whose windows a task brings into order, and whose gradients a task computes: with 3×3 filters, whole
/// registers and cache lines of weights.
const CHANNELS: usize = 32;
/// Filters between visits to the sums of patches.
const DEEP: usize = 64;
/// Parts that the filters are cut into for the gradient by the input, whatever the number of threads, for the sums to be
/// the same. The tasks of a part are neighbours, so that a thread meets the weights of the same filters in all passes:
/// cores without a cache in common that have all read a weight take several times as long to write it.
const PARTS: usize = 2;
/// Pixels beyond whole registers of them that are multiplied by the filters one by one, along their windows.
const SINGLE: usize = 3;
/// Floats between rows of windows beyond their length: rows at a multiple of 4 KiB would push each other out of the L1
/// cache.
const APART: usize = 16;

static START: [usize; 1] = [0];

/// One pass.
pub(super) struct Few {
    g: Geometry,
    pass: Pass,
    /// Output pixels of all images.
    pixels: usize,
    /// Forward, those of them that are vectors.
    full: usize,
    /// Values of a filter.
    size: usize,
    /// Of pixels (forward), of a task's columns of weights (by the input; those of the last task beside them), or of all.
    panels: Vec<Panel>,
    rest: Vec<Panel>,
    /// Where rows of the left operand and of the sums start.
    a_rows: Vec<usize>,
    c_rows: Vec<usize>,
}

impl Few {
    /// The pass, where it is the fastest way.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        let few = Few::possible(g, pass)?;
        let many = g.k * few.size * size_of::<f32>() >= WEIGHTS && g.k >= FILTERS;
        // Weights are broadcast once for each panel of pixels: of narrow ones there may not be many.
        let wide = !matches!(pass, Pass::Forward { .. }) || few.panels.len() <= 2;
        (many && wide && few.pixels <= PIXELS).then_some(few)
    }

    /// The pass, where it is possible.
    pub fn possible(g: Geometry, pass: Pass) -> Option<Self> {
        let pixels = g.n * g.oh() * g.ow();
        let size = g.c * g.taps();
        if g.groups != 1 || pixels * size * g.k == 0 {
            return None;
        }
        let widest = &widths()[widths().len() - 1];
        let tallest = widest.rows();
        let rows = |count: usize, apart: usize| (0..count).map(|i| i * apart).collect();
        // A few pixels more would take another register, and as long as one that is full of them.
        let register = widths().iter().rev().nth(1).map_or(1, |width| width.columns);
        let single = pixels % register;
        let full = if single <= SINGLE { pixels - single } else { pixels };
        let (columns, rest, a_rows, c_rows) = match pass {
            Pass::Forward { .. } => (full, 0, rows(tallest, size), rows(tallest, full)),
            Pass::InputGrad => {
                let columns = CHANNELS * g.taps();
                (columns, size % columns, rows(pixels, g.k), rows(pixels, columns))
            }
            Pass::WeightGrad { .. } => (size, 0, rows(tallest, 1), rows(tallest, widest.columns)),
        };
        Some(Few { g, pass, pixels, full, size, panels: panels(columns), rest: panels(rest), a_rows, c_rows })
    }

    /// Values of all input images.
    fn images(&self) -> usize {
        self.g.n * self.g.h * self.g.w * self.g.c
    }

    /// Tasks with some channels each.
    fn channel_tasks(&self) -> usize {
        self.g.c.div_ceil(CHANNELS)
    }

    /// Tasks with a tile's rows of filters each.
    fn filter_tasks(&self) -> usize {
        self.g.k.div_ceil(self.a_rows.len())
    }

    /// Floats from one pixel's window to the next.
    fn window(&self) -> usize {
        self.size.next_multiple_of(APART) + APART
    }

    /// Calls `each` with every output pixel that a filter value reaches, or would reach without padding: the pixel, the
    /// filter value, and the input pixel.
    fn meetings(&self, mut each: impl FnMut(usize, usize, Option<usize>)) {
        let g = &self.g;
        for pixel in 0..self.pixels {
            let (image, y, x) = (pixel / (g.oh() * g.ow()), pixel / g.ow() % g.oh(), pixel % g.ow());
            for tap in 0..g.taps() {
                let h = (y * g.stride[0] + tap / g.s * g.dilation[0]).wrapping_sub(g.padding[0]);
                let w = (x * g.stride[1] + tap % g.s * g.dilation[1]).wrapping_sub(g.padding[1]);
                each(pixel, tap, (h < g.h && w < g.w).then(|| (image * g.h + h) * g.w + w));
            }
        }
    }

    /// The channels of a task.
    fn channels(&self, task: usize) -> Range<usize> {
        task * CHANNELS..self.g.c.min((task + 1) * CHANNELS)
    }

    /// Brings windows into the order of the weights, for some channels: value after value with all pixels of `full` side by
    /// side, and after them the windows of further pixels, `window` floats apart.
    fn windows(&self, task: usize, full: usize, window: usize, io: &Io<'_>) {
        let (g, channels) = (&self.g, self.channels(task));
        // SAFETY: no task writes an input.
        let x = unsafe { io.inputs[0].slice::<f32>() };
        let plain = g.taps() == 1 && g.stride == [1, 1] && !g.padded();
        if plain && full > 0 {
            assert!(x.len() >= full * g.c);
            let pixels = Transposed {
                source: x.as_ptr(),
                stride: g.c,
                columns: full,
                taps: 1,
                groups: g.c,
                step: full,
                width: full,
                range: channels.clone(),
            };
            // SAFETY: inside the input and the workspace; these channels' values belong to this task.
            unsafe { pixels.pack(io.workspace.ptr()) };
        }
        self.meetings(|pixel, tap, from| {
            let (at, apart) = if pixel < full {
                if plain {
                    return;
                }
                (pixel, full)
            } else {
                (full * self.size + (pixel - full) * window, 1)
            };
            let step = g.taps() * apart;
            let to = io.workspace.ptr::<f32>().wrapping_add(at + channels.start * step + tap * apart);
            let from = from.map(|from| &x[from * g.c..][channels.clone()]);
            for i in 0..channels.len() {
                // SAFETY: as above.
                unsafe { to.add(i * step).write(from.map_or(0.0, |from| from[i])) };
            }
        });
    }

    /// The filters of a task.
    fn rows(&self, task: usize) -> Range<usize> {
        share(self.g.k, self.filter_tasks(), task)
    }

    /// Multiplies windows by some filters. Weights are broadcast, pixels are vectors: weights come in any order then.
    fn filters(&self, task: usize, bias: bool, activation: Activation, io: &Io<'_>) {
        let (g, filters) = (&self.g, self.rows(task));
        let weights = io.inputs[1].ptr::<f32>().wrapping_add(filters.start * self.size);
        let blocks = self.size.div_ceil(DEPTH);
        for block in 0..blocks {
            let values = share(self.size, blocks, block);
            for panel in &self.panels {
                let tile = Tile {
                    a: weights.wrapping_add(values.start),
                    a_rows: std::ptr::null(),
                    a_segments: START.as_ptr(),
                    a_step: 1,
                    segments: 1,
                    length: values.len(),
                    b: io.workspace.ptr::<f32>().wrapping_add(values.start * self.full + panel.start),
                    b_segments: START.as_ptr(),
                    b_step: self.full,
                    c: io.scratch.ptr::<f32>().wrapping_add(panel.start),
                    c_rows: std::ptr::null(),
                    columns: 0,
                    start: if block == 0 { Start::Zero } else { Start::Sum },
                    limits: None,
                    far: false,
                    ahead: Ahead::NOTHING,
                };
                let count = filters.len();
                // SAFETY: nobody writes weights or windows during this phase; scratch belongs to this thread.
                unsafe { panel.rows(tile, &self.a_rows[..count], &self.c_rows[..count]) };
            }
        }
        vectorized(
            #[inline(always)]
            || {
                for (i, filter) in filters.clone().enumerate() {
                    // SAFETY: no task writes an input; scratch belongs to this thread.
                    let (bias, sums) = unsafe {
                        let bias = if bias { io.inputs[2].slice::<f32>()[filter] } else { 0.0 };
                        (bias, io.scratch.slice_mut::<f32>(i * self.full..(i + 1) * self.full))
                    };
                    sums.iter_mut().for_each(|sum| *sum = activation.apply(*sum + bias));
                }
            },
        );
        let sums = Transposed {
            source: io.scratch.ptr::<f32>(),
            stride: self.full,
            columns: filters.len(),
            taps: 1,
            groups: self.full,
            step: g.k,
            width: filters.len(),
            range: 0..self.full,
        };
        // SAFETY: scratch belongs to this thread, and these filters' results to this task.
        unsafe { sums.pack(io.outputs[0].ptr::<f32>().wrapping_add(filters.start)) };
        self.single(filters, bias, activation, io);
    }

    /// Multiplies the windows of pixels that are no vectors by some filters.
    fn single(&self, filters: Range<usize>, bias: bool, activation: Activation, io: &Io<'_>) {
        let (pixels, bias_at) = (self.pixels - self.full, io.inputs.get(2).filter(|_| bias));
        if pixels == 0 {
            return;
        }
        let dot = Dot {
            a: io.workspace.ptr::<f32>().wrapping_add(self.full * self.size),
            a_row: self.window(),
            b: io.inputs[1].ptr::<f32>().wrapping_add(filters.start * self.size),
            b_row: self.size,
            length: self.size,
            c: io.outputs[0].ptr::<f32>().wrapping_add(self.full * self.g.k + filters.start),
            c_row: self.g.k,
            columns: filters.len(),
            bias: bias_at.map_or(std::ptr::null(), |bias| bias.ptr::<f32>().wrapping_add(filters.start)),
            limits: activation.limits(),
        };
        // SAFETY: nobody writes weights or windows during this phase; these filters' results belong to this task. There
        // are kernels of up to three rows for every instruction set.
        unsafe { dots()[pixels - 1].1(&dot) };
    }

    /// Multiplies gradients by the filters' values for one part of the filters and some channels, and adds up the patches
    /// where they lie.
    fn patches(&self, task: usize, io: &Io<'_>) {
        let (g, blocks) = (&self.g, self.channel_tasks());
        let (part, channels) = (task / blocks, self.channels(task % blocks));
        let (first, columns) = (channels.start * g.taps(), channels.len() * g.taps());
        let weights = io.inputs[1].ptr::<f32>().wrapping_add(first);
        let part_filters = share(g.k, PARTS, part);
        for at in part_filters.clone().step_by(DEEP) {
            let filters = at..part_filters.end.min(at + DEEP);
            // The next filters, or the first ones of the next channels.
            let (next, rows) = match part_filters.end - filters.end {
                0 => (part_filters.start * self.size + columns, part_filters.len().min(DEEP)),
                left => (filters.end * self.size, left.min(DEEP)),
            };
            for panel in if channels.len() < CHANNELS { &self.rest } else { &self.panels } {
                let tile = Tile {
                    a: io.inputs[0].ptr::<f32>().wrapping_add(filters.start),
                    a_rows: std::ptr::null(),
                    a_segments: START.as_ptr(),
                    a_step: 1,
                    segments: 1,
                    length: filters.len(),
                    b: weights.wrapping_add(filters.start * self.size + panel.start),
                    b_segments: START.as_ptr(),
                    b_step: self.size,
                    c: io.scratch.ptr::<f32>().wrapping_add(panel.start),
                    c_rows: std::ptr::null(),
                    columns: 0,
                    start: if at == part_filters.start { Start::Zero } else { Start::Sum },
                    limits: None,
                    far: false,
                    // Rows of weights are far apart: what no prefetcher of the machine sees coming.
                    ahead: Ahead {
                        from: [weights.wrapping_add(next + panel.start).cast_const(), std::ptr::null()],
                        rows,
                        apart: self.size,
                    },
                };
                // SAFETY: no task writes an input; scratch belongs to this thread.
                unsafe { panel.rows(tile, &self.a_rows, &self.c_rows) };
            }
        }
        let images = self.images();
        let sums = if part == 0 { io.outputs[0] } else { io.workspace.part::<f32>((part - 1) * images, images) };
        let at = |pixel: usize| pixel * g.c + channels.start..pixel * g.c + channels.end;
        for pixel in 0..g.n * g.h * g.w {
            // SAFETY: these channels of this part belong to this task.
            unsafe { sums.slice_mut::<f32>(at(pixel)) }.fill(0.0);
        }
        self.meetings(|pixel, tap, to| {
            let Some(to) = to.filter(|_| !part_filters.is_empty()) else { return };
            let from = self.c_rows[pixel];
            // SAFETY: as above; scratch belongs to this thread.
            let (to, patch) =
                unsafe { (sums.slice_mut::<f32>(at(to)), io.scratch.slice_mut::<f32>(from..from + columns)) };
            to.iter_mut().zip(patch[tap..].iter().step_by(g.taps())).for_each(|(sum, x)| *sum += x);
        });
    }

    /// Adds up what the parts of the filters have given, for some pixels and channels.
    fn parts(&self, task: usize, io: &Io<'_>) {
        let images = self.images();
        let range = share(images, pieces(images), task);
        for part in 0..PARTS - 1 {
            let from = io.workspace.part::<f32>(part * images, images);
            // SAFETY: nobody writes the workspace during this phase; this range of the result belongs to this task.
            let (sums, from) = unsafe { (io.outputs[0].slice_mut::<f32>(range.clone()), from.slice::<f32>()) };
            vectorized(
                #[inline(always)]
                || sums.iter_mut().zip(&from[range.clone()]).for_each(|(sum, x)| *sum += x),
            );
        }
    }

    /// Adds up the gradients of some filters.
    fn bias_grad(&self, task: usize, io: &Io<'_>) {
        let filters = self.rows(task);
        // SAFETY: no task writes an input; these filters belong to this task.
        let (dy, db) = unsafe { (io.inputs[1].slice::<f32>(), io.outputs[1].slice_mut(filters.clone())) };
        db.fill(0.0);
        column_sums(db, dy, self.g.k, filters);
    }

    /// Multiplies windows by the gradients of some filters, a tile at a time. Its step is taken before the next tile, which
    /// is computed while the stores of this one are on their way to memory.
    fn weight_grads(&self, task: usize, step: Option<Options>, io: &Io<'_>) {
        let (g, filters) = (&self.g, self.rows(task));
        let rows = filters.len();
        assert!(io.outputs[0].len::<f32>() >= g.k * self.size);
        let along = Along::new(step, io, g.k * self.size);
        let _stream = Stream;
        for panel in &self.panels {
            let at = filters.start * self.size + panel.start;
            let tile = Tile {
                a: io.inputs[1].ptr::<f32>().wrapping_add(filters.start),
                a_rows: std::ptr::null(),
                a_segments: START.as_ptr(),
                a_step: g.k,
                segments: 1,
                length: self.pixels,
                b: io.workspace.ptr::<f32>().wrapping_add(panel.start),
                b_segments: START.as_ptr(),
                b_step: self.window(),
                c: io.scratch.ptr::<f32>(),
                c_rows: std::ptr::null(),
                columns: 0,
                start: Start::Zero,
                limits: None,
                far: false,
                // What a step needs comes in short runs, far apart: no prefetcher of the machine sees them coming.
                ahead: Ahead { from: along.reads(at + panel.columns), rows, apart: self.size },
            };
            // SAFETY: nobody writes gradients or windows during this phase; scratch belongs to this thread.
            unsafe { panel.rows(tile, &self.a_rows[..rows], &self.c_rows[..rows]) };
            let gradients = Gradients {
                rows,
                columns: panel.columns,
                tile: io.scratch.ptr(),
                tile_row: self.c_rows[1],
                to: Some(io.outputs[0].ptr::<f32>().wrapping_add(at)),
                at,
                row: self.size,
            };
            // SAFETY: these filters belong to this task.
            unsafe { along.step(&gradients) };
        }
    }
}

impl Kernel for Few {
    fn phases(&self) -> Vec<usize> {
        match self.pass {
            Pass::InputGrad => vec![PARTS * self.channel_tasks(), pieces(self.images())],
            _ => vec![self.channel_tasks(), self.filter_tasks()],
        }
    }

    fn workspace(&self) -> usize {
        let floats = match self.pass {
            Pass::Forward { .. } => self.size * self.full + (self.pixels - self.full) * self.window(),
            Pass::InputGrad => (PARTS - 1) * self.images(),
            Pass::WeightGrad { .. } => self.pixels * self.window(),
        };
        floats * size_of::<f32>()
    }

    fn scratch(&self) -> usize {
        let floats = match self.pass {
            Pass::Forward { .. } => self.a_rows.len() * self.full,
            Pass::InputGrad => self.pixels * CHANNELS * self.g.taps(),
            Pass::WeightGrad { .. } => self.a_rows.len() * self.c_rows[1],
        };
        floats * size_of::<f32>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        match (self.pass, phase) {
            (Pass::Forward { .. }, 0) => self.windows(task, self.full, self.window(), io),
            (Pass::Forward { bias, activation }, _) => self.filters(task, bias, activation, io),
            (Pass::InputGrad, 0) => self.patches(task, io),
            (Pass::InputGrad, _) => self.parts(task, io),
            (Pass::WeightGrad { .. }, 0) => self.windows(task, 0, self.window(), io),
            (Pass::WeightGrad { with_bias, step }, _) => {
                if with_bias {
                    self.bias_grad(task, io);
                }
                self.weight_grads(task, step, io);
            }
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
