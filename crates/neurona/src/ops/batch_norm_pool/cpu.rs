//! Batch normalisation, relu and max pooling in one, on CPU cores, over images `[n, h, w, c]`.
//!
//! Rows of windows are gone through one block of channels after the other: what belongs to a channel then stays in
//! registers, and a row of pixels in the nearest cache. Statistics, and what is made of the gradient's sums, are those of
//! the normalisation.

use super::tiles;
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::ops::batch_norm::cpu::{Statistics, TrainBackward, TrainForward, Training, scratch};
use crate::ops::pool::Pool;
use std::ops::Range;

/// What is done with a block of channels.
trait Block {
    /// The block of `L` channels from `channel` on.
    fn block<const L: usize>(&mut self, channel: usize);
}

/// All channels, in blocks as wide as they come.
#[inline(always)]
fn each_block(c: usize, work: &mut impl Block) {
    let mut at = 0;
    while at + 16 <= c {
        work.block::<16>(at);
        at += 16;
    }
    if at + 8 <= c {
        work.block::<8>(at);
        at += 8;
    }
    if at + 4 <= c {
        work.block::<4>(at);
        at += 4;
    }
    while at < c {
        work.block::<1>(at);
        at += 1;
    }
}

#[inline(always)]
fn lanes<T: Real, const L: usize>(from: &[T], at: usize) -> [T; L] {
    *from[at..].first_chunk().expect("blocks end with the channels")
}

/// How each channel is normalised.
#[derive(Clone, Copy)]
struct Normal<'a, T> {
    mean: &'a [T],
    scale: &'a [T],
    shift: &'a [T],
}

impl<'a, T: Real> Normal<'a, T> {
    /// With the factors in the running thread's scratch: two numbers a channel.
    #[inline(always)]
    fn new(io: &'a Io<'_>, by: Statistics<'a, T>) -> Self {
        let [scale, shift] = scratch::<T, 2>(io, by.means.len());
        by.factors(scale, shift);
        Normal { mean: by.means, scale, shift }
    }
}

/// The winners of a window in `L` channels: the first of the greatest; NaN wins over numbers, as in a pool.
struct Winners<T, const L: usize> {
    value: [T; L],
    /// Distance from the mean.
    apart: [T; L],
    /// The cell's number. A number as wide as the values, so that one comparison serves both.
    place: [T; L],
}

/// A window, or what is left of it at an edge, in images `g`: where its first cell lies, and its size.
struct Window {
    corner: usize,
    size: [usize; 2],
}

impl Window {
    #[inline(always)]
    fn winners<T: Real, const L: usize>(&self, g: &Pool, x: &[T], by: [[T; L]; 3]) -> Winners<T, L> {
        let [mean, scale, shift] = by;
        let mut best = Winners { value: [T::neg_infinity(); L], apart: [T::zero(); L], place: [T::zero(); L] };
        for r in 0..self.size[0] {
            for s in 0..self.size[1] {
                let cell = lanes::<T, L>(x, self.corner + (r * g.w + s) * g.c);
                let place = T::of((r * g.kernel[1] + s) as f64);
                for j in 0..L {
                    let apart = cell[j] - mean[j];
                    let value = apart * scale[j] + shift[j];
                    let wins = (value > best.value[j]) | value.is_nan();
                    best.value[j] = if wins { value } else { best.value[j] };
                    best.apart[j] = if wins { apart } else { best.apart[j] };
                    best.place[j] = if wins { place } else { best.place[j] };
                }
            }
        }
        best
    }
}

/// A row of windows.
struct Row {
    /// Where its first pixel lies among all pixels of the input.
    pixel: usize,
    /// Where its first window lies among all windows.
    window: usize,
    /// Rows of pixels that its windows have.
    height: usize,
}

impl Row {
    fn new(g: &Pool, row: usize) -> Self {
        let (image, oy) = (row / g.oh(), row % g.oh());
        let ys = g.covered(0, oy);
        Row { pixel: (image * g.h + ys.start) * g.w, window: row * g.ow(), height: ys.len() }
    }

    /// Its window `ox`, in the block of channels from `channel` on. Whole windows of 2 by 2 are told apart, so that the
    /// compiler sees their size.
    #[inline(always)]
    fn each(&self, g: &Pool, channel: usize, mut visit: impl FnMut(usize, Window)) {
        let at = |ox: usize| (self.pixel + ox * g.stride[1]) * g.c + channel;
        if g.is_halving() {
            (0..g.ow()).for_each(|ox| visit(ox, Window { corner: at(ox), size: [2, 2] }));
        } else {
            (0..g.ow()).for_each(|ox| {
                visit(ox, Window { corner: at(ox), size: [self.height, g.covered(1, ox).len()] });
            });
        }
    }
}

/// Inputs and outputs are those of the normalisation in training, but for the first output: pooled images.
pub struct Forward<T> {
    norm: TrainForward<T>,
    pool: Pool,
}

impl<T: Real> Forward<T> {
    /// Normalisation with these options, and pooling whose windows do not overlap.
    pub fn new(pool: Pool, options: Training) -> Self {
        Forward { norm: TrainForward::new(pool.n * pool.h * pool.w, pool.c, options), pool }
    }

    #[inline(always)]
    fn pool(&self, task: usize, io: &Io<'_>) {
        let g = &self.pool;
        let rows = share(g.n * g.oh(), self.norm.m.chunks(), task);
        let row = g.ow() * g.c;
        // SAFETY: nobody writes the input; the ranges of different tasks do not overlap.
        let (x, y) =
            unsafe { (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(rows.start * row..rows.end * row)) };
        let by = Normal::new(io, self.norm.statistics(io));
        for (y, row) in y.chunks_mut(row.max(1)).zip(rows) {
            each_block(g.c, &mut Pooling { g, x, y, by, row: Row::new(g, row) });
        }
        self.norm.count(task, io);
    }
}

struct Pooling<'a, T> {
    g: &'a Pool,
    x: &'a [T],
    /// The row's.
    y: &'a mut [T],
    by: Normal<'a, T>,
    row: Row,
}

impl<T: Real> Block for Pooling<'_, T> {
    #[inline(always)]
    fn block<const L: usize>(&mut self, channel: usize) {
        let by = [self.by.mean, self.by.scale, self.by.shift].map(|v| lanes::<T, L>(v, channel));
        self.row.each(self.g, channel, |ox, window| {
            let best = window.winners(self.g, self.x, by).value;
            let y = &mut self.y[ox * self.g.c + channel..][..L];
            // Relu keeps the order: once is enough.
            for j in 0..L {
                y[j] = if best[j] < T::zero() { T::zero() } else { best[j] };
            }
        });
    }
}

impl<T: Real> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        self.norm.phases()
    }

    fn workspace(&self) -> usize {
        self.norm.workspace()
    }

    fn scratch(&self) -> usize {
        self.norm.scratch()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || {
                for step in self.norm.m.steps(phase) {
                    match step {
                        0 => self.norm.measure(task, io),
                        1 => self.norm.combine(task, io),
                        _ => self.pool(task, io),
                    }
                }
            },
        );
    }

    fn flops(&self) -> u64 {
        9 * self.pool.input_len() as u64
    }
}

/// Inputs: the gradient by the pooled images, x, mean, inverse deviation; if affine weight, bias.
/// Outputs: dx; if affine dweight, dbias.
pub struct Backward<T> {
    norm: TrainBackward<T>,
    pool: Pool,
    affine: bool,
}

impl<T: Real> Backward<T> {
    /// The gradient of the forward kernel with the same geometry.
    pub fn new(pool: Pool, affine: bool) -> Self {
        Backward { norm: TrainBackward::new(pool.n * pool.h * pool.w, pool.c, affine, false), pool, affine }
    }

    #[inline(always)]
    fn normal<'a>(&self, io: &'a Io<'_>) -> Normal<'a, T> {
        // SAFETY: nobody writes the inputs.
        let input = |i: usize| unsafe { io.inputs[i].slice::<T>() };
        let affine = self.affine.then(|| (input(4), input(5)));
        Normal::new(io, Statistics { means: input(2), devs: input(3), affine })
    }

    /// A chunk's sums of the gradient, and of the gradient times the deviation.
    #[inline(always)]
    fn measure(&self, task: usize, io: &Io<'_>) {
        let (g, m) = (&self.pool, &self.norm.m);
        // SAFETY: nobody writes the inputs.
        let (slopes, x) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        let by = self.normal(io);
        let partial = m.partial(io, task);
        // SAFETY: each task of the sweep has its own partial sums.
        let (first, second) = unsafe { partial.slice_mut::<f64>(0..2 * g.c) }.split_at_mut(g.c);
        first.fill(0.0);
        second.fill(0.0);
        for row in share(g.n * g.oh(), m.chunks(), task) {
            each_block(g.c, &mut Summing { g, x, slopes, by, row: Row::new(g, row), first, second });
        }
    }

    #[inline(always)]
    fn spread(&self, task: usize, io: &Io<'_>) {
        let g = &self.pool;
        let [down, _] = tiles(g);
        let rows = share(g.n * down, self.norm.m.chunks(), task);
        // Where a row of tiles begins, counted in rows of pixels.
        let top = |row: usize| row / down.max(1) * g.h + row % down.max(1) * g.stride[0];
        let own = top(rows.start) * g.w * g.c..top(rows.end) * g.w * g.c;
        let factors = self.norm.factors(io);
        // SAFETY: nobody writes the inputs; factors were written in an earlier phase.
        let (slopes, x, factors) =
            unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>(), factors.slice::<T>()) };
        // SAFETY: the ranges of different tasks do not overlap.
        let mut dx = unsafe { io.outputs[0].slice_mut::<T>(own) };
        let by = self.normal(io);
        for row in rows {
            let (image, ty) = (row / down, row % down);
            let height = g.stride[0].min(g.h - ty * g.stride[0]);
            let (here, rest) = dx.split_at_mut(height * g.w * g.c);
            dx = rest;
            let windows = (ty < g.oh()).then(|| Row::new(g, image * g.oh() + ty));
            let x = &x[top(row) * g.w * g.c..][..here.len()];
            each_block(g.c, &mut Spreading { g, x, slopes, by, factors, row: windows, height, dx: here });
        }
    }
}

struct Summing<'a, T> {
    g: &'a Pool,
    x: &'a [T],
    slopes: &'a [T],
    by: Normal<'a, T>,
    row: Row,
    first: &'a mut [f64],
    second: &'a mut [f64],
}

impl<T: Real> Block for Summing<'_, T> {
    #[inline(always)]
    fn block<const L: usize>(&mut self, channel: usize) {
        let by = [self.by.mean, self.by.scale, self.by.shift].map(|v| lanes::<T, L>(v, channel));
        // A row's sums are short; they are added up in double precision.
        let (mut sum, mut dot) = ([T::zero(); L], [T::zero(); L]);
        self.row.each(self.g, channel, |ox, window| {
            let best = window.winners(self.g, self.x, by);
            let slope = passed::<T, L>(self.slopes, (self.row.window + ox) * self.g.c + channel, &best);
            for j in 0..L {
                sum[j] = sum[j] + slope[j];
                dot[j] = dot[j] + slope[j] * best.apart[j];
            }
        });
        let (first, second) = (&mut self.first[channel..][..L], &mut self.second[channel..][..L]);
        for j in 0..L {
            first[j] += sum[j].wide();
            second[j] += dot[j].wide();
        }
    }
}

/// The gradient by a window's result as far as relu lets it pass.
#[inline(always)]
fn passed<T: Real, const L: usize>(slopes: &[T], at: usize, best: &Winners<T, L>) -> [T; L] {
    let slope = lanes::<T, L>(slopes, at);
    std::array::from_fn(|j| if best.value[j] > T::zero() { slope[j] } else { T::zero() })
}

struct Spreading<'a, T> {
    g: &'a Pool,
    /// Of the row of tiles.
    x: &'a [T],
    slopes: &'a [T],
    by: Normal<'a, T>,
    factors: &'a [T],
    /// None where the tiles have no windows.
    row: Option<Row>,
    /// Rows of pixels.
    height: usize,
    dx: &'a mut [T],
}

impl<T: Real> Block for Spreading<'_, T> {
    #[inline(always)]
    fn block<const L: usize>(&mut self, channel: usize) {
        let g = self.g;
        let by = [self.by.mean, self.by.scale, self.by.shift].map(|v| lanes::<T, L>(v, channel));
        let [average, tilt, scale] = [0, 1, 2].map(|k| lanes::<T, L>(self.factors, k * g.c + channel));
        let (x, dx) = (self.x, &mut *self.dx);
        let mut place = |at: usize, slope: [T; L]| {
            let cell = lanes::<T, L>(x, at);
            let dx = &mut dx[at..][..L];
            for j in 0..L {
                dx[j] = (slope[j] - average[j] - (cell[j] - by[0][j]) * tilt[j]) * scale[j];
            }
        };
        let mut none = |rows: Range<usize>, columns: Range<usize>| {
            for y in rows {
                for x in columns.clone() {
                    place((y * g.w + x) * g.c + channel, [T::zero(); L]);
                }
            }
        };
        let Some(row) = &self.row else { return none(0..self.height, 0..g.w) };
        // Beside and below the windows there is nothing to win.
        let covered = |ox: usize| ox * g.stride[1]..(ox * g.stride[1] + g.kernel[1]).min(g.w);
        if g.stride != g.kernel {
            for ox in 0..g.ow() {
                none(row.height..self.height, covered(ox));
                none(0..self.height, covered(ox).end..((ox + 1) * g.stride[1]).min(g.w));
            }
        }
        none(0..self.height, (g.ow() * g.stride[1]).min(g.w)..g.w);
        let own = Row { pixel: 0, ..*row };
        own.each(g, channel, |ox, window| {
            let best = window.winners(g, x, by);
            let slope = passed::<T, L>(self.slopes, (own.window + ox) * g.c + channel, &best);
            for r in 0..window.size[0] {
                for s in 0..window.size[1] {
                    let number = T::of((r * g.kernel[1] + s) as f64);
                    let won = std::array::from_fn(|j| if best.place[j] == number { slope[j] } else { T::zero() });
                    place(window.corner + (r * g.w + s) * g.c, won);
                }
            }
        });
    }
}

impl<T: Real> Kernel for Backward<T> {
    fn phases(&self) -> Vec<usize> {
        self.norm.phases()
    }

    fn workspace(&self) -> usize {
        self.norm.workspace()
    }

    fn scratch(&self) -> usize {
        self.norm.scratch()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || {
                for step in self.norm.m.steps(phase) {
                    match step {
                        0 => self.measure(task, io),
                        1 => self.norm.combine(task, io),
                        _ => self.spread(task, io),
                    }
                }
            },
        );
    }

    fn flops(&self) -> u64 {
        14 * self.pool.input_len() as u64
    }
}
