//! Layer normalisation on CPU cores.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// Which operands there are besides x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A scale of each element of a row.
    pub weight: bool,
    /// A shift of each element of a row.
    pub bias: bool,
}

/// Elements that are summed in the element's own type before the sum is widened.
const BLOCK: usize = 2048;
const LANES: usize = 32;

/// The sum of `f(i)` for `i` in `0..n`, in a fixed tree.
#[inline(always)]
fn total<T: Real>(n: usize, f: impl Fn(usize) -> T) -> f64 {
    let mut total = 0.0;
    for start in (0..n).step_by(BLOCK) {
        let end = (start + BLOCK).min(n);
        let whole = start + (end - start) / LANES * LANES;
        let mut lanes = [T::zero(); LANES];
        for i in (start..whole).step_by(LANES) {
            for (j, lane) in lanes.iter_mut().enumerate() {
                *lane = *lane + f(i + j);
            }
        }
        for i in whole..end {
            lanes[i - whole] = lanes[i - whole] + f(i);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] = lanes[i] + lanes[i + width];
            }
            width /= 2;
        }
        total += lanes[0].wide();
    }
    total
}

/// Each row to mean 0 and variance 1.
///
/// Inputs: x `[rows, n]`, maybe weight `[n]`, maybe bias `[n]`.
/// Outputs: y `[rows, n]`, mean `[rows]`, inverse deviation `[rows]`.
pub struct Forward<T> {
    rows: usize,
    n: usize,
    eps: f64,
    options: Options,
    element: PhantomData<T>,
}

impl<T: Real> Forward<T> {
    /// Over `rows` rows of `n` elements.
    pub fn new(rows: usize, n: usize, eps: f64, options: Options) -> Self {
        Forward { rows, n, eps, options, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.rows * self.n)
    }

    #[inline(always)]
    fn rows(&self, rows: Range<usize>, io: &Io<'_>) {
        let n = self.n;
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (x, y, means, scales) = unsafe {
            (
                &io.inputs[0].slice::<T>()[rows.start * n..rows.end * n],
                io.outputs[0].slice_mut::<T>(rows.start * n..rows.end * n),
                io.outputs[1].slice_mut::<T>(rows.clone()),
                io.outputs[2].slice_mut::<T>(rows),
            )
        };
        // SAFETY: nobody writes the inputs.
        let operand = |there: bool, i: usize| there.then(|| unsafe { &io.inputs[i].slice::<T>()[..n] });
        let weight = operand(self.options.weight, 1);
        let bias = operand(self.options.bias, 1 + self.options.weight as usize);
        let count = n as f64;
        for (((x, y), mean), scale) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)).zip(means).zip(scales) {
            *mean = T::of(
                total(
                    n,
                    #[inline(always)]
                    |i| x[i],
                ) / count,
            );
            let middle = *mean;
            // In two passes: the difference of mean square and squared mean would lose everything far from 0.
            let square = total(
                n,
                #[inline(always)]
                |i| (x[i] - middle) * (x[i] - middle),
            );
            *scale = T::of(1.0 / (square / count + self.eps).sqrt());
            let scale = *scale;
            match (weight, bias) {
                (Some(w), Some(b)) => (0..n).for_each(|i| y[i] = (x[i] - middle) * scale * w[i] + b[i]),
                (Some(w), None) => (0..n).for_each(|i| y[i] = (x[i] - middle) * scale * w[i]),
                (None, Some(b)) => (0..n).for_each(|i| y[i] = (x[i] - middle) * scale + b[i]),
                (None, None) => (0..n).for_each(|i| y[i] = (x[i] - middle) * scale),
            }
        }
    }
}

impl<T: Real> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let rows = share(self.rows, self.tasks(), task);
        vectorized(
            #[inline(always)]
            || self.rows(rows, io),
        );
    }

    fn flops(&self) -> u64 {
        8 * (self.rows * self.n) as u64
    }
}

/// The gradient of [`Forward`].
///
/// Inputs: dy `[rows, n]`, x `[rows, n]`, mean `[rows]`, inverse deviation `[rows]`, maybe weight `[n]`.
/// Outputs: dx `[rows, n]`, maybe dweight `[n]`, maybe dbias `[n]`.
pub struct Backward<T> {
    rows: usize,
    n: usize,
    options: Options,
    element: PhantomData<T>,
}

impl<T: Real> Backward<T> {
    /// The gradient of the normalisation with the same sizes and operands.
    pub fn new(rows: usize, n: usize, options: Options) -> Self {
        Backward { rows, n, options, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.rows * self.n)
    }

    /// Sums over all rows: of dweight and dbias.
    fn sums(&self) -> usize {
        self.options.weight as usize + self.options.bias as usize
    }

    #[inline(always)]
    fn rows(&self, rows: Range<usize>, task: usize, io: &Io<'_>) {
        let (n, sums) = (self.n, self.sums());
        // SAFETY: nobody writes the inputs; rows and partial sums of different tasks do not overlap.
        let (dy, x, means, scales, dx, partial) = unsafe {
            (
                &io.inputs[0].slice::<T>()[rows.start * n..rows.end * n],
                &io.inputs[1].slice::<T>()[rows.start * n..rows.end * n],
                &io.inputs[2].slice::<T>()[rows.clone()],
                &io.inputs[3].slice::<T>()[rows.clone()],
                io.outputs[0].slice_mut::<T>(rows.start * n..rows.end * n),
                io.workspace.slice_mut::<T>(task * sums * n..(task + 1) * sums * n),
            )
        };
        // SAFETY: nobody writes the inputs.
        let weight = self.options.weight.then(|| unsafe { &io.inputs[4].slice::<T>()[..n] });
        partial.fill(T::zero());
        let (by_weight, by_bias) = partial.split_at_mut(if self.options.weight { n } else { 0 });
        let lines = dy.chunks_exact(n).zip(x.chunks_exact(n)).zip(dx.chunks_exact_mut(n));
        for (((dy, x), dx), (&mean, &scale)) in lines.zip(means.iter().zip(scales)) {
            // dx holds dy · weight for a while.
            match weight {
                Some(w) => (0..n).for_each(|i| dx[i] = dy[i] * w[i]),
                None => dx.copy_from_slice(dy),
            }
            let normal = |i: usize| (x[i] - mean) * scale;
            let even = T::of(
                total(
                    n,
                    #[inline(always)]
                    |i| dx[i],
                ) / n as f64,
            );
            let along = T::of(
                total(
                    n,
                    #[inline(always)]
                    |i| dx[i] * normal(i),
                ) / n as f64,
            );
            dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = scale * (*dx - even - normal(i) * along));
            if self.options.weight {
                (0..n).for_each(|i| by_weight[i] = by_weight[i] + dy[i] * normal(i));
            }
            if self.options.bias {
                (0..n).for_each(|i| by_bias[i] = by_bias[i] + dy[i]);
            }
        }
    }

    /// Joins the tasks' sums of some elements.
    #[inline(always)]
    fn join(&self, elements: Range<usize>, io: &Io<'_>) {
        let sums = self.sums();
        // SAFETY: the sums were written in the earlier phase.
        let partial = unsafe { io.workspace.slice::<T>() };
        for (k, output) in io.outputs[1..].iter().enumerate() {
            // SAFETY: each task has its own elements.
            let out = unsafe { output.slice_mut::<T>(elements.clone()) };
            out.fill(T::zero());
            for task in 0..self.tasks() {
                let from = &partial[(task * sums + k) * self.n..][elements.clone()];
                out.iter_mut().zip(from).for_each(|(out, &v)| *out = *out + v);
            }
        }
    }
}

impl<T: Real> Kernel for Backward<T> {
    fn phases(&self) -> Vec<usize> {
        match self.sums() {
            0 => vec![self.tasks()],
            _ => vec![self.tasks(), pieces(self.n * self.tasks())],
        }
    }

    fn workspace(&self) -> usize {
        self.tasks() * self.sums() * self.n * size_of::<T>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || match phase {
                0 => self.rows(share(self.rows, self.tasks(), task), task, io),
                _ => self.join(share(self.n, pieces(self.n * self.tasks()), task), io),
            },
        );
    }

    fn flops(&self) -> u64 {
        16 * (self.rows * self.n) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, close, run, slopes};

    fn plain(x: &[f64], w: Option<&[f64]>, b: Option<&[f64]>, n: usize, eps: f64) -> Vec<f64> {
        let mut y = vec![];
        for row in x.chunks(n) {
            let mean = row.iter().sum::<f64>() / n as f64;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            y.extend(
                row.iter()
                    .enumerate()
                    .map(|(i, v)| (v - mean) / (var + eps).sqrt() * w.map_or(1.0, |w| w[i]) + b.map_or(0.0, |b| b[i])),
            );
        }
        y
    }

    /// y, mean, inverse deviation.
    fn forward<T: Real>(x: &[T], w: Option<&[T]>, b: Option<&[T]>, n: usize, eps: f64) -> [Vec<T>; 3] {
        let rows = x.len() / n;
        let mut operands: Vec<Vec<T>> = [Some(x), w, b].into_iter().flatten().map(<[T]>::to_vec).collect();
        let mut out = [vec![T::nan(); x.len()], vec![T::nan(); rows], vec![T::nan(); rows]];
        let inputs: Vec<Buf> = operands.iter_mut().map(|v| Buf::over(v)).collect();
        let outputs: Vec<Buf> = out.iter_mut().map(|v| Buf::over(v)).collect();
        let options = Options { weight: w.is_some(), bias: b.is_some() };
        run(&Forward::<T>::new(rows, n, eps, options), &inputs, &outputs);
        out
    }

    #[test]
    fn agrees_with_plain_loops_and_slopes() {
        let mut rng = Rng(21);
        let narrow = |x: &[f64]| -> Vec<f32> { x.iter().map(|&v| v as f32).collect() };
        for (rows, n) in [(0, 5), (1, 1), (3, 7), (64, 33), (5, 5000), (2000, 64), (300, 768)] {
            for (weight, bias) in [(false, false), (true, false), (true, true), (false, true)] {
                let x: Vec<f64> = rng.vec(rows * n);
                let w: Option<Vec<f64>> = weight.then(|| rng.vec(n));
                let b: Option<Vec<f64>> = bias.then(|| rng.vec(n));
                let want = plain(&x, w.as_deref(), b.as_deref(), n, 1e-3);
                let [y, mut mean, mut scale] = forward(&x, w.as_deref(), b.as_deref(), n, 1e-3);
                close(&y, &want, 1e-12);
                let (w32, b32) = (w.as_deref().map(narrow), b.as_deref().map(narrow));
                close(&forward(&narrow(&x), w32.as_deref(), b32.as_deref(), n, 1e-3)[0], &want, 1e-5);

                let mut dy: Vec<f64> = rng.vec(rows * n);
                let mut out = vec![vec![f64::NAN; rows * n]];
                (0..weight as usize + bias as usize).for_each(|_| out.push(vec![f64::NAN; n]));
                let (mut x2, mut w2) = (x.clone(), w.clone());
                let mut inputs =
                    vec![Buf::over(&mut dy), Buf::over(&mut x2), Buf::over(&mut mean), Buf::over(&mut scale)];
                inputs.extend(w2.iter_mut().map(|w| Buf::over(w)));
                let outputs: Vec<Buf> = out.iter_mut().map(|v| Buf::over(v)).collect();
                run(&Backward::<f64>::new(rows, n, Options { weight, bias }), &inputs, &outputs);
                let loss = |y: Vec<f64>| -> f64 { y.iter().zip(&dy).map(|(y, d)| y * d).sum() };
                slopes(&x, &out[0], |x| loss(plain(x, w.as_deref(), b.as_deref(), n, 1e-3)));
                if let Some(w) = &w {
                    slopes(w, &out[1], |w| loss(plain(&x, Some(w), b.as_deref(), n, 1e-3)));
                }
                if let Some(b) = &b {
                    slopes(b, &out[1 + weight as usize], |b| loss(plain(&x, w.as_deref(), Some(b), n, 1e-3)));
                }
            }
        }
    }

    #[test]
    fn far_from_zero_nothing_is_lost() {
        let x: Vec<f32> = (0..4096).map(|i| 10_000.0 + (i % 2) as f32).collect();
        let [y, mean, _] = forward::<f32>(&x, None, None, 4096, 0.0);
        assert_eq!(mean, [10_000.5]);
        assert!(y.iter().all(|v| v.abs() == 1.0), "{:?}", &y[..4]);
    }
}
