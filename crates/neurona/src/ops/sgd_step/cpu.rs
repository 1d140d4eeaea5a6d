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

    /// Its rule: for the first step, or for later ones. A choice for each element would keep the compiler from vectors.
    #[inline(always)]
    pub(crate) fn rule<F: ForRule>(&self, first: bool, body: F) -> F::Result {
        match (self.momentum, first, self.nesterov) {
            (false, ..) => body.with::<Plain>(),
            (true, true, true) => body.with::<Momentum<true, true>>(),
            (true, true, false) => body.with::<Momentum<true, false>>(),
            (true, false, true) => body.with::<Momentum<false, true>>(),
            (true, false, false) => body.with::<Momentum<false, false>>(),
        }
    }

    /// From a step's scalars: the numbers of its rule, and whether it is the first.
    #[inline(always)]
    pub(crate) fn numbers<T: Real>(&self, [lr, rate, dampening, decay, step]: [f64; 5]) -> ([T; 5], bool) {
        let sign = if self.maximize { -1.0 } else { 1.0 };
        ([lr, rate, 1.0 - dampening, decay, sign].map(T::of), step <= 1.0)
    }
}

/// What a step makes of an element.
pub(crate) trait Rule {
    /// How much it keeps: nothing, the parameter, or the parameter and its buffer.
    const KEEPS: usize;
    /// The new parameter and buffer, from parameter, gradient and buffer. Numbers: learning rate, momentum, what is added
    /// of the gradient, weight decay, and the gradient's sign.
    fn apply<E: Element>(numbers: [E; 5], of: [E; 3]) -> [E; 2];
}

/// Something that is done by a rule.
pub(crate) trait ForRule {
    /// What comes of it.
    type Result;
    /// Does it.
    fn with<R: Rule>(self) -> Self::Result;
}

/// A number, or a register of them.
pub(crate) trait Element: Copy {
    /// `self + x`.
    fn plus(self, x: Self) -> Self;
    /// `self - x`.
    fn minus(self, x: Self) -> Self;
    /// `self · x`.
    fn times(self, x: Self) -> Self;
}

impl<T: Real> Element for T {
    #[inline(always)]
    fn plus(self, x: Self) -> Self {
        self + x
    }
    #[inline(always)]
    fn minus(self, x: Self) -> Self {
        self - x
    }
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        self * x
    }
}

struct Plain;

impl Rule for Plain {
    const KEEPS: usize = 1;

    #[inline(always)]
    fn apply<E: Element>([lr, _, _, decay, sign]: [E; 5], [p, g, buffer]: [E; 3]) -> [E; 2] {
        let g = sign.times(g).plus(decay.times(p));
        [p.minus(lr.times(g)), buffer]
    }
}

struct Momentum<const FIRST: bool, const NESTEROV: bool>;

impl<const FIRST: bool, const NESTEROV: bool> Rule for Momentum<FIRST, NESTEROV> {
    const KEEPS: usize = 2;

    #[inline(always)]
    fn apply<E: Element>([lr, rate, add, decay, sign]: [E; 5], [p, g, old]: [E; 3]) -> [E; 2] {
        let g = sign.times(g).plus(decay.times(p));
        // The first step's buffer is the gradient itself, undampened; what it held may be anything.
        let buffer = if FIRST { g } else { rate.times(old).plus(add.times(g)) };
        let step = if NESTEROV { g.plus(rate.times(buffer)) } else { buffer };
        [p.minus(lr.times(step)), buffer]
    }
}

/// Elements of one parameter, with its operands and results as in [`Step`].
struct Piece<'a, T> {
    numbers: [T; 5],
    inputs: &'a [Buf],
    outputs: &'a [Buf],
    range: Range<usize>,
}

impl<T: Real> ForRule for Piece<'_, T> {
    type Result = ();

    #[inline(always)]
    fn with<R: Rule>(self) {
        let Piece { numbers, inputs, outputs, range } = self;
        if R::KEEPS == 2 {
            update(inputs, outputs, range, |of: [T; 3]| R::apply(numbers, of));
        } else {
            update(inputs, outputs, range, |[p, g]: [T; 2]| [R::apply(numbers, [p, g, g])[0]]);
        }
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
        let (numbers, first) = self.options.numbers::<T>(scalars(io));
        let operands = self.options.operands();
        vectorized(
            #[inline(always)]
            || {
                self.sweep.pieces(
                    task,
                    #[inline(always)]
                    |i, range| {
                        let (inputs, outputs) = (&io.inputs[operands * i..], &io.outputs[(operands - 1) * i..]);
                        self.options.rule(first, Piece { numbers, inputs, outputs, range });
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
