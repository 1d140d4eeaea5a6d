//! Batch normalisation, relu and max pooling in one, on CPU cores, over images `[n, h, w, c]`.
//!
//! Statistics, and what is made of the gradient's sums, are those of the normalisation. What belongs to windows is done
//! window by window, so that memory is read in order.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

pub use backward::Backward;
pub use forward::Forward;

use super::tiles;
use crate::cpu::kernel::Io;
use crate::cpu::math::Real;
use crate::ops::batch_norm::cpu::{Statistics, scratch};
use crate::ops::pool::Pool;

/// What is done with a window.
trait Visit {
    /// In the `L` channels from `channel` on.
    fn block<const L: usize>(&mut self, window: &Window, channel: usize);

    /// In all channels, in blocks of `WIDE` and what is left.
    #[inline(always)]
    fn window<const WIDE: usize>(&mut self, c: usize, window: Window) {
        let mut at = 0;
        while at + WIDE <= c {
            self.block::<WIDE>(&window, at);
            at += WIDE;
        }
        while at + 4 <= c {
            self.block::<4>(&window, at);
            at += 4;
        }
        while at < c {
            self.block::<1>(&window, at);
            at += 1;
        }
    }
}

/// A task of a kernel's phase.
struct Task<'a, K> {
    of: &'a K,
    phase: usize,
    task: usize,
    io: &'a Io<'a>,
}

#[inline(always)]
fn lanes<T: Real, const L: usize>(from: &[T], at: usize) -> [T; L] {
    let mut lanes = [T::zero(); L];
    lanes.copy_from_slice(&from[at..at + L]);
    lanes
}

/// How each channel is normalised.
#[derive(Clone, Copy)]
struct Normal<'a, T> {
    mean: &'a [T],
    scale: &'a [T],
    shift: &'a [T],
}

impl<'a, T: Real> Normal<'a, T> {
    /// With the factors at the start of the running thread's scratch: two numbers a channel.
    #[inline(always)]
    fn new(io: &'a Io<'_>, by: Statistics<'a, T>) -> Self {
        let [scale, shift] = scratch::<T, 2>(io, by.means.len());
        by.factors(scale, shift);
        Normal { mean: by.means, scale, shift }
    }
}

/// A window, or what is left of it at an edge.
struct Window {
    /// Its number in the row.
    number: usize,
    /// The pixel where it begins.
    pixel: usize,
    size: [usize; 2],
}

/// The winners of a window in `L` channels: the first of the greatest; NaN wins over numbers, as in a pool.
struct Winners<T, const L: usize> {
    value: [T; L],
    /// Distance from the mean.
    apart: [T; L],
    /// The cell's number. A number as wide as the values, so that one comparison serves both.
    place: [T; L],
}

impl Window {
    #[inline(always)]
    fn winners<T: Real, const L: usize>(&self, g: &Pool, x: &[T], by: Normal<'_, T>, channel: usize) -> Winners<T, L> {
        let mean = lanes::<T, L>(by.mean, channel);
        let scale = lanes::<T, L>(by.scale, channel);
        let shift = lanes::<T, L>(by.shift, channel);
        let mut best = Winners { value: [T::neg_infinity(); L], apart: [T::zero(); L], place: [T::zero(); L] };
        for r in 0..self.size[0] {
            for s in 0..self.size[1] {
                let cell = lanes::<T, L>(x, (self.pixel + r * g.w + s) * g.c + channel);
                let place = T::of((r * g.kernel[1] + s) as f64);
                // Arrays of their own: what is changed in place would be written to memory under a mask.
                let mut next = Winners { value: [T::zero(); L], apart: [T::zero(); L], place: [T::zero(); L] };
                for j in 0..L {
                    let apart = cell[j] - mean[j];
                    let value = apart * scale[j] + shift[j];
                    let wins = (value > best.value[j]) | value.is_nan();
                    next.value[j] = if wins { value } else { best.value[j] };
                    next.apart[j] = if wins { apart } else { best.apart[j] };
                    next.place[j] = if wins { place } else { best.place[j] };
                }
                best = next;
            }
        }
        best
    }
}

/// Visits the windows of a row of windows that begins at this pixel and has so many rows of pixels. Whole windows of 2 by 2
/// are told apart, so that the compiler sees their size.
#[inline(always)]
fn each_window<const WIDE: usize>(g: &Pool, pixel: usize, height: usize, work: &mut impl Visit) {
    let windows = g.ow();
    if g.is_halving() {
        for number in 0..windows {
            work.window::<WIDE>(g.c, Window { number, pixel: pixel + 2 * number, size: [2, 2] });
        }
    } else {
        for number in 0..windows {
            let size = [height, g.covered(1, number).len()];
            work.window::<WIDE>(g.c, Window { number, pixel: pixel + g.stride[1] * number, size });
        }
    }
}
