//! Stochastic gradient descent over all parameters of a model at once, on CPU cores.

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::kernel::{Buf, Io, Kernel};
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

impl Options {
    /// Operands of a parameter: itself, its gradient, and maybe its buffer.
    pub(crate) fn operands(&self) -> usize {
        2 + self.momentum as usize
    }

    /// A step for some elements of one parameter, for who has their gradient at hand: its operands and results as in
    /// [`Step`], and the numbers at the end of the operands.
    pub(crate) fn step_of(&self, inputs: &[Buf], outputs: &[Buf], numbers: Buf) {
        let length = inputs[0].len::<f32>();
        // SAFETY: nobody writes the numbers.
        let numbers = unsafe { numbers.slice::<f64>() };
        let numbers = std::array::from_fn(|i| numbers[i]);
        vectorized(
            #[inline(always)]
            || self.step::<f32>(numbers, inputs, outputs, 0..length),
        );
    }

    #[inline(always)]
    fn step<T: Real>(&self, numbers: [f64; 5], inputs: &[Buf], outputs: &[Buf], range: Range<usize>) {
        let [lr, rate, dampening, decay, step] = numbers;
        let sign = T::of(if self.maximize { -1.0 } else { 1.0 });
        let (lr, decay) = (T::of(lr), T::of(decay));
        if !self.momentum {
            update(inputs, outputs, range, |[p, g]: [T; 2]| {
                let g = sign * g + decay * p;
                [p - lr * g]
            });
            return;
        }
        // The first step's buffer is the gradient itself, undampened.
        let first = step <= 1.0;
        let keep = T::of(if first { 0.0 } else { rate });
        let add = T::of(if first { 1.0 } else { 1.0 - dampening });
        let rate = T::of(rate);
        update(inputs, outputs, range, |[p, g, old]: [T; 3]| {
            let g = sign * g + decay * p;
            // A first step must not read the buffer: it may hold anything.
            let kept = if first { T::zero() } else { keep * old };
            let buffer = kept + add * g;
            let g = if self.nesterov { g + rate * buffer } else { buffer };
            [p - lr * g, buffer]
        });
    }
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
        let (options, numbers) = (self.options, scalars(io));
        let operands = options.operands();
        vectorized(
            #[inline(always)]
            || {
                self.sweep.pieces(
                    task,
                    #[inline(always)]
                    |i, range| {
                        let (inputs, outputs) = (&io.inputs[operands * i..], &io.outputs[(operands - 1) * i..]);
                        options.step::<T>(numbers, inputs, outputs, range);
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
