//! Batch normalisation: the gradients.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Matrix, inverse, repeat, scratch};
use crate::cpu::columns::{span, two_sums, widen};
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::{Buf, Io, Kernel, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;

/// The two sums that every gradient needs: of dy, and of dy times the deviation of x.
#[inline(always)]
fn gradient_sums<T: Real>(m: &Matrix, io: &Io<'_>, task: usize, means: &[T], dy: &[T], x: &[T]) {
    let [mean, first, second] = scratch::<T, 3>(io, span(m.c));
    widen(means, mean);
    first.fill(T::zero());
    second.fill(T::zero());
    two_sums([dy, x], mean, first, second, |[dy, x], mean| (dy, dy * (x - mean)));
    m.put(io, task, first, second);
}

/// The activation's gradient, into the place of dx, from where both sweeps then take it: y is read once.
#[inline(always)]
pub(super) fn mask<T: Real>(dx: &mut [T], dy: &[T], y: &[T], most: Option<T>) {
    // As large as what is no number is none: relu has no greatest value, and lets infinity through.
    let most = most.unwrap_or(T::nan());
    for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
        *dx = if (y <= T::zero()) | (y >= most) { T::zero() } else { dy };
    }
}

/// The gradient of [`TrainForward`].
///
/// Inputs: dy, x, mean, inverse deviation; if affine: weight; with an activation: y.
/// Outputs: dx; if affine: dweight, dbias.
pub struct TrainBackward<T> {
    pub(crate) m: Matrix,
    affine: bool,
    activation: Activation,
    element: PhantomData<T>,
}

impl<T: Real> TrainBackward<T> {
    /// The gradient of the normalisation of the same shape and settings.
    pub fn new(rows: usize, c: usize, affine: bool, activation: Activation) -> Self {
        TrainBackward { m: Matrix { rows, c }, affine, activation, element: PhantomData }
    }

    /// Where the workspace holds the per-channel factors of the last sweep.
    pub(crate) fn factors(&self, io: &Io<'_>) -> Buf {
        let bytes = 3 * self.m.c * size_of::<T>();
        io.workspace.part::<u8>(self.m.partials(), bytes)
    }

    #[inline(always)]
    pub(crate) fn combine(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        let channels = share(m.c, m.combiners(), task);
        let [sum, dot] = scratch::<f64, 2>(io, channels.len());
        m.totals(io, &channels, sum, dot);
        // SAFETY: nobody writes the inputs.
        let devs = unsafe { io.inputs[3].slice::<T>() };
        // SAFETY: as above.
        let weight = self.affine.then(|| unsafe { io.inputs[4].slice::<T>() });
        let factors = self.factors(io);
        // SAFETY: each task has its own channels.
        let [average, slope, scale] =
            [0, 1, 2].map(|k| unsafe { factors.slice_mut::<T>(k * m.c + channels.start..k * m.c + channels.end) });
        let rows = m.rows.max(1) as f64;
        for (i, j) in channels.clone().enumerate() {
            let dev = devs[j].wide();
            average[i] = T::of(sum[i] / rows);
            slope[i] = T::of(dot[i] * dev * dev / rows);
            scale[i] = T::of(dev * weight.map_or(1.0, |w| w[j].wide()));
        }
        if self.affine {
            write_affine(io, &channels, sum, dot, devs);
        }
    }

    #[inline(always)]
    fn measure(&self, task: usize, io: &Io<'_>, dy: &[T], x: &[T], dx: &mut [T]) {
        // SAFETY: nobody writes the inputs.
        let means = unsafe { io.inputs[2].slice::<T>() };
        let dy = if let Some([_, most]) = self.activation.limits() {
            let y = io.inputs[if self.affine { 5 } else { 4 }];
            let most = most.is_finite().then(|| T::of(most.into()));
            // SAFETY: as above.
            mask(dx, dy, unsafe { &y.slice::<T>()[self.m.elements(task)] }, most);
            dx
        } else {
            dy
        };
        gradient_sums(&self.m, io, task, means, dy, x);
    }

    #[inline(always)]
    fn spread(&self, io: &Io<'_>, dy: &[T], x: &[T], dx: &mut [T]) {
        let c = self.m.c;
        let w = span(c);
        let factors = self.factors(io);
        // SAFETY: factors were written in an earlier phase; nobody writes the inputs.
        let (factors, means) = unsafe { (factors.slice::<T>(), io.inputs[2].slice::<T>()) };
        let [mean, average, slope, scale] = scratch::<T, 4>(io, w);
        widen(means, mean);
        widen(&factors[..c], average);
        widen(&factors[c..2 * c], slope);
        widen(&factors[2 * c..], scale);
        for (k, dx) in dx.chunks_mut(w).enumerate() {
            let n = dx.len();
            // Slices of one length, so that the loops need no bounds checks.
            let (dy, x) = (&dy[k * w..][..n], &x[k * w..][..n]);
            let [mean, average, slope, scale] = [&*mean, &*average, &*slope, &*scale].map(|v| &v[..n]);
            let place = |dy: T, j: usize| (dy - average[j] - (x[j] - mean[j]) * slope[j]) * scale[j];
            if self.activation != Activation::None {
                (0..n).for_each(|j| dx[j] = place(dx[j], j));
            } else {
                (0..n).for_each(|j| dx[j] = place(dy[j], j));
            }
        }
    }
}

/// Writes dweight and dbias for `channels`.
#[inline(always)]
fn write_affine<T: Real>(io: &Io<'_>, channels: &Range<usize>, sum: &[f64], dot: &[f64], devs: &[T]) {
    // SAFETY: each task has its own channels.
    let (dweight, dbias) =
        unsafe { (io.outputs[1].slice_mut::<T>(channels.clone()), io.outputs[2].slice_mut::<T>(channels.clone())) };
    for (i, j) in channels.clone().enumerate() {
        dweight[i] = T::of(dot[i] * devs[j].wide());
        dbias[i] = T::of(sum[i]);
    }
}

impl<T: Real> Kernel for TrainBackward<T> {
    fn phases(&self) -> Vec<usize> {
        self.m.phases()
    }

    fn workspace(&self) -> usize {
        self.m.partials() + 3 * self.m.c * size_of::<T>()
    }

    fn scratch(&self) -> usize {
        (4 * span(self.m.c) * size_of::<T>()).max(2 * self.m.c * size_of::<f64>())
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        let m = &self.m;
        for step in m.steps(phase) {
            if step == 1 {
                self.combine(task, io);
                continue;
            }
            let elements = m.elements(task);
            // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
            let (dy, x, dx) = unsafe {
                (
                    &io.inputs[0].slice::<T>()[elements.clone()],
                    &io.inputs[1].slice::<T>()[elements.clone()],
                    io.outputs[0].slice_mut::<T>(elements),
                )
            };
            vectorized(
                #[inline(always)]
                || match step {
                    0 => self.measure(task, io, dy, x, dx),
                    _ => self.spread(io, dy, x, dx),
                },
            );
        }
    }

    fn flops(&self) -> u64 {
        9 * (self.m.rows * self.m.c) as u64
    }
}

/// The gradient of [`EvalForward`].
///
/// Inputs: dy, x, running mean, running variance; if affine: weight; if relu: y.
/// Outputs: dx; if affine: dweight, dbias.
pub struct EvalBackward<T> {
    m: Matrix,
    eps: f64,
    affine: bool,
    relu: bool,
    element: PhantomData<T>,
}

impl<T: Real> EvalBackward<T> {
    /// The gradient of the normalisation of the same shape and settings.
    pub fn new(rows: usize, c: usize, eps: f64, affine: bool, relu: bool) -> Self {
        EvalBackward { m: Matrix { rows, c }, eps, affine, relu, element: PhantomData }
    }

    #[inline(always)]
    fn sweep(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        let elements = m.elements(task);
        // SAFETY: nobody writes the inputs; the ranges of different tasks do not overlap.
        let (dy, x, means, variances, dx) = unsafe {
            (
                &io.inputs[0].slice::<T>()[elements.clone()],
                &io.inputs[1].slice::<T>()[elements.clone()],
                io.inputs[2].slice::<T>(),
                io.inputs[3].slice::<T>(),
                io.outputs[0].slice_mut::<T>(elements.clone()),
            )
        };
        if self.relu {
            let y = io.inputs[if self.affine { 5 } else { 4 }];
            // SAFETY: as above.
            mask(dx, dy, unsafe { &y.slice::<T>()[elements] }, None);
        } else {
            dx.copy_from_slice(dy);
        }
        if self.affine {
            gradient_sums(m, io, task, means, dx, x);
        }
        let [scale] = scratch::<T, 1>(io, span(m.c));
        inverse(variances, self.eps, scale);
        if self.affine {
            // SAFETY: nobody writes the inputs.
            for (s, w) in scale.iter_mut().zip(unsafe { io.inputs[4].slice::<T>() }) {
                *s = *s * *w;
            }
        }
        repeat(scale, m.c);
        for dx in dx.chunks_mut(scale.len()) {
            for (dx, &scale) in dx.iter_mut().zip(scale.iter()) {
                *dx = *dx * scale;
            }
        }
    }

    #[inline(always)]
    fn combine(&self, task: usize, io: &Io<'_>) {
        let m = &self.m;
        let channels = share(m.c, m.combiners(), task);
        // SAFETY: nobody writes the inputs.
        let variances = unsafe { io.inputs[3].slice::<T>() };
        let [sum, dot] = scratch::<f64, 2>(io, channels.len());
        m.totals(io, &channels, sum, dot);
        let at = 2 * m.c * size_of::<f64>() / size_of::<T>();
        // SAFETY: scratch belongs to this task, and the sums end before `at`.
        let devs = unsafe { io.scratch.slice_mut::<T>(at..at + m.c) };
        inverse(variances, self.eps, devs);
        write_affine(io, &channels, sum, dot, devs);
    }
}

impl<T: Real> Kernel for EvalBackward<T> {
    fn phases(&self) -> Vec<usize> {
        match (self.affine, self.m.chunks()) {
            (true, chunks) if chunks > 1 => vec![chunks, self.m.combiners()],
            (_, chunks) => vec![chunks],
        }
    }

    fn workspace(&self) -> usize {
        if self.affine { self.m.partials() } else { 0 }
    }

    fn scratch(&self) -> usize {
        let sums = self.m.c * (2 * size_of::<f64>() + size_of::<T>());
        (3 * span(self.m.c) * size_of::<T>()).max(sums)
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || {
                if phase == 0 {
                    self.sweep(task, io);
                }
                if phase == 1 || self.affine && self.m.chunks() == 1 {
                    self.combine(task, io);
                }
            },
        );
    }

    fn flops(&self) -> u64 {
        5 * (self.m.rows * self.m.c) as u64
    }
}
