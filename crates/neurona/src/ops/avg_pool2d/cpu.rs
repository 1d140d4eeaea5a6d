//! Average pooling on CPU cores.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::ops::pool::{LANES, Pool, collect, load, store};

/// The mean of each window.
///
/// Input: x `[n, h, w, c]`. Output: y `[n, oh, ow, c]`.
pub struct Forward<T> {
    geometry: Pool,
    count_include_pad: bool,
    element: PhantomData<T>,
}

impl<T: Real> Forward<T> {
    /// Pooling; `count_include_pad` says whether zeros of the padding count in the mean.
    pub fn new(geometry: Pool, count_include_pad: bool) -> Self {
        Forward { geometry, count_include_pad, element: PhantomData }
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
        // SAFETY: nobody writes the input; the ranges of different tasks do not overlap.
        let (x, y) =
            unsafe { (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(rows.start * row..rows.end * row)) };
        let pads = self.count_include_pad;
        vectorized(
            #[inline(always)]
            || forward::<T, LANES>(g, pads, rows, x, y),
        );
    }

    fn flops(&self) -> u64 {
        (self.geometry.output_len() * self.geometry.kernel.iter().product::<usize>()) as u64
    }
}

/// How many positions along `axis` window `o` counts: those of the input, or with `pads` all but
/// the ones that ceil mode lets reach past the padding.
#[inline(always)]
fn counted(g: &Pool, pads: bool, axis: usize, o: usize) -> usize {
    if pads {
        let end = [g.h, g.w][axis] + 2 * g.padding[axis];
        let start = o * g.stride[axis];
        (start + g.kernel[axis]).min(end) - start
    } else {
        g.covered(axis, o).len()
    }
}

#[inline(always)]
fn forward<T: Real, const L: usize>(g: &Pool, pads: bool, rows: Range<usize>, x: &[T], y: &mut [T]) {
    let (oh, ow) = (g.oh(), g.ow());
    let reach = g.c.next_multiple_of(L);
    let mut at = 0;
    for row in rows {
        let (image, oy) = (row / oh, row % oh);
        let ys = g.covered(0, oy);
        let ys = image * g.h + ys.start..image * g.h + ys.end;
        let high = counted(g, pads, 0, oy);
        for ox in 0..ow {
            let xs = g.covered(1, ox);
            let count = T::of((high * counted(g, pads, 1, ox)) as f64);
            let last = (ys.end * g.w + xs.end - g.w) * g.c - g.c;
            if at + reach > y.len() || last + reach > x.len() {
                window::<T, L, true>(g, &ys, &xs, count, x, at, y);
            } else {
                window::<T, L, false>(g, &ys, &xs, count, x, at, y);
            }
            at += g.c;
        }
    }
}

#[inline(always)]
fn window<T: Real, const L: usize, const EDGE: bool>(
    g: &Pool,
    ys: &Range<usize>,
    xs: &Range<usize>,
    count: T,
    x: &[T],
    at: usize,
    y: &mut [T],
) {
    for channel in (0..g.c).step_by(L) {
        let mut sum = [T::zero(); L];
        for iy in ys.clone() {
            for ix in xs.clone() {
                let cell = load::<T, L, EDGE>(x, (iy * g.w + ix) * g.c + channel);
                for j in 0..L {
                    sum[j] = sum[j] + cell[j];
                }
            }
        }
        store::<T, L, EDGE>(y, at + channel, sum.map(|v| v / count));
    }
}

/// The gradient of [`Forward`].
///
/// Input: dy `[n, oh, ow, c]`. Output: dx `[n, h, w, c]`.
pub struct InputGrad<T> {
    geometry: Pool,
    count_include_pad: bool,
    element: PhantomData<T>,
}

impl<T: Real> InputGrad<T> {
    /// The gradient of the pooling with the same settings.
    pub fn new(geometry: Pool, count_include_pad: bool) -> Self {
        InputGrad { geometry, count_include_pad, element: PhantomData }
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
        // SAFETY: nobody writes the input; the ranges of different tasks do not overlap.
        let (dy, dx) =
            unsafe { (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(rows.start * row..rows.end * row)) };
        let pads = self.count_include_pad;
        vectorized(
            #[inline(always)]
            || {
                collect(g, rows, dy, dy, dx, |[oy, ox], _| {
                    let count = T::of((counted(g, pads, 0, oy) * counted(g, pads, 1, ox)) as f64);
                    move |gradient, _| gradient / count
                })
            },
        );
    }

    fn flops(&self) -> u64 {
        (self.geometry.output_len() * self.geometry.kernel.iter().product::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, close, run, slopes};

    fn plain(g: &Pool, pads: bool, x: &[f64]) -> Vec<f64> {
        let mut y = vec![];
        for n in 0..g.n {
            for oy in 0..g.oh() {
                for ox in 0..g.ow() {
                    for c in 0..g.c {
                        let (mut sum, mut inside, mut padded) = (0.0, 0, 0);
                        for r in 0..g.kernel[0] {
                            for s in 0..g.kernel[1] {
                                let (py, px) = (oy * g.stride[0] + r, ox * g.stride[1] + s);
                                let iy = py.wrapping_sub(g.padding[0]);
                                let ix = px.wrapping_sub(g.padding[1]);
                                if iy < g.h && ix < g.w {
                                    sum += x[((n * g.h + iy) * g.w + ix) * g.c + c];
                                    inside += 1;
                                }
                                if py < g.h + 2 * g.padding[0] && px < g.w + 2 * g.padding[1] {
                                    padded += 1;
                                }
                            }
                        }
                        y.push(sum / if pads { padded } else { inside } as f64);
                    }
                }
            }
        }
        y
    }

    fn forward_of<T: Real>(g: Pool, pads: bool, x: &[T]) -> Vec<T> {
        let mut y = vec![T::nan(); g.output_len()];
        let mut x = x.to_vec();
        run(&Forward::<T>::new(g, pads), &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
        y
    }

    #[test]
    fn agrees_with_plain_loops_and_slopes() {
        let mut rng = Rng(5);
        for round in 0..80 {
            let kernel = [1 + rng.below(4), 1 + rng.below(4)];
            let g = Pool {
                n: [0, 1, 2][rng.below(3)],
                c: [1, 3, 6, 16, 19, 64][rng.below(6)],
                h: 1 + rng.below(if round == 0 { 100 } else { 12 }),
                w: 1 + rng.below(12),
                kernel,
                stride: [1 + rng.below(3), 1 + rng.below(3)],
                padding: kernel.map(|k| rng.below(k / 2 + 1)),
                ceil_mode: rng.below(2) == 1,
            };
            let pads = rng.below(2) == 1;
            let x: Vec<f64> = rng.vec(g.input_len());
            let want = plain(&g, pads, &x);
            close(&forward_of(g, pads, &x), &want, 1e-13);
            let narrow: Vec<f32> = x.iter().map(|&v| v as f32).collect();
            close(&forward_of(g, pads, &narrow), &want, 1e-6);

            let mut dy: Vec<f64> = rng.vec(g.output_len());
            let mut dx = vec![f64::NAN; g.input_len()];
            run(&InputGrad::<f64>::new(g, pads), &[Buf::over(&mut dy)], &[Buf::over(&mut dx)]);
            slopes(&x, &dx, |x| {
                let y = forward_of(g, pads, x);
                y.iter().zip(&dy).map(|(y, d)| y * d).sum()
            });
        }
    }
}
