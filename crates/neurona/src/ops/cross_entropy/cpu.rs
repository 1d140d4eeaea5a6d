//! Cross-entropy of logits with class numbers, on CPU cores.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::math::{Real, max, sum};
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::ops::softmax::cpu::{max_and_sum, tile_bytes};

/// What becomes of the losses of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// They are the result.
    None,
    /// Their mean over the rows that are not ignored.
    Mean,
    /// Their sum.
    Sum,
}

/// What both kernels are made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
    /// The share of the target that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// Rows with this target count for nothing.
    pub ignore_index: Option<i64>,
}

/// A row's target, once looked at.
enum Target {
    Class(usize),
    Ignored,
    /// Out of range: the row gives NaN. The caller reports it.
    Invalid,
}

impl Options {
    #[inline(always)]
    fn target(&self, target: i64, classes: usize) -> Target {
        if self.ignore_index == Some(target) {
            return Target::Ignored;
        }
        match usize::try_from(target) {
            Ok(class) if class < classes => Target::Class(class),
            _ => Target::Invalid,
        }
    }

    #[inline(always)]
    fn counted(&self, targets: &[i64]) -> usize {
        targets.iter().filter(|t| self.ignore_index != Some(**t)).count()
    }
}

/// The loss, and for each row the logarithm of the sum of exponentials above the row's maximum, which the
/// gradient needs. Without the maximum: next to large logits the logarithm would lose its digits.
///
/// Inputs: logits `[rows, classes]`, targets `i64 [rows]`.
/// Outputs: loss (one element, or `[rows]` with [`Reduction::None`]), logarithms `[rows]`.
pub struct Forward<T> {
    rows: usize,
    classes: usize,
    options: Options,
    element: PhantomData<T>,
}

impl<T: Real> Forward<T> {
    /// Over `rows` rows of `classes` logits.
    pub fn new(rows: usize, classes: usize, options: Options) -> Self {
        Forward { rows, classes, options, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.rows * self.classes)
    }

    /// Computes the rows; returns the sum of their losses.
    #[inline(always)]
    fn rows(&self, rows: Range<usize>, io: &Io<'_>) -> f64 {
        let n = self.classes;
        // SAFETY: nobody writes the inputs; scratch is this task's, as is its range of rows.
        let (x, targets, logs, scratch) = unsafe {
            (
                &io.inputs[0].slice::<T>()[rows.start * n..rows.end * n],
                &io.inputs[1].slice::<i64>()[rows.clone()],
                io.outputs[1].slice_mut::<T>(rows.clone()),
                io.scratch.slice_mut::<T>(0..tile_bytes::<T>() / size_of::<T>()),
            )
        };
        let mut losses = match self.options.reduction {
            // SAFETY: each task has its own rows.
            Reduction::None => Some(unsafe { io.outputs[0].slice_mut::<T>(rows) }),
            _ => None,
        };
        let smooth = self.options.label_smoothing;
        let mut total = 0.0;
        max_and_sum(x, n, scratch, |i, top, exps, _| {
            let log = exps.ln();
            logs[i] = log;
            let loss = match self.options.target(targets[i], n) {
                Target::Ignored => T::zero(),
                Target::Invalid => T::nan(),
                Target::Class(class) => {
                    let row = &x[i * n..][..n];
                    let hit = log + (top - row[class]);
                    if smooth == 0.0 {
                        hit
                    } else {
                        let even = log + (top - sum(row) / T::of(n as f64));
                        T::of(1.0 - smooth) * hit + T::of(smooth) * even
                    }
                }
            };
            total += loss.wide();
            if let Some(losses) = &mut losses {
                losses[i] = loss;
            }
        });
        total
    }

    /// Writes the loss from the sum of all rows' losses.
    #[inline(always)]
    fn finish(&self, io: &Io<'_>, total: f64) {
        // SAFETY: nobody writes the targets.
        let targets = unsafe { io.inputs[1].slice::<i64>() };
        let value = match self.options.reduction {
            Reduction::Mean => total / self.options.counted(&targets[..self.rows]) as f64,
            _ => total,
        };
        // SAFETY: only this task writes the loss.
        unsafe { io.outputs[0].slice_mut::<T>(0..1)[0] = T::of(value) };
    }
}

impl<T: Real> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        match (self.options.reduction, self.tasks()) {
            (Reduction::None, tasks) => vec![tasks],
            (_, 1) => vec![1],
            (_, tasks) => vec![tasks, 1],
        }
    }

    fn workspace(&self) -> usize {
        self.tasks() * size_of::<f64>()
    }

    fn scratch(&self) -> usize {
        tile_bytes::<T>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        let tasks = self.tasks();
        if phase == 1 {
            // SAFETY: partial sums were written in the earlier phase.
            let totals = unsafe { io.workspace.slice::<f64>() };
            return self.finish(io, totals[..tasks].iter().sum());
        }
        let rows = share(self.rows, tasks, task);
        let total = vectorized(
            #[inline(always)]
            || self.rows(rows, io),
        );
        match (self.options.reduction, tasks) {
            (Reduction::None, _) => {}
            (_, 1) => self.finish(io, total),
            // SAFETY: each task has its own partial sum.
            _ => unsafe { io.workspace.slice_mut::<f64>(task..task + 1)[0] = total },
        }
    }

    fn flops(&self) -> u64 {
        20 * (self.rows * self.classes) as u64
    }
}

/// The gradient of [`Forward`].
///
/// Inputs: logits `[rows, classes]`, logarithms `[rows]`, targets `i64 [rows]`, dloss (one
/// element, or `[rows]` with [`Reduction::None`]). Output: dlogits `[rows, classes]`.
pub struct Backward<T> {
    rows: usize,
    classes: usize,
    options: Options,
    element: PhantomData<T>,
}

impl<T: Real> Backward<T> {
    /// The gradient of the loss of the same shape and options.
    pub fn new(rows: usize, classes: usize, options: Options) -> Self {
        Backward { rows, classes, options, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.rows * self.classes)
    }

    /// Whether the rows must be counted before the tasks can start.
    fn counts(&self) -> bool {
        self.options.reduction == Reduction::Mean && self.options.ignore_index.is_some() && self.tasks() > 1
    }

    #[inline(always)]
    fn rows(&self, rows: Range<usize>, counted: f64, io: &Io<'_>) {
        let n = self.classes;
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (x, logs, targets, dloss, dx) = unsafe {
            (
                &io.inputs[0].slice::<T>()[rows.start * n..rows.end * n],
                &io.inputs[1].slice::<T>()[rows.clone()],
                &io.inputs[2].slice::<i64>()[rows.clone()],
                io.inputs[3].slice::<T>(),
                io.outputs[0].slice_mut::<T>(rows.start * n..rows.end * n),
            )
        };
        if n == 0 {
            return;
        }
        let start = rows.start;
        let smooth = self.options.label_smoothing;
        let (even, hit) = (T::of(smooth / n as f64), T::of(1.0 - smooth));
        // Exponentials over many short rows at once, as in softmax.
        let tile = (2048 / n).max(1);
        for (k, dx) in dx.chunks_mut(tile * n).enumerate() {
            let first = k * tile;
            let rows = dx.chunks_exact_mut(n).zip(x[first * n..].chunks_exact(n));
            for ((dx, x), &log) in rows.zip(&logs[first..]) {
                let top = max(x);
                for (dx, &x) in dx.iter_mut().zip(x) {
                    *dx = (x - top) - log;
                }
            }
            for dx in dx.iter_mut() {
                *dx = dx.vexp() - even;
            }
            for (i, dx) in dx.chunks_exact_mut(n).enumerate() {
                let i = first + i;
                let scale = match self.options.reduction {
                    Reduction::None => dloss[start + i],
                    Reduction::Sum => dloss[0],
                    Reduction::Mean => T::of(dloss[0].wide() / counted),
                };
                let scale = match self.options.target(targets[i], n) {
                    Target::Class(class) => {
                        dx[class] = dx[class] - hit;
                        scale
                    }
                    Target::Ignored => {
                        dx.fill(T::zero());
                        continue;
                    }
                    Target::Invalid => T::nan(),
                };
                for dx in dx {
                    *dx = *dx * scale;
                }
            }
        }
    }
}

impl<T: Real> Kernel for Backward<T> {
    fn phases(&self) -> Vec<usize> {
        match self.counts() {
            true => vec![1, self.tasks()],
            false => vec![self.tasks()],
        }
    }

    fn workspace(&self) -> usize {
        if self.counts() { size_of::<f64>() } else { 0 }
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        // SAFETY: nobody writes the targets.
        let targets = unsafe { &io.inputs[2].slice::<i64>()[..self.rows] };
        let counted = match (self.counts(), phase) {
            (true, 0) => {
                let count = self.options.counted(targets) as f64;
                // SAFETY: the only task of its phase.
                unsafe { io.workspace.slice_mut::<f64>(0..1)[0] = count };
                return;
            }
            // SAFETY: written in the earlier phase.
            (true, _) => unsafe { io.workspace.slice::<f64>()[0] },
            (false, _) if self.options.ignore_index.is_some() && self.tasks() == 1 => {
                self.options.counted(targets) as f64
            }
            (false, _) => self.rows as f64,
        };
        let rows = share(self.rows, self.tasks(), task);
        vectorized(
            #[inline(always)]
            || self.rows(rows, counted, io),
        );
    }

    fn flops(&self) -> u64 {
        20 * (self.rows * self.classes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, close, run, slopes};

    fn plain(x: &[f64], targets: &[i64], n: usize, o: Options) -> Vec<f64> {
        let mut losses = vec![];
        let mut counted = 0.0;
        for (row, &target) in x.chunks(n).zip(targets) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = top + row.iter().map(|v| (v - top).exp()).sum::<f64>().ln();
            if o.ignore_index == Some(target) {
                losses.push(0.0);
                continue;
            }
            counted += 1.0;
            if !(0..n as i64).contains(&target) {
                losses.push(f64::NAN);
                continue;
            }
            let even = row.iter().map(|v| lse - v).sum::<f64>() / n as f64;
            let hit = lse - row[target as usize];
            losses.push((1.0 - o.label_smoothing) * hit + o.label_smoothing * even);
        }
        match o.reduction {
            Reduction::None => losses,
            Reduction::Sum => vec![losses.iter().sum()],
            Reduction::Mean => vec![losses.iter().sum::<f64>() / counted],
        }
    }

    fn forward<T: Real>(x: &[T], targets: &[i64], n: usize, o: Options) -> (Vec<T>, Vec<T>) {
        let rows = targets.len();
        let (mut x, mut targets) = (x.to_vec(), targets.to_vec());
        let size = if o.reduction == Reduction::None { rows } else { 1 };
        let (mut loss, mut logs) = (vec![T::nan(); size], vec![T::nan(); rows]);
        run(
            &Forward::<T>::new(rows, n, o),
            &[Buf::over(&mut x), Buf::over(&mut targets)],
            &[Buf::over(&mut loss), Buf::over(&mut logs)],
        );
        (loss, logs)
    }

    fn backward(x: &[f64], logs: &[f64], t: &[i64], dloss: &[f64], o: Options) -> Vec<f64> {
        let (mut x, mut logs, mut t) = (x.to_vec(), logs.to_vec(), t.to_vec());
        let (mut dloss, mut dx) = (dloss.to_vec(), vec![f64::NAN; x.len()]);
        run(
            &Backward::<f64>::new(t.len(), x.len().checked_div(t.len()).unwrap_or(4), o),
            &[Buf::over(&mut x), Buf::over(&mut logs), Buf::over(&mut t), Buf::over(&mut dloss)],
            &[Buf::over(&mut dx)],
        );
        dx
    }

    #[test]
    fn agrees_with_plain_loops_and_slopes() {
        let mut rng = Rng(13);
        for (rows, n) in [(0, 4), (1, 1), (128, 10), (3, 100), (6000, 10), (5, 3000), (40, 1000)] {
            for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
                for (label_smoothing, ignore_index) in [(0.0, None), (0.1, Some(0)), (0.3, Some(-100))] {
                    let o = Options { reduction, label_smoothing, ignore_index };
                    let mut t: Vec<i64> = (0..rows).map(|_| rng.below(n) as i64).collect();
                    if ignore_index == Some(-100) && rows > 2 {
                        t[1] = -100;
                    }
                    let x: Vec<f64> = rng.vec(rows * n);
                    let narrow: Vec<f32> = x.iter().map(|&v| v as f32).collect();
                    let want = plain(&x, &t, n, o);
                    let (loss, logs) = forward(&x, &t, n, o);
                    close(&loss, &want, 1e-12);
                    close(&forward(&narrow, &t, n, o).0, &want, 2e-6);

                    let dloss: Vec<f64> = rng.vec(loss.len());
                    let dx = backward(&x, &logs, &t, &dloss, o);
                    if want.iter().any(|v| v.is_nan()) {
                        continue;
                    }
                    slopes(&x, &dx, |x| {
                        let loss = plain(x, &t, n, o);
                        loss.iter().zip(&dloss).map(|(l, d)| l * d).sum()
                    });
                }
            }
        }
    }

    #[test]
    fn targets_out_of_range_give_nan_for_their_row() {
        let o = Options { reduction: Reduction::None, label_smoothing: 0.0, ignore_index: None };
        let (x, t) = ([0.0; 12], [1, 3, -1, i64::MAX]);
        let (loss, logs) = forward::<f64>(&x, &t, 3, o);
        assert!(loss[0].is_finite() && loss[1..].iter().all(|l| l.is_nan()));
        let dx = backward(&x, &logs, &t, &[1.0; 4], o);
        assert!(dx[..3].iter().all(|d| d.is_finite()) && dx[3..].iter().all(|d| d.is_nan()));
    }
}
