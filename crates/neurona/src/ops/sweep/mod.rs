//! One pass over all parameters of a model, shared by the optimizers' kernels.
//!
//! Every task has its share of every large parameter, from the first elements to the last, as the kernels that use a
//! parameter and those that make its gradient have theirs: a thread then finds both in its own cache. Where they lie in
//! another core's, an update takes several times as long.

pub(crate) mod cuda;

use std::ops::Range;

use crate::cpu::kernel::{Buf, Io};
use crate::cpu::math::Real;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};

/// Elements of one task, at most about.
const PIECE: usize = 32 * 1024;
/// Tasks, when one is not enough, come in multiples of so many: threads' parts of the tasks are then parts of the
/// parameters.
const TASKS: usize = 16;
/// Parameters of fewer elements are not cut: products with them are a single task, too.
const SMALL: usize = 16 * 1024;
/// Others are cut at multiples of this.
const GRAIN: usize = 1024;

/// Elements handled together: they pass through registers, because the compiler cannot vectorise a
/// loop whose input and output may be the same memory.
const LANES: usize = 32;

/// How all parameters are cut into tasks.
pub(crate) struct Sweep {
    /// The parameters that a task has a part of, with the range of its elements.
    tasks: Vec<Vec<(usize, Range<usize>)>>,
    total: usize,
}

impl Sweep {
    pub(crate) fn new(sizes: &[usize]) -> Self {
        let total = sizes.iter().sum::<usize>();
        let count = if total > PIECE { total.div_ceil(PIECE).next_multiple_of(TASKS) } else { 1 };
        let cut = |size: usize, task: usize| match size {
            0..SMALL => size * task.min(1),
            _ => (size * task / count).next_multiple_of(GRAIN).min(size),
        };
        let piece = |task: usize| {
            let parts = sizes.iter().map(|&size| cut(size, task)..cut(size, task + 1));
            parts.enumerate().filter(|(_, part)| !part.is_empty()).collect()
        };
        Sweep { tasks: (0..count).map(piece).collect(), total }
    }

    /// Elements of all parameters.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Hands each parameter in the task's piece to `each`, with the range of its elements.
    #[inline(always)]
    pub(crate) fn pieces(&self, task: usize, mut each: impl FnMut(usize, Range<usize>)) {
        for (i, range) in &self.tasks[task] {
            each(*i, range.clone());
        }
    }
}

/// The results of a step whose parameters have this many operands each: all but the gradients.
pub(crate) fn outputs(inputs: &[&Meta], operands: usize) -> Result<Metas> {
    let mut results = Metas::with_capacity(inputs.len());
    for group in inputs[..inputs.len() - 1].chunks(operands) {
        // Mixed precision gives 16-bit gradients to parameters in f32.
        let fits = |(i, m): (usize, &&Meta)| {
            let rounded = i == 1 && group[0].dtype == DType::F32 && m.dtype.compute() == DType::F32;
            m.shape == group[0].shape && (m.dtype == group[0].dtype || rounded)
        };
        if !group.iter().enumerate().all(fits) {
            let roles: Vec<_> = ["parameter", "gradient", "state"].into_iter().zip(group.iter().copied()).collect();
            return Err(Error::operands("step", "parameter, gradient and state differ in shape or type", &roles));
        }
        results.extend(group.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, m)| (*m).clone()));
    }
    Ok(results)
}

/// Parameters and states are written where they are read.
pub(crate) fn in_place(inputs: usize, operands: usize) -> Vec<(usize, usize)> {
    let kept = (0..inputs - 1).filter(|i| i % operands != 1);
    kept.enumerate().collect()
}

/// The number of elements of each parameter.
pub(crate) fn sizes(inputs: &[Operand], operands: usize) -> Vec<usize> {
    inputs[..inputs.len() - 1].iter().step_by(operands).map(|p| p.meta.shape.numel()).collect()
}

/// Writes the op of an optimizer's step: its options, and how many operands each parameter has (itself, its
/// gradient, its state). Operands and results are those of the kernel, `cpu::Step`; `cuda::step` that for GPUs.
macro_rules! step_op {
    ($(#[$doc:meta])* $Op:ident $name:literal |$options:ident| $operands:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $Op {
            pub options: cpu::Options,
        }

        impl $Op {
            pub(crate) fn operands(&self) -> usize {
                let $options = &self.options;
                $operands
            }
        }

        impl $crate::ops::Operation for $Op {
            fn name(&self) -> &'static str {
                $name
            }
            fn outputs(&self, inputs: &[&$crate::tensor::Meta]) -> $crate::Result<$crate::graph::node::Metas> {
                $crate::ops::sweep::outputs(inputs, self.operands())
            }
            fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
                $crate::ops::sweep::in_place(inputs, self.operands())
            }
            fn cpu(
                &self,
                inputs: &[$crate::graph::ir::Operand],
                _outputs: &[$crate::graph::ir::Operand],
            ) -> $crate::Result<Box<dyn $crate::cpu::kernel::Kernel>> {
                let sizes = $crate::ops::sweep::sizes(inputs, self.operands());
                Ok($crate::ops::float_kernel!(inputs[0].meta.dtype, T => cpu::Step::<T>::new(&sizes, self.options)))
            }
            fn cuda(
                &self,
                inputs: &[$crate::graph::ir::Operand],
                _outputs: &[$crate::graph::ir::Operand],
                gpu: &$crate::cuda::Gpu,
            ) -> $crate::Result<Box<dyn $crate::cuda::kernel::Kernel>> {
                cuda::step(self.options).kernel(inputs, self.operands(), gpu)
            }
        }
    };
}
pub(crate) use step_op;

/// The scalars of a step, the last input.
#[inline(always)]
pub(crate) fn scalars<const N: usize>(io: &Io<'_>) -> [f64; N] {
    let last = io.inputs[io.inputs.len() - 1];
    // SAFETY: nobody writes the scalars.
    let scalars = unsafe { last.slice::<f64>() };
    std::array::from_fn(|i| scalars[i])
}

/// Applies `f` to every element in `range` of `inputs`, and writes its results to `outputs`, which
/// may be the same memory as inputs.
#[inline(always)]
pub(crate) fn update<T: Real, const I: usize, const O: usize>(
    inputs: &[Buf],
    outputs: &[Buf],
    range: Range<usize>,
    f: impl Fn([T; I]) -> [T; O],
) {
    let inputs: [Buf; I] = std::array::from_fn(|i| inputs[i].part::<T>(range.start, range.len()));
    let outputs: [Buf; O] = std::array::from_fn(|i| outputs[i].part::<T>(range.start, range.len()));
    let (inputs, outputs) = (inputs.map(|b| b.ptr::<T>()), outputs.map(|b| b.ptr::<T>()));
    let whole = range.len() / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        // SAFETY: `at + LANES` is within the parts, which `Buf::part` has checked. Elements belong to
        // this task alone, and are read before the memory is written.
        let block: [[T; LANES]; I] = std::array::from_fn(|i| unsafe { inputs[i].add(at).cast::<[T; LANES]>().read() });
        let mut result = [[T::zero(); LANES]; O];
        for j in 0..LANES {
            let new = f(std::array::from_fn(|i| block[i][j]));
            for o in 0..O {
                result[o][j] = new[o];
            }
        }
        for o in 0..O {
            // SAFETY: as above.
            unsafe { outputs[o].add(at).cast::<[T; LANES]>().write(result[o]) };
        }
    }
    for at in whole..range.len() {
        // SAFETY: as above, one element at a time.
        let new = f(std::array::from_fn(|i| unsafe { inputs[i].add(at).read() }));
        for o in 0..O {
            // SAFETY: as above.
            unsafe { outputs[o].add(at).write(new[o]) };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cpu::kernel::Kernel;
    use crate::cpu::tasks::testing::{Rng, close, run};

    /// Sizes of a small model's parameters, an empty one and a large one among them.
    pub const SIZES: [usize; 7] = [1, 150, 0, 6, 100_003, 33, 16_384];

    /// Runs `kernel` in place for a few steps beside `plain`, which changes one element's
    /// parameter and state from its gradient.
    pub fn compare<T: Real>(
        kernel: &dyn Kernel,
        states: usize,
        scalars: impl Fn(usize) -> Vec<f64>,
        plain: impl Fn(&mut [f64], f64, &[f64]),
        tolerance: f64,
    ) {
        let mut rng = Rng(17);
        let mut held: Vec<Vec<Vec<T>>> = SIZES
            .iter()
            .map(|&n| {
                let mut buffers = vec![vec![T::zero(); n]; 1 + states];
                buffers[0] = rng.vec(n);
                buffers
            })
            .collect();
        let mut wide: Vec<Vec<Vec<f64>>> =
            held.iter().map(|p| p.iter().map(|b| b.iter().map(|v| v.wide()).collect()).collect()).collect();
        for step in 1..=4 {
            let mut grads: Vec<Vec<T>> = SIZES.iter().map(|&n| rng.vec(n)).collect();
            let mut numbers = scalars(step);
            let (mut inputs, mut outputs) = (vec![], vec![]);
            for (buffers, grad) in held.iter_mut().zip(&mut grads) {
                let bufs: Vec<Buf> = buffers.iter_mut().map(|b| Buf::over(b)).collect();
                inputs.push(bufs[0]);
                inputs.push(Buf::over(grad));
                inputs.extend(&bufs[1..]);
                outputs.extend(&bufs);
            }
            inputs.push(Buf::over(&mut numbers));
            run(kernel, &inputs, &outputs);
            for (wide, grad) in wide.iter_mut().zip(&grads) {
                for (i, g) in grad.iter().enumerate() {
                    let mut element: Vec<f64> = wide.iter().map(|b| b[i]).collect();
                    plain(&mut element, g.wide(), &numbers);
                    wide.iter_mut().zip(element).for_each(|(b, v)| b[i] = v);
                }
            }
        }
        for (held, wide) in held.iter().zip(&wide) {
            for (held, wide) in held.iter().zip(wide) {
                close(held, wide, tolerance);
            }
        }
    }

    #[test]
    fn pieces_cover_every_element_once() {
        for sizes in [&SIZES[..], &[0, 0], &[], &[5]] {
            let sweep = Sweep::new(sizes);
            let mut seen: Vec<Vec<u8>> = sizes.iter().map(|&n| vec![0; n]).collect();
            for task in 0..sweep.tasks() {
                sweep.pieces(task, |i, range| seen[i][range].iter_mut().for_each(|s| *s += 1));
            }
            assert!(seen.iter().flatten().all(|&s| s == 1));
        }
    }
}
