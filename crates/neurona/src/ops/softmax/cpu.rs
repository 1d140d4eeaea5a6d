//! Softmax and its logarithm over the last dimension, on CPU cores.
//!
//! Rows are often short (ten classes), so exponentials are not taken row by row but over tiles of
//! many rows laid end to end; only the maxima and sums are per row.

use std::marker::PhantomData;

use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::{Real, max, sum};
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// Which of the two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Exponentials over their sum.
    Softmax,
    /// The logarithm of that.
    LogSoftmax,
}

/// Elements of a tile: small enough to stay in the nearest cache.
const TILE: usize = 2048;

/// Rows of `n` elements that make a tile.
#[inline(always)]
fn tile_rows(n: usize) -> usize {
    (TILE / n.max(1)).max(1)
}

#[inline(always)]
fn exp_all<T: Real>(x: &mut [T]) {
    for v in x {
        *v = v.vexp();
    }
}

/// The maximum and the sum of `exp(x - maximum)` of each row of `n` elements, handed to `each` with
/// the row's number and, unless the row is too long to keep, the exponentials themselves.
/// `scratch` has room for a tile.
#[inline(always)]
pub(crate) fn max_and_sum<T: Real>(
    x: &[T],
    n: usize,
    scratch: &mut [T],
    mut each: impl FnMut(usize, T, T, Option<&[T]>),
) {
    if n == 0 {
        return;
    }
    if n > TILE {
        for (i, row) in x.chunks_exact(n).enumerate() {
            let top = max(row);
            let mut total = T::zero();
            for part in row.chunks(TILE) {
                let tile = &mut scratch[..part.len()];
                for (t, &v) in tile.iter_mut().zip(part) {
                    *t = (v - top).vexp();
                }
                total = total + sum(tile);
            }
            each(i, top, total, None);
        }
        return;
    }
    let rows = tile_rows(n);
    let mut tops = [T::zero(); TILE];
    for (k, part) in x.chunks(rows * n).enumerate() {
        let tile = &mut scratch[..part.len()];
        for ((tile, row), top) in tile.chunks_exact_mut(n).zip(part.chunks_exact(n)).zip(&mut tops) {
            *top = max(row);
            for (t, &v) in tile.iter_mut().zip(row) {
                *t = v - *top;
            }
        }
        exp_all(tile);
        for (i, (row, &top)) in tile.chunks_exact(n).zip(&tops).enumerate() {
            each(k * rows + i, top, sum(row), Some(row));
        }
    }
}

/// Bytes of scratch that [`max_and_sum`] needs.
pub(crate) fn tile_bytes<T: Real>() -> usize {
    TILE * size_of::<T>()
}

/// Softmax or log-softmax of each row.
///
/// Input: x `[rows, n]`. Output: y `[rows, n]`.
pub struct Forward<T> {
    rows: usize,
    n: usize,
    kind: Kind,
    element: PhantomData<T>,
}

impl<T: Real> Forward<T> {
    /// Over `rows` rows of `n` elements.
    pub fn new(rows: usize, n: usize, kind: Kind) -> Self {
        Forward { rows, n, kind, element: PhantomData }
    }
}

impl<T: Real> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.rows * self.n)]
    }

    fn scratch(&self) -> usize {
        tile_bytes::<T>()
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let n = self.n;
        let rows = share(self.rows, pieces(self.rows * n), task);
        let part = rows.start * n..rows.end * n;
        // SAFETY: nobody writes the input; scratch is this task's, as is its range of rows.
        let (x, y, scratch) = unsafe {
            (
                &io.inputs[0].slice::<T>()[part.clone()],
                io.outputs[0].slice_mut::<T>(part),
                io.scratch.slice_mut::<T>(0..TILE),
            )
        };
        let log = self.kind == Kind::LogSoftmax;
        vectorized(
            #[inline(always)]
            || {
                max_and_sum(x, n, scratch, |i, top, total, exps| {
                    let (x, y) = (&x[i * n..][..n], &mut y[i * n..][..n]);
                    match (log, exps) {
                        (true, _) => {
                            // The maximum goes first: beside it, the logarithm might round away.
                            let total = total.ln();
                            let pairs = y.iter_mut().zip(x);
                            pairs.for_each(|(y, &x)| *y = (x - top) - total);
                        }
                        (false, Some(exps)) => {
                            let pairs = y.iter_mut().zip(exps);
                            pairs.for_each(|(y, &exp)| *y = exp / total);
                        }
                        (false, None) => {
                            let pairs = y.iter_mut().zip(x);
                            pairs.for_each(|(y, &x)| *y = (x - top).vexp() / total);
                        }
                    }
                });
            },
        );
    }

    fn flops(&self) -> u64 {
        20 * (self.rows * self.n) as u64
    }
}

/// The gradient of [`Forward`], from its output.
///
/// Inputs: dy `[rows, n]`, y `[rows, n]`. Output: dx `[rows, n]`.
pub struct Backward<T> {
    rows: usize,
    n: usize,
    kind: Kind,
    element: PhantomData<T>,
}

impl<T: Real> Backward<T> {
    /// Over `rows` rows of `n` elements.
    pub fn new(rows: usize, n: usize, kind: Kind) -> Self {
        Backward { rows, n, kind, element: PhantomData }
    }
}

impl<T: Real> Kernel for Backward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.rows * self.n)]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let n = self.n;
        let rows = share(self.rows, pieces(self.rows * n), task);
        let part = rows.start * n..rows.end * n;
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (dy, y, dx) = unsafe {
            (
                &io.inputs[0].slice::<T>()[part.clone()],
                &io.inputs[1].slice::<T>()[part.clone()],
                io.outputs[0].slice_mut::<T>(part),
            )
        };
        let log = self.kind == Kind::LogSoftmax;
        let tile = tile_rows(n) * n.max(1);
        let tiles = dy.chunks(tile).zip(y.chunks(tile)).zip(dx.chunks_mut(tile));
        vectorized(
            #[inline(always)]
            || {
                for ((dy, y), dx) in tiles {
                    if log {
                        for (dx, &y) in dx.iter_mut().zip(y) {
                            *dx = y.vexp();
                        }
                    } else {
                        for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
                            *dx = dy * y;
                        }
                    }
                    let rows = dy.chunks_exact(n).zip(y.chunks_exact(n));
                    for ((dy, y), dx) in rows.zip(dx.chunks_exact_mut(n)) {
                        if log {
                            let total = sum(dy);
                            for (dx, &dy) in dx.iter_mut().zip(dy) {
                                *dx = dy - *dx * total;
                            }
                        } else {
                            let total = sum(dx);
                            for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
                                *dx = y * (dy - total);
                            }
                        }
                    }
                }
            },
        );
    }

    fn flops(&self) -> u64 {
        5 * (self.rows * self.n) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, close, run, slopes};

    fn plain(x: &[f64], n: usize, kind: Kind) -> Vec<f64> {
        let mut y = vec![];
        for row in x.chunks(n.max(1)) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
            y.extend(row.iter().map(|v| match kind {
                Kind::Softmax => (v - top).exp() / total,
                Kind::LogSoftmax => v - top - total.ln(),
            }));
        }
        y
    }

    fn forward<T: Real>(x: &[T], n: usize, kind: Kind) -> Vec<T> {
        let mut x = x.to_vec();
        let mut y = vec![T::nan(); x.len()];
        let rows = x.len().checked_div(n).unwrap_or(3);
        run(&Forward::<T>::new(rows, n, kind), &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
        y
    }

    #[test]
    fn agrees_with_plain_loops_and_slopes() {
        let mut rng = Rng(8);
        let shapes = [(0, 10), (3, 0), (1, 1), (128, 10), (5, 37), (5000, 10), (7, 1000), (20, 2048), (3, 5001)];
        for (rows, n) in shapes {
            for kind in [Kind::Softmax, Kind::LogSoftmax] {
                let x: Vec<f32> = rng.vec(rows * n).iter().map(|v: &f32| v * 30.0).collect();
                let wide: Vec<f64> = x.iter().map(|&v| v.into()).collect();
                close(&forward(&x, n, kind), &plain(&wide, n, kind), 1e-6);

                let x: Vec<f64> = rng.vec(rows * n);
                let mut y = forward(&x, n, kind);
                close(&y, &plain(&x, n, kind), 1e-13);
                let mut dy: Vec<f64> = rng.vec(rows * n);
                let mut dx = vec![f64::NAN; rows * n];
                run(
                    &Backward::<f64>::new(rows, n, kind),
                    &[Buf::over(&mut dy), Buf::over(&mut y)],
                    &[Buf::over(&mut dx)],
                );
                slopes(&x, &dx, |x| {
                    let y = plain(x, n, kind);
                    y.iter().zip(&dy).map(|(y, d)| y * d).sum()
                });
            }
        }
    }

    #[test]
    fn infinities_and_nan() {
        let inf = f32::INFINITY;
        assert_eq!(forward(&[-inf, 0.0, 0.0], 3, Kind::Softmax), [0.0, 0.5, 0.5]);
        assert_eq!(forward(&[-inf, 0.0], 2, Kind::LogSoftmax), [-inf, 0.0]);
        let mixed = forward(&[f32::NAN, 0.0, 1.0, 1.0], 2, Kind::Softmax);
        assert!(mixed[0].is_nan() && mixed[1].is_nan() && mixed[2] == 0.5);
        assert!(forward(&[-inf, -inf], 2, Kind::Softmax)[0].is_nan());
        assert!(forward(&[300f32, -300.0], 2, Kind::Softmax) == [1.0, 0.0]);
    }
}
