//! Adam and AdamW over all parameters of a model at once, on CPU cores.

use std::marker::PhantomData;

use crate::cpu::kernel::{Io, Kernel};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::ops::sweep::{Sweep, scalars, update};

/// What the code of a step depends on; the numbers are inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether the greatest second moment so far is used.
    pub amsgrad: bool,
    /// Whether weights decay by themselves (AdamW) instead of through the gradient.
    pub decoupled: bool,
    /// Whether the loss is to grow.
    pub maximize: bool,
}

/// One step.
///
/// Inputs, for each parameter: parameter, gradient, first moment, second moment and, with amsgrad,
/// the greatest second moment; at the end `f64` scalars: learning rate, beta 1, beta 2, epsilon,
/// weight decay, step (1 the first time).
/// Outputs, for each parameter: parameter and the moments, in that order; they may be the inputs' memory.
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

/// `from + weight * (to - from)`, from the end that is nearer, as PyTorch does.
#[inline(always)]
pub(crate) fn lerp<T: Real>(from: T, to: T, weight: T, rest: T) -> T {
    if weight < T::of(0.5) { from + weight * (to - from) } else { to - (to - from) * rest }
}

impl<T: Real> Kernel for Step<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.sweep.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let Options { amsgrad, decoupled, maximize } = self.options;
        let [lr, beta1, beta2, eps, decay, step] = scalars(io);
        let sign = T::of(if maximize { -1.0 } else { 1.0 });
        let shrink = T::of(if decoupled { 1.0 - lr * decay } else { 1.0 });
        let decay = T::of(if decoupled { 0.0 } else { decay });
        let size = T::of(lr / (1.0 - beta1.powf(step)));
        let correction = T::of((1.0 - beta2.powf(step)).sqrt());
        let (weight, rest) = (T::of(1.0 - beta1), T::of(beta1));
        let (keep, add, eps) = (T::of(beta2), T::of(1.0 - beta2), T::of(eps));
        let moments = |p: T, g: T, m: T, v: T| {
            let p = p * shrink;
            let g = sign * g + decay * p;
            (p, lerp(m, g, weight, rest), keep * v + add * (g * g))
        };
        let moved = |p: T, m: T, v: T| p - size * (m / (v.sqrt() / correction + eps));
        vectorized(
            #[inline(always)]
            || {
                self.sweep.pieces(
                    task,
                    #[inline(always)]
                    |i, range| {
                        if amsgrad {
                            let (inputs, outputs) = (&io.inputs[5 * i..], &io.outputs[4 * i..]);
                            update(inputs, outputs, range, |[p, g, m, v, top]: [T; 5]| {
                                let (p, m, v) = moments(p, g, m, v);
                                let top = if v > top { v } else { top };
                                [moved(p, m, top), m, v, top]
                            });
                        } else {
                            let (inputs, outputs) = (&io.inputs[4 * i..], &io.outputs[3 * i..]);
                            update(inputs, outputs, range, |[p, g, m, v]: [T; 4]| {
                                let (p, m, v) = moments(p, g, m, v);
                                [moved(p, m, v), m, v]
                            });
                        }
                    },
                );
            },
        );
    }

    fn flops(&self) -> u64 {
        14 * self.sweep.total() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::sweep::tests::{SIZES, compare};

    fn check<T: Real>(options: Options, decay: f64, tolerance: f64) {
        compare::<T>(
            &Step::<T>::new(&SIZES, options),
            2 + usize::from(options.amsgrad),
            |step| vec![0.01, 0.9, 0.999, 1e-8, decay, step as f64],
            |p, g, s| {
                let mut g = if options.maximize { -g } else { g };
                if options.decoupled {
                    p[0] *= 1.0 - s[0] * s[4];
                } else {
                    g += s[4] * p[0];
                }
                p[1] = s[1] * p[1] + (1.0 - s[1]) * g;
                p[2] = s[2] * p[2] + (1.0 - s[2]) * g * g;
                let mut v = p[2];
                if options.amsgrad {
                    p[3] = p[3].max(v);
                    v = p[3];
                }
                let m = p[1] / (1.0 - s[1].powf(s[5]));
                let v = v / (1.0 - s[2].powf(s[5]));
                p[0] -= s[0] * m / (v.sqrt() + s[3]);
            },
            tolerance,
        );
    }

    #[test]
    fn agrees_with_the_formulas() {
        for amsgrad in [false, true] {
            for decoupled in [false, true] {
                for (maximize, decay) in [(false, 0.0), (true, 0.01)] {
                    let options = Options { amsgrad, decoupled, maximize };
                    check::<f32>(options, decay, 1e-6);
                    check::<f64>(options, decay, 1e-9);
                }
            }
        }
    }
}
