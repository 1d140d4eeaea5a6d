//! RMSprop over all parameters of a model at once, on CPU cores.

use std::marker::PhantomData;

use crate::cpu::kernel::{Io, Kernel};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::ops::adam_step::cpu::lerp;
use crate::ops::sweep::{Sweep, scalars, update};

/// What the code of a step depends on; the numbers are inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether the gradient is divided by its deviation instead of its root mean square.
    pub centered: bool,
    /// Whether there is a momentum buffer.
    pub momentum: bool,
    /// Whether the loss is to grow.
    pub maximize: bool,
}

/// One step.
///
/// Inputs, for each parameter: parameter, gradient, mean square; if centered: mean gradient; with
/// momentum: its buffer; at the end `f64` scalars: learning rate, alpha, epsilon, weight decay, momentum.
/// Outputs, for each parameter: parameter and the state, in that order; they may be the inputs' memory.
pub struct Step<T> {
    sweep: Sweep,
    options: Options,
    element: PhantomData<T>,
}

impl<T: Real> Step<T> {
    /// A step for parameters of these sizes.
    pub fn new(sizes: &[usize], options: Options) -> Self {
        Step { sweep: Sweep::new(sizes), options, element: PhantomData }
    }
}

impl<T: Real> Kernel for Step<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.sweep.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let Options { centered, momentum, maximize } = self.options;
        let [lr, alpha, eps, decay, rate] = scalars(io);
        let sign = T::of(if maximize { -1.0 } else { 1.0 });
        let [lr, keep, add, eps, decay, rate] = [lr, alpha, 1.0 - alpha, eps, decay, rate].map(T::of);
        let square = |p: T, g: T, v: T| {
            let g = sign * g + decay * p;
            (g, keep * v + add * (g * g))
        };
        let mean = |m: T, g: T| lerp(m, g, add, keep);
        let ratio = |g: T, v: T| g / (v.sqrt() + eps);
        let states = 1 + usize::from(centered) + usize::from(momentum);
        vectorized(
            #[inline(always)]
            || {
                self.sweep.pieces(
                    task,
                    #[inline(always)]
                    |i, range| {
                        let inputs = &io.inputs[(2 + states) * i..];
                        let outputs = &io.outputs[(1 + states) * i..];
                        match (centered, momentum) {
                            (false, false) => update(inputs, outputs, range, |[p, g, v]: [T; 3]| {
                                let (g, v) = square(p, g, v);
                                [p - lr * ratio(g, v), v]
                            }),
                            (false, true) => update(inputs, outputs, range, |[p, g, v, b]: [T; 4]| {
                                let (g, v) = square(p, g, v);
                                let b = rate * b + ratio(g, v);
                                [p - lr * b, v, b]
                            }),
                            (true, false) => update(inputs, outputs, range, |[p, g, v, m]: [T; 4]| {
                                let (g, v) = square(p, g, v);
                                let m = mean(m, g);
                                [p - lr * ratio(g, v - m * m), v, m]
                            }),
                            (true, true) => update(inputs, outputs, range, |[p, g, v, m, b]: [T; 5]| {
                                let (g, v) = square(p, g, v);
                                let m = mean(m, g);
                                let b = rate * b + ratio(g, v - m * m);
                                [p - lr * b, v, m, b]
                            }),
                        }
                    },
                );
            },
        );
    }

    fn flops(&self) -> u64 {
        12 * self.sweep.total() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::sweep::tests::{SIZES, compare};

    fn check<T: Real>(options: Options, decay: f64, tolerance: f64) {
        let (centered, momentum) = (options.centered, options.momentum);
        compare::<T>(
            &Step::<T>::new(&SIZES, options),
            1 + usize::from(centered) + usize::from(momentum),
            |step| vec![0.01 / step as f64, 0.9, 1e-3, decay, 0.8],
            |p, g, s| {
                let g = if options.maximize { -g } else { g } + s[3] * p[0];
                p[1] = s[1] * p[1] + (1.0 - s[1]) * g * g;
                let mut v = p[1];
                if centered {
                    p[2] = s[1] * p[2] + (1.0 - s[1]) * g;
                    v -= p[2] * p[2];
                }
                let mut move_by = g / (v.sqrt() + s[2]);
                if momentum {
                    let buffer = p.last_mut().unwrap();
                    *buffer = s[4] * *buffer + move_by;
                    move_by = *buffer;
                }
                p[0] -= s[0] * move_by;
            },
            tolerance,
        );
    }

    #[test]
    fn agrees_with_the_formulas() {
        for centered in [false, true] {
            for momentum in [false, true] {
                for (maximize, decay) in [(false, 0.0), (true, 0.01)] {
                    let options = Options { centered, momentum, maximize };
                    check::<f32>(options, decay, 1e-5);
                    check::<f64>(options, decay, 1e-12);
                }
            }
        }
    }
}
