//! Stochastic gradient descent over all parameters of a model at once, on CPU cores.

use std::marker::PhantomData;

use crate::cpu::kernel::{Io, Kernel};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::ops::sweep::{Sweep, scalars, update};

/// What the code of a step depends on; the numbers are inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether there is a momentum buffer.
    pub momentum: bool,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// Whether the loss is to grow.
    pub maximize: bool,
}

/// One step.
///
/// Inputs, for each parameter: parameter, gradient and, with momentum, its buffer; at the end `f64`
/// scalars: learning rate, momentum, dampening, weight decay, step (1 the first time, which sets the
/// buffer to the gradient).
/// Outputs, for each parameter: parameter and, with momentum, its buffer; they may be the inputs' memory.
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
        let Options { momentum, nesterov, maximize } = self.options;
        let [lr, rate, dampening, decay, step] = scalars(io);
        let sign = T::of(if maximize { -1.0 } else { 1.0 });
        let (lr, decay) = (T::of(lr), T::of(decay));
        // The first step's buffer is the gradient itself, undampened.
        let first = step <= 1.0;
        let keep = T::of(if first { 0.0 } else { rate });
        let add = T::of(if first { 1.0 } else { 1.0 - dampening });
        let rate = T::of(rate);
        vectorized(
            #[inline(always)]
            || {
                self.sweep.pieces(
                    task,
                    #[inline(always)]
                    |i, range| {
                        if !momentum {
                            let (inputs, outputs) = (&io.inputs[2 * i..], &io.outputs[i..]);
                            update(inputs, outputs, range, |[p, g]: [T; 2]| {
                                let g = sign * g + decay * p;
                                [p - lr * g]
                            });
                            return;
                        }
                        let (inputs, outputs) = (&io.inputs[3 * i..], &io.outputs[2 * i..]);
                        update(inputs, outputs, range, |[p, g, old]: [T; 3]| {
                            let g = sign * g + decay * p;
                            // A first step must not read the buffer: it may hold anything.
                            let kept = if first { T::zero() } else { keep * old };
                            let buffer = kept + add * g;
                            let g = if nesterov { g + rate * buffer } else { buffer };
                            [p - lr * g, buffer]
                        });
                    },
                );
            },
        );
    }

    fn flops(&self) -> u64 {
        6 * self.sweep.total() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::sweep::tests::{SIZES, compare};

    fn check<T: Real>(options: Options, dampening: f64, decay: f64, tolerance: f64) {
        compare::<T>(
            &Step::<T>::new(&SIZES, options),
            options.momentum.into(),
            |step| vec![0.1 / step as f64, 0.9, dampening, decay, step as f64],
            |p, g, s| {
                let mut g = if options.maximize { -g } else { g };
                g += s[3] * p[0];
                if options.momentum {
                    p[1] = if s[4] == 1.0 { g } else { s[1] * p[1] + (1.0 - s[2]) * g };
                    g = if options.nesterov { g + s[1] * p[1] } else { p[1] };
                }
                p[0] -= s[0] * g;
            },
            tolerance,
        );
    }

    #[test]
    fn agrees_with_the_formulas() {
        for momentum in [false, true] {
            for (nesterov, dampening) in [(false, 0.0), (false, 0.3), (true, 0.0)] {
                for (maximize, decay) in [(false, 0.0), (true, 5e-4)] {
                    let options = Options { momentum, nesterov, maximize };
                    check::<f32>(options, dampening, decay, 1e-6);
                    check::<f64>(options, dampening, decay, 1e-14);
                }
            }
        }
    }
}
