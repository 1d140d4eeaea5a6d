//! Batch normalisation on CPU cores, over a matrix `[rows, c]` (NHWC activations: rows = n·h·w).
//!
//! Statistics are taken in row chunks of about 32k elements. Each chunk is read twice while it is
//! in cache: once for its mean, once for the deviations from it; single precision is then enough
//! inside a chunk, whatever the offset of the data. Chunks are combined in double precision. A convolution that stands
//! before it may have taken them already, in parts of its own.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::cpu::columns::{narrow, widen};
use crate::cpu::kernel::{Buf, Io, share};
use crate::cpu::math::Real;
use crate::cpu::tasks::pieces;

pub use backward::{EvalBackward, TrainBackward};
pub(crate) use forward::Statistics;
pub use forward::{EvalForward, TrainForward, Training};

/// The cutting that all kernels share: row chunks for the sweeps, channels for what combines them.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub rows: usize,
    pub c: usize,
}

impl Matrix {
    pub fn chunks(&self) -> usize {
        pieces(self.rows * self.c)
    }

    fn rows(&self, task: usize) -> Range<usize> {
        share(self.rows, self.chunks(), task)
    }

    fn elements(&self, task: usize) -> Range<usize> {
        let rows = self.rows(task);
        rows.start * self.c..rows.end * self.c
    }

    /// Sweep, combine, sweep; one task when there is nothing to combine.
    pub fn phases(&self) -> Vec<usize> {
        match self.chunks() {
            1 => vec![1],
            chunks => vec![chunks, self.combiners(), chunks],
        }
    }

    fn combiners(&self) -> usize {
        pieces(self.chunks() * self.c).min(self.c.max(1))
    }

    /// Which of the three steps a phase stands for.
    pub fn steps(&self, phase: usize) -> Range<usize> {
        match self.chunks() {
            1 => 0..3,
            _ => phase..phase + 1,
        }
    }

    /// Two numbers a channel and chunk.
    pub fn partials(&self) -> usize {
        self.chunks() * 2 * self.c * size_of::<f64>()
    }

    pub fn partial(&self, io: &Io<'_>, task: usize) -> Buf {
        io.workspace.part::<f64>(task * 2 * self.c, 2 * self.c)
    }

    /// Writes a chunk's two sums for each channel.
    #[inline(always)]
    fn put<T: Real>(&self, io: &Io<'_>, task: usize, first: &[T], second: &[T]) {
        let buf = self.partial(io, task);
        // SAFETY: each task of a sweep has its own partial sums.
        let partial = unsafe { buf.slice_mut::<f64>(0..2 * self.c) };
        for j in 0..self.c {
            partial[j] = narrow(first, self.c, j);
            partial[self.c + j] = narrow(second, self.c, j);
        }
    }

    /// The totals of all chunks' two sums for `channels`, in `first` and `second`.
    #[inline(always)]
    fn totals(&self, io: &Io<'_>, channels: &Range<usize>, first: &mut [f64], second: &mut [f64]) {
        first.fill(0.0);
        second.fill(0.0);
        for chunk in 0..self.chunks() {
            let buf = self.partial(io, chunk);
            // SAFETY: partial sums are only read in this phase.
            let partial = unsafe { buf.slice::<f64>() };
            let (a, b) = partial.split_at(self.c);
            for (t, v) in first.iter_mut().zip(&a[channels.clone()]) {
                *t += v;
            }
            for (t, v) in second.iter_mut().zip(&b[channels.clone()]) {
                *t += v;
            }
        }
    }
}

/// Numbers of a part's statistics for `c` channels, where somebody else has taken them: how many rows, then each
/// channel's mean, then each one's sum of squared deviations.
pub(crate) fn record(c: usize) -> usize {
    1 + 2 * c
}

/// Mean and sum of squared deviations of `count` values, by the sums of their distances from `near` and of these squared.
#[inline(always)]
pub(crate) fn settled(near: f64, sum: f64, squares: f64, count: f64) -> (f64, f64) {
    let off = sum / count;
    (near + off, squares - sum * off)
}

/// `N` slices of `len` elements each from the start of the thread's scratch.
#[inline(always)]
#[allow(clippy::mut_from_ref)]
pub(crate) fn scratch<'a, T: Real, const N: usize>(io: &'a Io<'_>, len: usize) -> [&'a mut [T]; N] {
    // SAFETY: scratch belongs to the running task, and the parts do not overlap.
    std::array::from_fn(|i| unsafe { io.scratch.slice_mut(i * len..(i + 1) * len) })
}

/// Repeats the first `c` elements over the whole of `span`.
#[inline(always)]
fn repeat<T: Real>(span: &mut [T], c: usize) {
    let (columns, rest) = span.split_at_mut(c);
    if c > 0 {
        widen(columns, rest);
    }
}

/// Inverse deviations.
#[inline(always)]
fn inverse<T: Real>(variances: &[T], eps: f64, devs: &mut [T]) {
    for (dev, variance) in devs.iter_mut().zip(variances) {
        *dev = T::of(1.0 / (variance.wide() + eps).sqrt());
    }
}
