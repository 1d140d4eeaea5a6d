//! Batch normalisation, relu and max pooling in one: the outputs.

use super::{Normal, Task, Visit, Window, each_window};
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
        for (y, row) in y.chunks_mut(row.max(1)).zip(rows) {
            let ys = g.covered(0, row % g.oh());
            let pixel = (row / g.oh() * g.h + ys.start) * g.w;
            each_window::<WIDE>(g, pixel, ys.len(), &mut Pooling { g, x, y, by });
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

impl<T: Real> Visit for Pooling<'_, T> {
    #[inline(always)]
    fn block<const L: usize>(&mut self, window: &Window, channel: usize) {
        let mut best: [T; L] = window.winners(self.g, self.x, self.by, channel).value;
        // Relu keeps the order: once is enough.
        for v in &mut best {
            *v = if *v < T::zero() { T::zero() } else { *v };
        }
        self.y[window.number * self.g.c + channel..][..L].copy_from_slice(&best);
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
