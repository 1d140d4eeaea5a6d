//! Batch normalisation: the outputs.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Matrix, inverse, record, repeat, scratch, settled};
use crate::cpu::columns::{narrow, span, two_sums, widen};
use crate::cpu::gemm::{Activation, within};
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// What [`TrainForward`] does besides normalising.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Added to the variance.
    pub eps: f64,
    /// What becomes of results.
    pub activation: Activation,
    /// Whether weight and bias are among the inputs.
    pub affine: bool,
    /// Whether running statistics are kept.
    pub track: bool,
    /// Whether running statistics are means of all batches instead of moving averages.
    pub cumulative: bool,
}

/// Normalises by the batch's own statistics.
///
/// Inputs: x; if affine: weight, bias; if track: running mean, running variance, batches so far
/// (one `i64`) and, unless cumulative, momentum (one element); if measured: statistics of parts of x, a [`record`] each.
/// Outputs: y, mean, inverse deviation; if track: the new running mean, running variance and
/// number of batches, which may be the memory of the old ones.
pub struct TrainForward<T> {
    pub(crate) m: Matrix,
    options: Training,
    /// Parts of x whose statistics are an operand.
    measured: Option<usize>,
    element: PhantomData<T>,
}

impl<T: Real> TrainForward<T> {
    /// Normalisation of `c` columns over `rows` rows.
    pub fn new(rows: usize, c: usize, options: Training) -> Self {
        TrainForward { m: Matrix { rows, c }, options, measured: None, element: PhantomData }
    }

    /// The same, by statistics of so many parts that are its last input.
    pub fn measured(self, parts: usize) -> Self {
        TrainForward { measured: Some(parts), ..self }
    }

    /// Which steps a phase stands for: to measure, to combine, and what is done with the outcome.
    pub(crate) fn steps(&self, phase: usize) -> Range<usize> {
        match (self.measured, self.m.steps(phase)) {
            (None, steps) => steps,
            (_, steps) if steps.len() > 1 => 1..3,
            (_, steps) => steps.start + 1..steps.end + 1,
        }
    }

    fn combiners(&self) -> usize {
        match self.measured {
            Some(parts) if self.m.chunks() > 1 => pieces(parts * self.m.c).min(self.m.c.max(1)),
            Some(_) => 1,
            None => self.m.combiners(),
        }
    }

    /// The statistics of one part: how many rows, means, sums of squared deviations.
    #[inline(always)]
    fn part<'a>(&self, io: &'a Io<'_>, part: usize) -> (f64, &'a [f64], &'a [f64]) {
        let c = self.m.c;
        if self.measured.is_some() {
            let given = &io.inputs[io.inputs.len() - 1];
            // SAFETY: nobody writes an input.
            let given = &unsafe { given.slice::<f64>() }[part * record(c)..(part + 1) * record(c)];
            return (given[0], &given[1..=c], &given[1 + c..]);
        }
        let at = part * 2 * c;
        // SAFETY: partial sums are only read in this phase.
        let (means, squares) = unsafe { &io.workspace.slice::<f64>()[at..at + 2 * c] }.split_at(c);
        (self.m.rows(part).len() as f64, means, squares)
    }

    fn tracked(&self) -> usize {
        if self.options.affine { 3 } else { 1 }
    }

    #[inline(always)]
    pub(crate) fn measure(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        // SAFETY: nobody writes the input.
        let x = &unsafe { io.inputs[0].slice::<T>() }[m.elements(task)];
        let [mean, first, second] = scratch::<T, 3>(io, span(m.c));
        first.fill(T::zero());
        second.fill(T::zero());
        mean.fill(T::zero());
        two_sums([x], mean, first, second, |[x], _| (x, T::zero()));
        let count = m.rows(task).len().max(1) as f64;
        for (j, mean) in mean.iter_mut().enumerate().take(m.c) {
            *mean = T::of(narrow(first, m.c, j) / count);
        }
        repeat(mean, m.c);
        first.fill(T::zero());
        two_sums([x], mean, first, second, |[x], mean| {
            let d = x - mean;
            (d, d * d)
        });
        m.put(io, task, first, second);
        self.finish_partial(io, task, count, &mean[..m.c]);
    }

    /// Turns a chunk's sums of deviations into its mean and its sum of squared deviations.
    #[inline(always)]
    fn finish_partial(&self, io: &Io<'_>, task: usize, count: f64, mean: &[T]) {
        let c = self.m.c;
        let buf = self.m.partial(io, task);
        // SAFETY: each task of the sweep has its own partial sums.
        let (first, second) = unsafe { buf.slice_mut::<f64>(0..2 * c) }.split_at_mut(c);
        for ((first, second), mean) in first.iter_mut().zip(second).zip(mean) {
            (*first, *second) = settled(mean.wide(), *first, *second, count);
        }
    }

    #[inline(always)]
    pub(crate) fn combine(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        let channels = share(m.c, self.combiners(), task);
        let [mean, m2] = scratch::<f64, 2>(io, channels.len());
        mean.fill(0.0);
        m2.fill(0.0);
        let mut count = 0.0;
        for part in 0..self.measured.unwrap_or(m.chunks()) {
            let (n, means, m2s) = self.part(io, part);
            if n == 0.0 {
                continue;
            }
            let (weight, cross) = (n / (count + n), count * n / (count + n));
            let other = means[channels.clone()].iter().zip(&m2s[channels.clone()]);
            for ((mean, m2), (other, other_m2)) in mean.iter_mut().zip(m2.iter_mut()).zip(other) {
                let d = other - *mean;
                *mean += d * weight;
                *m2 += other_m2 + d * d * cross;
            }
            count += n;
        }
        // SAFETY: each task has its own channels.
        let (means, devs) =
            unsafe { (io.outputs[1].slice_mut::<T>(channels.clone()), io.outputs[2].slice_mut::<T>(channels.clone())) };
        for (i, (mean, m2)) in mean.iter().zip(m2.iter()).enumerate() {
            means[i] = T::of(*mean);
            devs[i] = T::of(1.0 / (m2 / count.max(1.0) + self.options.eps).sqrt());
        }
        if self.options.track {
            self.track(io, &channels, mean, m2, count);
        }
    }

    #[inline(always)]
    fn track(&self, io: &Io<'_>, channels: &Range<usize>, mean: &[f64], m2: &[f64], count: f64) {
        let t = self.tracked();
        let momentum = if self.options.cumulative {
            // SAFETY: the count is written in a later phase.
            1.0 / (unsafe { *io.inputs[t + 2].ptr::<i64>() } as f64 + 1.0)
        } else {
            // SAFETY: nobody writes the momentum.
            let momentum = unsafe { io.inputs[t + 3].slice::<T>() };
            momentum[0].wide()
        };
        let variance = |m2: f64| m2 / (count - 1.0);
        for (i, j) in channels.clone().enumerate() {
            for (k, new) in [mean[i], variance(m2[i])].into_iter().enumerate() {
                let (old, out) = (io.inputs[t + k], io.outputs[3 + k]);
                assert!(j < old.len::<T>() && j < out.len::<T>());
                // SAFETY: in bounds by the check; each task has its own channels. The two may be
                // the same memory, so neither is borrowed.
                unsafe {
                    let old = *old.ptr::<T>().add(j);
                    let moved = old.wide() + momentum * (new - old.wide());
                    let new = if count > 0.0 { T::of(moved) } else { old };
                    *out.ptr::<T>().add(j) = new;
                }
            }
        }
    }

    #[inline(always)]
    fn normalise(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        // SAFETY: nobody writes the input.
        let x = &unsafe { io.inputs[0].slice::<T>() }[m.elements(task)];
        // SAFETY: the ranges of different tasks do not overlap.
        let y = unsafe { io.outputs[0].slice_mut::<T>(m.elements(task)) };
        apply(io, x, y, self.statistics(io), self.options.activation);
        self.count(task, io);
    }

    /// By what the batch is normalised, when its chunks are combined.
    #[inline(always)]
    pub(crate) fn statistics<'a>(&self, io: &'a Io<'_>) -> Statistics<'a, T> {
        // SAFETY: written in an earlier phase.
        let (means, devs) = unsafe { (io.outputs[1].slice::<T>(), io.outputs[2].slice::<T>()) };
        // SAFETY: nobody writes the inputs.
        let affine = self.options.affine.then(|| unsafe { (io.inputs[1].slice::<T>(), io.inputs[2].slice::<T>()) });
        Statistics { means, devs, affine }
    }

    /// Counts the batch, in the last phase.
    #[inline(always)]
    pub(crate) fn count(&self, task: usize, io: &Io<'_>) {
        if self.options.track && task == 0 {
            let (old, new) = (io.inputs[self.tracked() + 2], io.outputs[5]);
            assert!(!old.is_empty() && !new.is_empty());
            // SAFETY: in bounds by the check; only this task touches the count in this phase.
            unsafe { *new.ptr::<i64>() = *old.ptr::<i64>() + 1 };
        }
    }
}

/// By what each column is normalised.
#[derive(Clone, Copy)]
pub(crate) struct Statistics<'a, T> {
    pub means: &'a [T],
    pub devs: &'a [T],
    pub affine: Option<(&'a [T], &'a [T])>,
}

impl<T: Real> Statistics<'_, T> {
    /// Scales and shifts that follow on the subtraction of the mean.
    #[inline(always)]
    pub fn factors(&self, scale: &mut [T], shift: &mut [T]) {
        for (i, (scale, shift)) in scale.iter_mut().zip(shift.iter_mut()).take(self.means.len()).enumerate() {
            let (weight, bias) = self.affine.map_or((T::one(), T::zero()), |(w, b)| (w[i], b[i]));
            *scale = self.devs[i] * weight;
            *shift = bias;
        }
    }
}

/// `(x - mean) * dev * weight + bias`, then the activation. The mean is taken off first: folding it into the
/// bias would cancel badly where it is much larger than the deviation.
#[inline(always)]
fn apply<T: Real>(io: &Io<'_>, x: &[T], y: &mut [T], by: Statistics<'_, T>, activation: Activation) {
    let c = by.means.len();
    let w = span(c);
    let [mean, scale, shift] = scratch::<T, 3>(io, w);
    widen(by.means, mean);
    by.factors(scale, shift);
    repeat(scale, c);
    repeat(shift, c);
    let limits = activation.limits().unwrap_or([f32::NEG_INFINITY, f32::INFINITY]).map(|limit| T::of(limit.into()));
    for (y, x) in y.chunks_mut(w).zip(x.chunks(w)) {
        let per_column = mean.iter().zip(scale.iter()).zip(shift.iter());
        for ((y, &x), ((&mean, &scale), &shift)) in y.iter_mut().zip(x).zip(per_column) {
            *y = within((x - mean) * scale + shift, limits);
        }
    }
}

impl<T: Real> Kernel for TrainForward<T> {
    fn phases(&self) -> Vec<usize> {
        match (self.measured, self.m.chunks()) {
            (Some(_), chunks) if chunks > 1 => vec![self.combiners(), chunks],
            _ => self.m.phases(),
        }
    }

    fn workspace(&self) -> usize {
        if self.measured.is_some() { 0 } else { self.m.partials() }
    }

    fn scratch(&self) -> usize {
        (3 * span(self.m.c) * size_of::<T>()).max(2 * self.m.c * size_of::<f64>())
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || {
                for step in self.steps(phase) {
                    match step {
                        0 => self.measure(task, io),
                        1 => self.combine(task, io),
                        _ => self.normalise(task, io),
                    }
                }
            },
        );
    }

    fn flops(&self) -> u64 {
        8 * (self.m.rows * self.m.c) as u64
    }
}

/// Normalises by running statistics.
///
/// Inputs: x, running mean, running variance; if affine: weight, bias. Output: y.
pub struct EvalForward<T> {
    m: Matrix,
    eps: f64,
    activation: Activation,
    affine: bool,
    element: PhantomData<T>,
}

impl<T: Real> EvalForward<T> {
    /// Normalisation of `c` columns over `rows` rows; then the activation.
    pub fn new(rows: usize, c: usize, eps: f64, activation: Activation, affine: bool) -> Self {
        EvalForward { m: Matrix { rows, c }, eps, activation, affine, element: PhantomData }
    }
}

impl<T: Real> Kernel for EvalForward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.m.chunks()]
    }

    fn scratch(&self) -> usize {
        (3 * span(self.m.c) + self.m.c) * size_of::<T>()
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let m = &self.m;
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (x, means, variances, y) = unsafe {
            (
                &io.inputs[0].slice::<T>()[m.elements(task)],
                io.inputs[1].slice::<T>(),
                io.inputs[2].slice::<T>(),
                io.outputs[0].slice_mut::<T>(m.elements(task)),
            )
        };
        // SAFETY: nobody writes the inputs.
        let affine = self.affine.then(|| unsafe { (io.inputs[3].slice::<T>(), io.inputs[4].slice::<T>()) });
        let tail = 3 * span(m.c);
        // SAFETY: scratch belongs to this task; `apply` uses only what is before the tail.
        let devs = unsafe { io.scratch.slice_mut::<T>(tail..tail + m.c) };
        vectorized(
            #[inline(always)]
            || {
                inverse(variances, self.eps, devs);
                apply(io, x, y, Statistics { means, devs, affine }, self.activation);
            },
        );
    }

    fn flops(&self) -> u64 {
        3 * (self.m.rows * self.m.c) as u64
    }
}
