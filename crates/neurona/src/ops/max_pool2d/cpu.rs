//! Max pooling on CPU cores.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::ops::pool::{LANES, Pool, collect, load, store};

/// The greatest element of each window.
///
/// Input: x `[n, h, w, c]`. Outputs: y `[n, oh, ow, c]`; the winner's place in its window, row by
/// row, as `u8` of the same shape. The first of equals wins; NaN wins over numbers.
pub struct Forward<T> {
    geometry: Pool,
    element: PhantomData<T>,
}

impl<T: Real> Forward<T> {
    /// Pooling with windows of at most 255 cells.
    pub fn new(geometry: Pool) -> Self {
        Forward { geometry, element: PhantomData }
    }
}

impl<T: Real> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.geometry.input_len())]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let g = &self.geometry;
        let rows = share(g.n * g.oh(), pieces(g.input_len()), task);
        let row = g.ow() * g.c;
        let part = rows.start * row..rows.end * row;
        // SAFETY: nobody writes the input; the ranges of different tasks do not overlap.
        let (x, y, places) = unsafe {
            (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(part.clone()), io.outputs[1].slice_mut::<u8>(part))
        };
        pool(g, rows, x, y, places);
    }

    fn flops(&self) -> u64 {
        (self.geometry.output_len() * self.geometry.kernel.iter().product::<usize>()) as u64
    }
}

/// Pools rows of windows; `y` and `places` are those rows'.
pub(crate) fn pool<T: Real>(g: &Pool, rows: Range<usize>, x: &[T], y: &mut [T], places: &mut [u8]) {
    vectorized(
        #[inline(always)]
        || forward::<T, LANES>(g, rows, x, y, places),
    );
}

#[inline(always)]
fn forward<T: Real, const L: usize>(g: &Pool, rows: Range<usize>, x: &[T], y: &mut [T], places: &mut [u8]) {
    let (oh, ow) = (g.oh(), g.ow());
    let halving = g.is_halving();
    let reach = g.c.next_multiple_of(L);
    let mut at = 0;
    for row in rows {
        let (image, oy) = (row / oh, row % oh);
        let ys = g.covered(0, oy);
        let image = image * g.h * g.w;
        for ox in 0..ow {
            let xs = g.covered(1, ox);
            let window = Window {
                corner: (image + ys.start * g.w + xs.start) * g.c,
                first: (ys.start + g.padding[0] - oy * g.stride[0]) * g.kernel[1]
                    + (xs.start + g.padding[1] - ox * g.stride[1]),
                height: ys.len(),
                width: xs.len(),
            };
            let last = (image + ys.end * g.w - g.w + xs.end) * g.c - g.c;
            if at + reach > y.len() || last + reach > x.len() {
                window.pool::<T, L, true>(g, x, at, y, places);
            } else if halving {
                let window = Window { first: 0, height: 2, width: 2, ..window };
                window.pool::<T, L, false>(g, x, at, y, places);
            } else {
                window.pool::<T, L, false>(g, x, at, y, places);
            }
            at += g.c;
        }
    }
}

/// A window, padding left out.
struct Window {
    /// Where its first cell lies in the input.
    corner: usize,
    /// The place of that cell in the whole window.
    first: usize,
    height: usize,
    width: usize,
}

impl Window {
    #[inline(always)]
    fn pool<T: Real, const L: usize, const EDGE: bool>(
        &self,
        g: &Pool,
        x: &[T],
        at: usize,
        y: &mut [T],
        places: &mut [u8],
    ) {
        for channel in (0..g.c).step_by(L) {
            let mut best = Best::<T, L>::new(self.first);
            for r in 0..self.height {
                for s in 0..self.width {
                    let cell = self.corner + (r * g.w + s) * g.c + channel;
                    let place = self.first + r * g.kernel[1] + s;
                    best.meet(load::<T, L, EDGE>(x, cell), place);
                }
            }
            store::<T, L, EDGE>(y, at + channel, best.value);
            // By a loop: what `map` calls may not be inlined.
            let mut bytes = [0; L];
            bytes.iter_mut().zip(best.place).for_each(|(byte, place)| *byte = place.byte());
            store::<u8, L, EDGE>(places, at + channel, bytes);
        }
    }
}

/// The winners so far. Places are kept as numbers of the same width as the values, so that one
/// comparison mask serves both.
struct Best<T, const L: usize> {
    value: [T; L],
    place: [T; L],
}

impl<T: Real, const L: usize> Best<T, L> {
    #[inline(always)]
    fn new(place: usize) -> Self {
        Best { value: [T::neg_infinity(); L], place: [T::of(place as f64); L] }
    }

    #[inline(always)]
    fn meet(&mut self, cell: [T; L], place: usize) {
        let place = T::of(place as f64);
        for (j, v) in cell.into_iter().enumerate() {
            let wins = (v > self.value[j]) | v.is_nan();
            self.value[j] = if wins { v } else { self.value[j] };
            self.place[j] = if wins { place } else { self.place[j] };
        }
    }
}

/// The gradient of [`Forward`]: each output's gradient goes to its winner.
///
/// Inputs: dy `[n, oh, ow, c]`, the winners' places. Output: dx `[n, h, w, c]`.
pub struct InputGrad<T> {
    geometry: Pool,
    element: PhantomData<T>,
}

impl<T: Real> InputGrad<T> {
    /// The gradient of the pooling with the same geometry.
    pub fn new(geometry: Pool) -> Self {
        InputGrad { geometry, element: PhantomData }
    }
}

impl<T: Real> Kernel for InputGrad<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.geometry.input_len())]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let g = &self.geometry;
        let rows = share(g.n * g.h, pieces(g.input_len()), task);
        let row = g.w * g.c;
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (dy, places, dx) = unsafe {
            (
                io.inputs[0].slice::<T>(),
                io.inputs[1].slice::<u8>(),
                io.outputs[0].slice_mut::<T>(rows.start * row..rows.end * row),
            )
        };
        vectorized(
            #[inline(always)]
            || {
                collect(g, rows, dy, places, dx, |_, place| {
                    move |gradient, winner| if winner == place as u8 { gradient } else { T::zero() }
                })
            },
        );
    }

    fn flops(&self) -> u64 {
        self.geometry.output_len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, close, run};

    fn shapes() -> Vec<Pool> {
        let pool =
            |n, c, h, w, kernel, stride, padding, ceil_mode| Pool { n, c, h, w, kernel, stride, padding, ceil_mode };
        let mut all = vec![
            pool(0, 3, 4, 4, [2, 2], [2, 2], [0, 0], false),
            pool(1, 1, 1, 1, [1, 1], [1, 1], [0, 0], false),
            pool(2, 6, 28, 28, [2, 2], [2, 2], [0, 0], false),
            pool(2, 6, 7, 9, [2, 2], [2, 2], [0, 0], false),
            pool(2, 6, 7, 9, [2, 2], [2, 2], [0, 0], true),
            pool(2, 64, 17, 15, [3, 3], [2, 2], [1, 1], false),
            pool(1, 20, 9, 11, [3, 2], [1, 3], [1, 1], true),
            pool(3, 40, 60, 50, [5, 4], [2, 1], [2, 2], false),
            pool(2, 3, 5, 5, [2, 2], [3, 3], [1, 1], true),
            pool(1, 5, 2, 2, [3, 3], [1, 1], [0, 0], false),
        ];
        let mut rng = Rng(3);
        for _ in 0..60 {
            let kernel = [1 + rng.below(4), 1 + rng.below(4)];
            all.push(pool(
                1 + rng.below(3),
                1 + rng.below(20),
                1 + rng.below(12),
                1 + rng.below(12),
                kernel,
                [1 + rng.below(3), 1 + rng.below(3)],
                kernel.map(|k| rng.below(k / 2 + 1)),
                rng.below(2) == 1,
            ));
        }
        all
    }

    fn plain(g: &Pool, x: &[f64]) -> (Vec<f64>, Vec<u8>, Vec<usize>) {
        let (mut y, mut places, mut sources) = (vec![], vec![], vec![]);
        for n in 0..g.n {
            for oy in 0..g.oh() {
                for ox in 0..g.ow() {
                    for c in 0..g.c {
                        let mut best: Option<(f64, u8, usize)> = None;
                        for r in 0..g.kernel[0] {
                            for s in 0..g.kernel[1] {
                                let iy = (oy * g.stride[0] + r).wrapping_sub(g.padding[0]);
                                let ix = (ox * g.stride[1] + s).wrapping_sub(g.padding[1]);
                                if iy < g.h && ix < g.w {
                                    let at = ((n * g.h + iy) * g.w + ix) * g.c + c;
                                    let v = x[at];
                                    if best.is_none_or(|b| v > b.0 || v.is_nan()) {
                                        best = Some((v, (r * g.kernel[1] + s) as u8, at));
                                    }
                                }
                            }
                        }
                        let best = best.unwrap();
                        y.push(best.0);
                        places.push(best.1);
                        sources.push(best.2);
                    }
                }
            }
        }
        (y, places, sources)
    }

    fn check<T: Real>() {
        let mut rng = Rng(1);
        for g in shapes() {
            // Few distinct values, so that ties are common.
            let mut x: Vec<T> = (0..g.input_len())
                .map(|_| match rng.below(40) {
                    0 => T::nan(),
                    1 => T::neg_infinity(),
                    v => T::of(v as f64 % 7.0 - 3.0),
                })
                .collect();
            let wide: Vec<f64> = x.iter().map(|v| v.wide()).collect();
            let (want, want_places, sources) = plain(&g, &wide);
            let mut y = vec![T::zero(); g.output_len()];
            let mut places = vec![77u8; g.output_len()];
            let outputs = [Buf::over(&mut y), Buf::over(&mut places)];
            run(&Forward::<T>::new(g), &[Buf::over(&mut x)], &outputs);
            close(&y, &want, 0.0);
            assert_eq!(places, want_places, "{g:?}");

            let mut dy: Vec<T> = rng.vec(g.output_len());
            let mut want = vec![0.0; g.input_len()];
            for (d, &at) in dy.iter().zip(&sources) {
                want[at] += d.wide();
            }
            let mut dx = vec![T::nan(); g.input_len()];
            run(&InputGrad::<T>::new(g), &[Buf::over(&mut dy), Buf::over(&mut places)], &[Buf::over(&mut dx)]);
            close(&dx, &want, 1e-6);
        }
    }

    #[test]
    fn agrees_with_plain_loops() {
        check::<f32>();
        check::<f64>();
    }
}
