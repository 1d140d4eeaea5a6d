//! The place of the greatest or least element.

use std::marker::PhantomData;

use super::nan;
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::math::fold;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// Where in the middle dimension of a contiguous `[outer, mid, inner]` the greatest or least
/// element stands. The first of equals wins; NaN wins over numbers.
///
/// Input: x. Output: `i64 [outer, inner]`.
pub struct Arg<T> {
    outer: usize,
    mid: usize,
    inner: usize,
    least: bool,
    element: PhantomData<T>,
}

/// Columns that are searched together.
const COLUMNS: usize = 64;

impl<T: Plain + PartialOrd> Arg<T> {
    /// The place of the greatest element.
    pub fn max(outer: usize, mid: usize, inner: usize) -> Self {
        Arg { outer, mid, inner, least: false, element: PhantomData }
    }

    /// The place of the least element.
    pub fn min(outer: usize, mid: usize, inner: usize) -> Self {
        Arg { least: true, ..Arg::max(outer, mid, inner) }
    }

    fn units(&self) -> usize {
        self.outer * self.inner.div_ceil(COLUMNS)
    }

    fn tasks(&self) -> usize {
        pieces(self.outer * self.mid * self.inner).min(self.units().max(1))
    }

    #[inline(always)]
    fn search(&self, task: usize, io: &Io<'_>, beats: impl Fn(T, T) -> bool + Copy) {
        let (mid, inner) = (self.mid, self.inner);
        // SAFETY: nobody writes the input.
        let x = unsafe { io.inputs[0].slice::<T>() };
        let strips = inner.div_ceil(COLUMNS);
        for unit in share(self.units(), self.tasks(), task) {
            let (outer, strip) = (unit / strips, unit % strips);
            let from = strip * COLUMNS;
            let n = COLUMNS.min(inner - from);
            let at = outer * inner + from;
            // SAFETY: each unit has its own results.
            let out = unsafe { io.outputs[0].slice_mut::<i64>(at..at + n) };
            let x = &x[outer * mid * inner..][..mid * inner];
            if mid == 0 {
                out.fill(0);
            } else if inner == 1 {
                out[0] = in_row(x, beats) as i64;
            } else {
                let mut best = [x[0]; COLUMNS];
                best[..n].copy_from_slice(&x[from..][..n]);
                out.fill(0);
                for i in 1..mid {
                    let row = &x[i * inner + from..][..n];
                    for ((best, out), &v) in best.iter_mut().zip(out.iter_mut()).zip(row) {
                        let wins = beats(v, *best) | (nan(v) & !nan(*best));
                        *out = if wins { i as i64 } else { *out };
                        *best = if wins { v } else { *best };
                    }
                }
            }
        }
    }
}

/// Finds the value first and its place after: both loops are short to compute, and a loop that
/// carried the place along would not be.
#[inline(always)]
fn in_row<T: Plain + PartialOrd>(x: &[T], beats: impl Fn(T, T) -> bool + Copy) -> usize {
    let best = fold(x, x[0], |a, b| if beats(b, a) | nan(b) { b } else { a });
    let place = x.iter().position(|&v| v == best || nan(best) && nan(v));
    place.unwrap_or(0)
}

impl<T: Plain + PartialOrd> Kernel for Arg<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || match self.least {
                true => self.search(task, io, |a, b| a < b),
                false => self.search(task, io, |a, b| a > b),
            },
        );
    }

    fn flops(&self) -> u64 {
        (self.outer * self.mid * self.inner) as u64
    }
}
