//! Convolution with one filter a channel: no matrix product, since nothing is summed over
//! channels. All three passes run along channels, which lie side by side.

use super::{Cut, Geometry};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::Io;
use crate::cpu::simd::vectorized;
use std::ops::Range;

/// Channels that are summed in registers at once.
const CHANNELS: usize = 32;

/// Which of the three passes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    Forward { bias: bool, scaled: bool, activation: Activation },
    InputGrad,
    WeightGrad { with_bias: bool },
}

/// A pass of a convolution whose groups are its channels.
pub(super) struct Depthwise {
    g: Geometry,
    pass: Pass,
    cut: Cut,
}

impl Depthwise {
    /// A pass, when the sizes are those of a depthwise convolution.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        if g.groups < 2 || g.groups != g.c || g.groups != g.k {
            return None;
        }
        let (rows, columns) = match pass {
            Pass::InputGrad => (g.h, g.w),
            _ => (g.oh(), g.ow()),
        };
        let cut = Cut::new(g.n, rows, columns, task_count(g.flops() as usize), super::PIXELS);
        Some(Depthwise { g, pass, cut })
    }

    /// Floats of one part's sums, or of all weights.
    fn weights(&self) -> usize {
        self.g.taps() * self.g.c
    }

    /// Parts of the pixels, one task each.
    pub fn parts(&self) -> usize {
        self.cut.parts()
    }

    /// The images and rows of a part.
    pub fn part(&self, part: usize) -> (Range<usize>, Range<usize>) {
        self.cut.part(part)
    }

    pub fn phases(&self) -> Vec<usize> {
        let parts = self.cut.parts();
        match self.pass {
            Pass::WeightGrad { .. } => vec![parts, 1],
            _ => vec![parts.min(1), parts],
        }
    }

    pub fn workspace(&self) -> usize {
        let floats = match self.pass {
            Pass::WeightGrad { .. } => self.cut.parts() * (self.weights() + self.g.c),
            _ => self.weights(),
        };
        floats * size_of::<f32>()
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        vectorized(
            #[inline(always)]
            || match (self.pass, phase) {
                (Pass::WeightGrad { with_bias }, 0) => self.weight_grad(task, with_bias, io),
                (Pass::WeightGrad { with_bias }, _) => self.reduce(with_bias, io),
                (_, 0) => self.turn(io),
                (Pass::Forward { bias, activation, .. }, _) => self.forward(task, bias, activation, io),
                (Pass::InputGrad, _) => self.input_grad(task, io),
            },
        );
    }

    /// Turns the filters into `[r][s][c]`.
    #[inline(always)]
    fn turn(&self, io: &Io<'_>) {
        let (taps, c) = (self.g.taps(), self.g.c);
        // SAFETY: no task writes an input; there is one task in this phase.
        let (weight, out) = unsafe { (io.inputs[1].slice::<f32>(), io.workspace.slice_mut::<f32>(0..taps * c)) };
        for (tap, out) in out.chunks_exact_mut(c).enumerate() {
            for (channel, x) in out.iter_mut().enumerate() {
                *x = weight[channel * taps + tap];
            }
            if let Pass::Forward { scaled: true, .. } = self.pass {
                // SAFETY: no task writes an input.
                let scale = unsafe { io.inputs[3].slice::<f32>() };
                out.iter_mut().zip(scale).for_each(|(x, scale)| *x *= scale);
            }
        }
    }

    #[inline(always)]
    fn forward(&self, task: usize, bias: bool, activation: Activation, io: &Io<'_>) {
        let g = &self.g;
        let (images, rows) = self.cut.part(task);
        // SAFETY: no task writes an input, nor the workspace in this phase.
        let (x, weight) = unsafe { (io.inputs[0].slice::<f32>(), io.workspace.slice::<f32>()) };
        // SAFETY: as above.
        let bias = bias.then(|| unsafe { io.inputs[2].slice::<f32>() });
        for image in images {
            let x = &x[image * g.h * g.w * g.c..][..g.h * g.w * g.c];
            for (oh, ow) in rows.clone().flat_map(|oh| (0..g.ow()).map(move |ow| (oh, ow))) {
                let at = ((image * g.oh() + oh) * g.ow() + ow) * g.c;
                // SAFETY: each pixel belongs to one task.
                let y = unsafe { io.outputs[0].slice_mut::<f32>(at..at + g.c) };
                for (block, y) in y.chunks_mut(CHANNELS).enumerate() {
                    let first = block * CHANNELS;
                    let mut sum = [0f32; CHANNELS];
                    if let Some(bias) = bias {
                        sum[..y.len()].copy_from_slice(&bias[first..][..y.len()]);
                    }
                    for r in 0..g.r {
                        let Some(h) = inside(oh, r, 0, g) else { continue };
                        for s in 0..g.s {
                            let Some(w) = inside(ow, s, 1, g) else { continue };
                            let from = (h * g.w + w) * g.c + first;
                            let filter = (r * g.s + s) * g.c + first;
                            multiply(&mut sum, &x[from..][..y.len()], &weight[filter..][..y.len()]);
                        }
                    }
                    y.iter_mut().zip(sum).for_each(|(y, sum)| *y = activation.apply(sum));
                }
            }
        }
    }

    #[inline(always)]
    fn input_grad(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let (images, rows) = self.cut.part(task);
        // SAFETY: no task writes an input, nor the workspace in this phase.
        let (dy, weight) = unsafe { (io.inputs[0].slice::<f32>(), io.workspace.slice::<f32>()) };
        for image in images {
            let dy = &dy[image * g.oh() * g.ow() * g.c..][..g.oh() * g.ow() * g.c];
            for (h, w) in rows.clone().flat_map(|h| (0..g.w).map(move |w| (h, w))) {
                let at = ((image * g.h + h) * g.w + w) * g.c;
                // SAFETY: each pixel belongs to one task.
                let dx = unsafe { io.outputs[0].slice_mut::<f32>(at..at + g.c) };
                for (block, dx) in dx.chunks_mut(CHANNELS).enumerate() {
                    let first = block * CHANNELS;
                    let mut sum = [0f32; CHANNELS];
                    for r in 0..g.r {
                        let Some(oh) = reached(h, r, 0, g, g.oh()) else { continue };
                        for s in 0..g.s {
                            let Some(ow) = reached(w, s, 1, g, g.ow()) else { continue };
                            let from = (oh * g.ow() + ow) * g.c + first;
                            let filter = (r * g.s + s) * g.c + first;
                            multiply(&mut sum, &dy[from..][..dx.len()], &weight[filter..][..dx.len()]);
                        }
                    }
                    dx.copy_from_slice(&sum[..dx.len()]);
                }
            }
        }
    }

    #[inline(always)]
    fn weight_grad(&self, task: usize, with_bias: bool, io: &Io<'_>) {
        let g = &self.g;
        let (images, rows) = self.cut.part(task);
        let size = self.weights() + g.c;
        // SAFETY: no task writes an input; each part's sums belong to one task.
        let (x, dy, out) = unsafe {
            (
                io.inputs[0].slice::<f32>(),
                io.inputs[1].slice::<f32>(),
                io.workspace.slice_mut::<f32>(task * size..(task + 1) * size),
            )
        };
        let (out, bias) = out.split_at_mut(self.weights());
        out.fill(0.0);
        bias.fill(0.0);
        let lines = images.flat_map(|image| rows.clone().map(move |oh| (image, oh)));
        for (image, oh) in lines {
            let dy = &dy[(image * g.oh() + oh) * g.ow() * g.c..][..g.ow() * g.c];
            if with_bias {
                for dy in dy.chunks_exact(g.c) {
                    bias.iter_mut().zip(dy).for_each(|(sum, v)| *sum += v);
                }
            }
            for (tap, out) in out.chunks_exact_mut(g.c).enumerate() {
                let Some(h) = inside(oh, tap / g.s, 0, g) else { continue };
                let x = &x[(image * g.h + h) * g.w * g.c..][..g.w * g.c];
                for (block, out) in out.chunks_mut(CHANNELS).enumerate() {
                    let first = block * CHANNELS;
                    let mut sum = [0f32; CHANNELS];
                    sum[..out.len()].copy_from_slice(out);
                    for ow in 0..g.ow() {
                        let Some(w) = inside(ow, tap % g.s, 1, g) else { continue };
                        let (x, dy) = (&x[w * g.c + first..], &dy[ow * g.c + first..]);
                        multiply(&mut sum, &x[..out.len()], &dy[..out.len()]);
                    }
                    out.copy_from_slice(&sum[..out.len()]);
                }
            }
        }
    }

    #[inline(always)]
    fn reduce(&self, with_bias: bool, io: &Io<'_>) {
        let (taps, c, parts) = (self.g.taps(), self.g.c, self.cut.parts());
        let size = self.weights() + c;
        // SAFETY: no task writes the workspace in this phase; there is one task.
        let (sums, dw) = unsafe { (io.workspace.slice::<f32>(), io.outputs[0].slice_mut::<f32>(0..taps * c)) };
        let total = |at: usize| (0..parts).map(|part| sums[part * size + at]).sum::<f32>();
        for (i, dw) in dw.iter_mut().enumerate() {
            *dw = total(i % taps * c + i / taps);
        }
        if with_bias {
            // SAFETY: as above.
            let db = unsafe { io.outputs[1].slice_mut::<f32>(0..c) };
            db.iter_mut().enumerate().for_each(|(i, db)| *db = total(taps * c + i));
        }
    }
}

/// The input coordinate under an output's filter value, unless it is padding.
#[inline(always)]
fn inside(out: usize, tap: usize, axis: usize, g: &Geometry) -> Option<usize> {
    let at = (out * g.stride[axis] + tap * g.dilation[axis]).checked_sub(g.padding[axis])?;
    (at < [g.h, g.w][axis]).then_some(at)
}

/// The output that reaches an input coordinate with a filter value, if one does.
#[inline(always)]
fn reached(at: usize, tap: usize, axis: usize, g: &Geometry, size: usize) -> Option<usize> {
    let at = (at + g.padding[axis]).checked_sub(tap * g.dilation[axis])?;
    let out = at / g.stride[axis];
    (out * g.stride[axis] == at && out < size).then_some(out)
}

/// `sum += a · b`; whole blocks have a length the compiler knows.
#[inline(always)]
fn multiply(sum: &mut [f32; CHANNELS], a: &[f32], b: &[f32]) {
    if let (Ok(a), Ok(b)) = (<&[f32; CHANNELS]>::try_from(a), <&[f32; CHANNELS]>::try_from(b)) {
        for i in 0..CHANNELS {
            sum[i] += a[i] * b[i];
        }
    } else {
        sum.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
}
