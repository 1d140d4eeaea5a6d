//! Batch normalisation, relu and max pooling in one: the gradient.

use super::{Images, Normal, Task, Visit, Window, Winners, each_window, tiles};
use crate::cpu::block::Block;
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::{InBlocks, in_blocks};
use crate::cpu::stream::{FAR, Stream};
use crate::ops::batch_norm::cpu::{Statistics, TrainBackward, scratch};
use crate::ops::pool::Pool;
use std::ops::Range;

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
        Backward { norm: TrainBackward::new(pool.n * pool.h * pool.w, pool.c, affine, Activation::None), pool, affine }
    }

    /// Whether dx goes past the caches, a row of windows at a time.
    fn streams(&self) -> bool {
        2 * self.pool.input_len() * size_of::<T>() > FAR
    }

    /// Elements of the pixels from one row of windows to the next.
    fn row(&self) -> usize {
        self.pool.stride[0].min(self.pool.h) * self.pool.w * self.pool.c
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
    fn measure<const WIDE: usize>(&self, task: usize, io: &Io<'_>) {
        let (g, m) = (&self.pool, &self.norm.m);
        // SAFETY: nobody writes the inputs.
        let (slopes, x) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        let by = self.normal(io);
        let [_, _, sum, dot] = scratch::<T, 4>(io, g.c);
        let partial = m.partial(io, task);
        // SAFETY: each task of the sweep has its own partial sums.
        let (first, second) = unsafe { partial.slice_mut::<f64>(0..2 * g.c) }.split_at_mut(g.c);
        first.fill(0.0);
        second.fill(0.0);
        sum.fill(T::zero());
        dot.fill(T::zero());
        let rows = share(g.n * g.oh(), m.chunks(), task);
        let images = Images::new(g, x);
        let mut windows = 0;
        for row in rows.clone() {
            let ys = g.covered(0, row % g.oh());
            let pixel = (row / g.oh() * g.h + ys.start) * g.w;
            let slopes = &slopes[row * g.ow() * g.c..];
            each_window::<T, WIDE>(images.with(slopes), pixel, ys.len(), &mut Summing { g, x, slopes, by, sum, dot });
            windows += g.ow();
            // Short sums lose nothing; they are added up in double precision.
            if windows >= SHORT || row + 1 == rows.end {
                windows = 0;
                take(sum, first);
                take(dot, second);
            }
        }
    }

    #[inline(always)]
    fn spread<const WIDE: usize>(&self, task: usize, io: &Io<'_>) {
        let g = &self.pool;
        let rows = share(g.n * self.down(), self.norm.m.chunks(), task);
        let own = self.top(rows.start) * g.w * g.c..self.top(rows.end) * g.w * g.c;
        // SAFETY: the ranges of different tasks do not overlap.
        let dx = unsafe { io.outputs[0].slice_mut::<T>(own) };
        self.spread_rows::<WIDE>(rows, dx, self.streams(), io);
    }

    /// Rows of tiles of an image.
    fn down(&self) -> usize {
        tiles(&self.pool)[0]
    }

    /// Where a row of tiles begins, counted in rows of pixels.
    fn top(&self, row: usize) -> usize {
        let (g, down) = (&self.pool, self.down().max(1));
        row / down * g.h + row % down * g.stride[0]
    }

    /// The gradient by some rows of tiles.
    #[inline(always)]
    fn spread_rows<const WIDE: usize>(&self, rows: Range<usize>, mut dx: &mut [T], streams: bool, io: &Io<'_>) {
        let (g, down) = (&self.pool, self.down());
        let factors = self.norm.factors(io);
        // SAFETY: nobody writes the inputs; factors were written in an earlier phase.
        let (slopes, x, factors) =
            unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>(), factors.slice::<T>()) };
        let by = self.normal(io);
        let images = Images::new(g, x);
        let stream = streams.then_some(Stream);
        // SAFETY: scratch belongs to this task; what the normalisation has there ends before.
        let passed_by =
            unsafe { io.scratch.slice_mut::<T>(4 * g.c..4 * g.c + if stream.is_some() { self.row() } else { 0 }) };
        for row in rows {
            let (image, ty) = (row / down, row % down);
            let height = g.stride[0].min(g.h - ty * g.stride[0]);
            let (row_of_dx, rest) = dx.split_at_mut(height * g.w * g.c);
            dx = rest;
            let (here, past) = match stream {
                Some(_) => (&mut passed_by[..row_of_dx.len()], Some(row_of_dx)),
                None => (row_of_dx, None),
            };
            let x = &x[self.top(row) * g.w * g.c..][..here.len()];
            let mut work = Spreading { g, x, slopes: &[], by, factors, dx: here };
            if ty < g.oh() {
                let covered = g.covered(0, ty).len();
                work.slopes = &slopes[(image * g.oh() + ty) * g.ow() * g.c..];
                each_window::<T, WIDE>(Images { x: work.x, ..images }.with(work.slopes), 0, covered, &mut work);
                if covered < height || g.stride[1] != g.kernel[1] || g.ow() * g.stride[1] < g.w {
                    work.beside(covered, height);
                }
            } else {
                work.none(0..height * g.w);
            }
            if let (Some(stream), Some(to)) = (&stream, past) {
                stream.copy(work.dx, to);
            }
        }
    }

    /// The gradient by one image, once the phases before the last have run.
    pub(super) fn image(&self, image: usize, dx: &mut [T], io: &Io<'_>) {
        in_blocks(Image { of: self, image, dx, io });
    }
}

/// The gradient by one image.
struct Image<'a, T> {
    of: &'a Backward<T>,
    image: usize,
    dx: &'a mut [T],
    io: &'a Io<'a>,
}

impl<T: Real> InBlocks for Image<'_, T> {
    #[inline(always)]
    fn run<const WIDE: usize>(self) {
        let down = self.of.down();
        self.of.spread_rows::<WIDE>(self.image * down..(self.image + 1) * down, self.dx, false, self.io);
    }
}

/// Windows whose sums are kept in the images' own precision.
const SHORT: usize = 32;

/// Adds short sums to the totals and starts them anew.
#[inline(always)]
fn take<T: Real>(short: &mut [T], totals: &mut [f64]) {
    for (short, total) in short.iter_mut().zip(totals) {
        *total += short.wide();
        *short = T::zero();
    }
}

/// The gradient by a window's result as far as relu lets it pass.
///
/// # Safety
/// The machine must have the block's instructions.
#[inline(always)]
unsafe fn passed<T: Real, B: Block<T>>(slopes: &[T], at: usize, best: &Winners<B>) -> B {
    // SAFETY: the caller's promise.
    let (slope, zero) = unsafe { (B::load(slopes, at), B::splat(T::zero())) };
    B::choose(best.value.above(zero), slope, zero)
}

struct Summing<'a, T> {
    g: &'a Pool,
    x: &'a [T],
    /// From the row's on.
    slopes: &'a [T],
    by: Normal<'a, T>,
    sum: &'a mut [T],
    dot: &'a mut [T],
}

impl<T: Real> Visit<T> for Summing<'_, T> {
    #[inline(always)]
    unsafe fn block<B: Block<T>>(&mut self, window: &Window, channel: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let best: Winners<B> = window.winners(self.g, self.x, self.by, channel);
            let slope = passed(self.slopes, window.number * self.g.c + channel, &best);
            B::load(self.sum, channel).add(slope).store(self.sum, channel);
            B::load(self.dot, channel).add(slope.mul(best.apart)).store(self.dot, channel);
        }
    }
}

/// Of what a gradient is made in some channels, beside what its window lets pass.
struct Factors<B> {
    mean: B,
    average: B,
    tilt: B,
    scale: B,
}

struct Spreading<'a, T> {
    g: &'a Pool,
    /// Of the row of tiles.
    x: &'a [T],
    /// From the row's on.
    slopes: &'a [T],
    by: Normal<'a, T>,
    /// Average, slope and scale of each channel.
    factors: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> Visit<T> for Spreading<'_, T> {
    #[inline(always)]
    unsafe fn block<B: Block<T>>(&mut self, window: &Window, channel: usize) {
        let g = self.g;
        // SAFETY: the caller's promise.
        unsafe {
            let best: Winners<B> = window.winners(g, self.x, self.by, channel);
            let slope = passed(self.slopes, window.number * g.c + channel, &best);
            let (zero, factors) = (B::splat(T::zero()), self.factors(channel));
            for r in 0..window.size[0] {
                for s in 0..window.size[1] {
                    let won = best.place.equals(B::splat(T::of((r * g.kernel[1] + s) as f64)));
                    self.place(window.pixel + r * g.w + s, channel, B::choose(won, slope, zero), &factors);
                }
            }
        }
    }
}

impl<T: Real> Spreading<'_, T> {
    /// # Safety
    /// The machine must have the block's instructions.
    #[inline(always)]
    unsafe fn factors<B: Block<T>>(&self, channel: usize) -> Factors<B> {
        let c = self.g.c;
        // SAFETY: the caller's promise.
        unsafe {
            Factors {
                mean: B::load(self.by.mean, channel),
                average: B::load(self.factors, channel),
                tilt: B::load(self.factors, c + channel),
                scale: B::load(self.factors, 2 * c + channel),
            }
        }
    }

    /// # Safety
    /// The machine must have the block's instructions.
    #[inline(always)]
    unsafe fn place<B: Block<T>>(&mut self, pixel: usize, channel: usize, slope: B, by: &Factors<B>) {
        let at = pixel * self.g.c + channel;
        // SAFETY: the caller's promise.
        let apart = unsafe { B::load(self.x, at) }.sub(by.mean);
        slope.sub(by.average).sub(apart.mul(by.tilt)).mul(by.scale).store(self.dx, at);
    }

    /// Between the windows, below and behind them there is nothing to win.
    #[inline(always)]
    fn beside(&mut self, covered: usize, height: usize) {
        let g = self.g;
        for y in 0..covered {
            let mut from = 0;
            for number in 0..g.ow() {
                let columns = g.covered(1, number);
                self.none(y * g.w + from..y * g.w + columns.start);
                from = columns.end;
            }
            self.none(y * g.w + from..(y + 1) * g.w);
        }
        self.none(covered * g.w..height * g.w);
    }

    #[inline(always)]
    fn none(&mut self, pixels: Range<usize>) {
        for pixel in pixels {
            for channel in 0..self.g.c {
                // SAFETY: an array needs no instructions.
                unsafe { self.place(pixel, channel, [T::zero()], &self.factors(channel)) };
            }
        }
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
        let row = if self.streams() { self.row() } else { 0 };
        self.norm.scratch().max((4 * self.pool.c + row) * size_of::<T>())
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        in_blocks(Task { of: self, phase, task, io });
    }

    fn flops(&self) -> u64 {
        14 * self.pool.input_len() as u64
    }
}

impl<T: Real> InBlocks for Task<'_, Backward<T>> {
    #[inline(always)]
    fn run<const WIDE: usize>(self) {
        let Task { of, phase, task, io } = self;
        for step in of.norm.m.steps(phase) {
            match step {
                0 => of.measure::<WIDE>(task, io),
                1 => of.norm.combine(task, io),
                _ => of.spread::<WIDE>(task, io),
            }
        }
    }
}
