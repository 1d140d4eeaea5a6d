//! Batch normalisation, relu and max pooling in one: the outputs.

use super::{Images, Normal, Task, Visit, Window, each_window};
use crate::cpu::block::Block;
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::{InBlocks, in_blocks};
use crate::ops::batch_norm::cpu::{TrainForward, Training};
use crate::ops::pool::Pool;

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

    /// The same, by statistics of so many parts that are its last input.
    pub fn measured(self, parts: usize) -> Self {
        Forward { norm: self.norm.measured(parts), ..self }
    }

    #[inline(always)]
    fn pool<const WIDE: usize>(&self, task: usize, io: &Io<'_>) {
        let g = &self.pool;
        let rows = share(g.n * g.oh(), self.norm.m.chunks(), task);
        let row = g.ow() * g.c;
        // SAFETY: nobody writes the input; the ranges of different tasks do not overlap.
        let (x, y) =
            unsafe { (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(rows.start * row..rows.end * row)) };
        let by = Normal::new(io, self.norm.statistics(io));
        let images = Images::new(g, x);
        for (y, row) in y.chunks_mut(row.max(1)).zip(rows) {
            let ys = g.covered(0, row % g.oh());
            let pixel = (row / g.oh() * g.h + ys.start) * g.w;
            each_window::<T, WIDE>(images, pixel, ys.len(), &mut Pooling { g, x, y, by });
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
}

impl<T: Real> Visit<T> for Pooling<'_, T> {
    #[inline(always)]
    unsafe fn block<B: Block<T>>(&mut self, window: &Window, channel: usize) {
        // SAFETY: the caller's promise.
        let (best, zero) =
            unsafe { (window.winners::<T, B>(self.g, self.x, self.by, channel).value, B::splat(T::zero())) };
        // Relu keeps the order: once is enough.
        B::choose(zero.above(best), zero, best).store(self.y, window.number * self.g.c + channel);
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
        in_blocks(Task { of: self, phase, task, io });
    }

    fn flops(&self) -> u64 {
        9 * self.pool.input_len() as u64
    }
}

impl<T: Real> InBlocks for Task<'_, Forward<T>> {
    #[inline(always)]
    fn run<const WIDE: usize>(self) {
        let Task { of, phase, task, io } = self;
        for step in of.norm.steps(phase) {
            match step {
                0 => of.norm.measure(task, io),
                1 => of.norm.combine(task, io),
                _ => of.pool::<WIDE>(task, io),
            }
        }
    }
}
