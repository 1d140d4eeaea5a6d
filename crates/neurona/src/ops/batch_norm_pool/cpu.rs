//! Batch normalisation, relu and max pooling in one, on CPU cores, over images `[n, h, w, c]`.
//!
//! Statistics, and what is made of the gradient's sums, are those of the normalisation. What belongs to windows is done
//! window by window, so that memory is read in order.

mod backward;
mod forward;
#[cfg(test)]
mod tests;
mod weights;

pub use backward::Backward;
pub use forward::Forward;
pub use weights::Weights;

use super::tiles;
use crate::cpu::block::Block;
use crate::cpu::kernel::Io;
use crate::cpu::math::Real;
use crate::cpu::stream::{OWN, near};
use crate::ops::batch_norm::cpu::{Statistics, scratch};
use crate::ops::pool::Pool;

/// What is done with a window.
trait Visit<T: Real> {
    /// In the channels of a block, from `channel` on.
    ///
    /// # Safety
    /// The machine must have the block's instructions.
    unsafe fn block<B: Block<T>>(&mut self, window: &Window, channel: usize);

    /// In all channels, in blocks of `WIDE` and what is left.
    #[inline(always)]
    fn window<const WIDE: usize>(&mut self, c: usize, window: Window) {
        let mut at = 0;
        while at + WIDE <= c {
            // SAFETY: arrays need no instructions, and blocks of 16 are asked for where there is AVX-512 alone.
            unsafe {
                match WIDE {
                    16 => self.block::<T::Sixteen>(&window, at),
                    _ => self.block::<[T; WIDE]>(&window, at),
                }
            }
            at += WIDE;
        }
        while at + 4 <= c {
            // SAFETY: as above.
            unsafe { self.block::<[T; 4]>(&window, at) };
            at += 4;
        }
        while at < c {
            // SAFETY: as above.
            unsafe { self.block::<[T; 1]>(&window, at) };
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

/// The winners of a window in some channels: the first of the greatest; NaN wins over numbers, as in a pool.
struct Winners<B> {
    value: B,
    /// Distance from the mean.
    apart: B,
    /// The cell's number, one as wide as the values.
    place: B,
}

impl Window {
    /// # Safety
    /// The machine must have the block's instructions.
    #[inline(always)]
    unsafe fn winners<T: Real, B: Block<T>>(&self, g: &Pool, x: &[T], by: Normal<'_, T>, channel: usize) -> Winners<B> {
        // SAFETY: the caller's promise.
        unsafe {
            let [mean, scale, shift] =
                [B::load(by.mean, channel), B::load(by.scale, channel), B::load(by.shift, channel)];
            let zero = B::splat(T::zero());
            let mut best = Winners { value: B::splat(T::neg_infinity()), apart: zero, place: zero };
            for r in 0..self.size[0] {
                for s in 0..self.size[1] {
                    let apart = B::load(x, (self.pixel + r * g.w + s) * g.c + channel).sub(mean);
                    let value = apart.mul(scale).add(shift);
                    let wins = value.beats(best.value);
                    let place = B::splat(T::of((r * g.kernel[1] + s) as f64));
                    best = Winners {
                        value: B::choose(wins, value, best.value),
                        apart: B::choose(wins, apart, best.apart),
                        place: B::choose(wins, place, best.place),
                    };
                }
            }
            best
        }
    }
}

/// Images that windows are taken of.
#[derive(Clone, Copy)]
struct Images<'a, T> {
    g: &'a Pool,
    x: &'a [T],
    /// Gradients by the windows' results, from this row of windows on, where there are any.
    slopes: *const T,
    /// Whether they are larger than the own caches of some cores.
    far: bool,
}

impl<'a, T: Real> Images<'a, T> {
    fn new(g: &'a Pool, x: &'a [T]) -> Self {
        Images { g, x, slopes: std::ptr::null(), far: g.input_len() * size_of::<T>() > 4 * OWN }
    }

    /// With the gradients by the windows' results.
    #[inline(always)]
    fn with(self, slopes: &[T]) -> Self {
        Images { slopes: slopes.as_ptr(), ..self }
    }

    /// Asks for the window below this one, in the rows of pixels that come next, which begin at this pixel, and for its
    /// gradient: rows of windows are streams that are too short to be seen as such, and what only winners get is loaded
    /// only when they are known.
    #[inline(always)]
    fn ahead(&self, window: usize, pixel: usize, columns: usize) {
        let g = self.g;
        let floats = |pixels: usize| pixels * g.c * size_of::<T>() / size_of::<f32>();
        for y in 0..g.kernel[0] {
            near(self.x.as_ptr().wrapping_add((pixel + y * g.w) * g.c).cast(), floats(columns));
        }
        if !self.slopes.is_null() {
            near(self.slopes.wrapping_add((window + g.ow()) * g.c).cast(), floats(1));
        }
    }
}

/// Visits the windows of a row of windows that begins at this pixel and has so many rows of pixels. Whole windows of 2 by 2
/// are told apart, so that the compiler sees their size.
#[inline(always)]
fn each_window<T: Real, const WIDE: usize>(
    images: Images<'_, T>,
    pixel: usize,
    height: usize,
    work: &mut impl Visit<T>,
) {
    let g = images.g;
    let windows = g.ow();
    let next = g.stride[0] * g.w;
    if g.is_halving() {
        for number in 0..windows {
            let pixel = pixel + 2 * number;
            if images.far {
                images.ahead(number, pixel + next, 2);
            }
            work.window::<WIDE>(g.c, Window { number, pixel, size: [2, 2] });
        }
    } else {
        for number in 0..windows {
            let size = [height, g.covered(1, number).len()];
            work.window::<WIDE>(g.c, Window { number, pixel: pixel + g.stride[1] * number, size });
        }
    }
}
