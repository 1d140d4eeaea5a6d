//! Convolution by its definition, for any float: for `f64`, and to test the fast kernels against.

use super::cpu::Geometry;
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::{Io, Kernel, Plain};
use num_traits::Float;
use std::marker::PhantomData;

/// The plain forward pass: inputs `x` (NHWC), `weight` (OIHW) and, when asked, a bias; output NHWC.
pub struct ForwardReference<T> {
    g: Geometry,
    bias: bool,
    activation: Activation,
    element: PhantomData<T>,
}

/// The plain gradient for the input: inputs `dy` (NHWC) and `weight` (OIHW); output NHWC.
pub struct InputGradReference<T> {
    g: Geometry,
    element: PhantomData<T>,
}

/// The plain gradient for the weights: inputs `x` and `dy` (NHWC); outputs OIHW and, when asked,
/// the bias's.
pub struct WeightGradReference<T> {
    g: Geometry,
    with_bias: bool,
    element: PhantomData<T>,
}

impl<T> ForwardReference<T> {
    /// Takes the same arguments as [`super::cpu::Forward::new`].
    pub fn new(g: Geometry, bias: bool, activation: Activation) -> Self {
        ForwardReference { g, bias, activation, element: PhantomData }
    }
}

impl<T> InputGradReference<T> {
    /// Takes the same arguments as [`super::cpu::InputGrad::new`].
    pub fn new(g: Geometry) -> Self {
        InputGradReference { g, element: PhantomData }
    }
}

impl<T> WeightGradReference<T> {
    /// Takes the same arguments as [`super::cpu::WeightGrad::new`].
    pub fn new(g: Geometry, with_bias: bool) -> Self {
        WeightGradReference { g, with_bias, element: PhantomData }
    }
}

/// The input coordinate that meets output `out` at filter value `tap`, unless it is padding.
fn under(out: usize, tap: usize, axis: usize, size: usize, g: &Geometry) -> Option<usize> {
    let at = out * g.stride[axis] + tap * g.dilation[axis];
    at.checked_sub(g.padding[axis]).filter(|&at| at < size)
}

/// Calls `f(input pixel, output pixel, filter value)` for all that meet in one image.
fn meetings(g: &Geometry, mut f: impl FnMut(usize, usize, usize)) {
    for oh in 0..g.oh() {
        for r in 0..g.r {
            let Some(h) = under(oh, r, 0, g.h, g) else { continue };
            for ow in 0..g.ow() {
                for s in 0..g.s {
                    let Some(w) = under(ow, s, 1, g.w, g) else { continue };
                    f(h * g.w + w, oh * g.ow() + ow, r * g.s + s);
                }
            }
        }
    }
}

/// Calls `f(input channel, output channel, start of the filter in the weights)` for all that meet.
fn channels(g: &Geometry, mut f: impl FnMut(usize, usize, usize)) {
    let (group_c, group_k) = (g.c / g.groups, g.k / g.groups);
    for k in 0..g.k {
        for c in 0..group_c {
            f(k / group_k * group_c + c, k, (k * group_c + c) * g.r * g.s);
        }
    }
}

impl<T: Float + Plain> Kernel for ForwardReference<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.g.n]
    }

    fn run(&self, _: usize, image: usize, io: &Io<'_>) {
        let g = &self.g;
        let pixels = g.oh() * g.ow();
        // SAFETY: no task writes an input.
        let (x, weight) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        let x = &x[image * g.h * g.w * g.c..];
        // SAFETY: each image of the result belongs to one task.
        let y = unsafe { io.outputs[0].slice_mut::<T>(image * pixels * g.k..(image + 1) * pixels * g.k) };
        y.fill(T::zero());
        meetings(g, |from, to, tap| {
            channels(g, |c, k, filter| {
                y[to * g.k + k] = y[to * g.k + k] + x[from * g.c + c] * weight[filter + tap];
            });
        });
        for (i, y) in y.iter_mut().enumerate() {
            // SAFETY: as above.
            let bias = if self.bias { unsafe { io.inputs[2].slice::<T>()[i % g.k] } } else { T::zero() };
            *y = self.activation.apply(*y + bias);
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}

impl<T: Float + Plain> Kernel for InputGradReference<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.g.n]
    }

    fn run(&self, _: usize, image: usize, io: &Io<'_>) {
        let g = &self.g;
        let size = g.h * g.w * g.c;
        // SAFETY: no task writes an input.
        let (dy, weight) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        let dy = &dy[image * g.oh() * g.ow() * g.k..];
        // SAFETY: each image of the result belongs to one task.
        let dx = unsafe { io.outputs[0].slice_mut::<T>(image * size..(image + 1) * size) };
        dx.fill(T::zero());
        meetings(g, |to, from, tap| {
            channels(g, |c, k, filter| {
                dx[to * g.c + c] = dx[to * g.c + c] + dy[from * g.k + k] * weight[filter + tap];
            });
        });
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}

impl<T: Float + Plain> Kernel for WeightGradReference<T> {
    fn phases(&self) -> Vec<usize> {
        vec![1]
    }

    fn run(&self, _: usize, _: usize, io: &Io<'_>) {
        let g = &self.g;
        let pixels = g.oh() * g.ow();
        // SAFETY: no task writes an input.
        let (x, dy) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        // SAFETY: there is one task.
        let dw = unsafe { io.outputs[0].slice_mut::<T>(0..io.outputs[0].len::<T>()) };
        dw.fill(T::zero());
        for image in 0..g.n {
            let (x, dy) = (&x[image * g.h * g.w * g.c..], &dy[image * pixels * g.k..]);
            meetings(g, |xp, yp, tap| {
                channels(g, |c, k, filter| {
                    dw[filter + tap] = dw[filter + tap] + x[xp * g.c + c] * dy[yp * g.k + k];
                });
            });
        }
        if self.with_bias {
            // SAFETY: there is one task.
            let db = unsafe { io.outputs[1].slice_mut::<T>(0..g.k) };
            db.fill(T::zero());
            for (i, &v) in dy[..g.n * pixels * g.k].iter().enumerate() {
                db[i % g.k] = db[i % g.k] + v;
            }
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
