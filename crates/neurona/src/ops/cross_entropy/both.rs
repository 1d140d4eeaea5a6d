//! Cross-entropy and its gradient as one step on CPU cores. For the few rows of a small network that is one task instead
//! of two steps, and the logits stay in the first cache.

use super::cpu::{Backward, Forward, Options};
use crate::cpu::kernel::{Io, Kernel};
use crate::cpu::math::Real;

/// [`Forward`], then [`Backward`]: what they compute does not change.
///
/// Inputs: logits `[rows, classes]`, targets `i64 [rows]`, dloss. Outputs: those of the loss, dlogits.
pub(super) struct Both<T> {
    forward: Forward<T>,
    backward: Backward<T>,
    /// Phases of the forward pass.
    first: usize,
    /// Both are a single task.
    lone: bool,
}

impl<T: Real> Both<T> {
    pub fn new(rows: usize, classes: usize, options: Options) -> Self {
        let (forward, backward) = (Forward::new(rows, classes, options), Backward::new(rows, classes, options));
        let (first, second) = (forward.phases(), backward.phases());
        Both { lone: first == [1] && second == [1], first: first.len(), forward, backward }
    }

    fn forward(&self, phase: usize, task: usize, io: &Io<'_>) {
        let (inputs, outputs) = (&io.inputs[..2], &io.outputs[..2]);
        self.forward.run(phase, task, &Io { inputs, outputs, workspace: io.workspace, scratch: io.scratch });
    }

    fn backward(&self, phase: usize, task: usize, io: &Io<'_>) {
        let (logits, logs, targets, dloss) = (io.inputs[0], io.outputs[1], io.inputs[1], io.inputs[2]);
        let workspace = io.workspace.part::<u8>(self.forward.workspace(), self.backward.workspace());
        let (inputs, outputs) = (&[logits, logs, targets, dloss], &io.outputs[2..]);
        self.backward.run(phase, task, &Io { inputs, outputs, workspace, scratch: io.scratch });
    }
}

impl<T: Real> Kernel for Both<T> {
    fn phases(&self) -> Vec<usize> {
        match self.lone {
            true => vec![1],
            false => [self.forward.phases(), self.backward.phases()].concat(),
        }
    }

    fn workspace(&self) -> usize {
        self.forward.workspace() + self.backward.workspace()
    }

    fn scratch(&self) -> usize {
        self.forward.scratch().max(self.backward.scratch())
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if self.lone || phase < self.first {
            self.forward(phase, task, io);
        }
        if self.lone || phase >= self.first {
            self.backward(phase.saturating_sub(self.first), task, io);
        }
    }

    fn flops(&self) -> u64 {
        self.forward.flops() + self.backward.flops()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reduction;
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, run};

    /// A single task, many tasks, and rows that must be counted first.
    #[test]
    fn gives_the_bits_of_the_two_kernels() {
        let mut rng = Rng(5);
        for (rows, classes) in [(0, 4), (1, 1), (4, 10), (128, 10), (6000, 10), (40, 1000)] {
            for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
                for ignore_index in [None, Some(0)] {
                    let options = Options { reduction, label_smoothing: 0.1, ignore_index };
                    let size = if reduction == Reduction::None { rows } else { 1 };
                    let mut targets: Vec<i64> = (0..rows).map(|_| rng.below(classes) as i64).collect();
                    let (mut x, mut dloss): (Vec<f64>, Vec<f64>) = (rng.vec(rows * classes), rng.vec(size));
                    let inputs = [Buf::over(&mut x), Buf::over(&mut targets), Buf::over(&mut dloss)];
                    let results = |kernels: &dyn Fn(&[Buf])| {
                        let (mut loss, mut logs) = (vec![f64::NAN; size], vec![f64::NAN; rows]);
                        let mut dx = vec![f64::NAN; rows * classes];
                        kernels(&[Buf::over(&mut loss), Buf::over(&mut logs), Buf::over(&mut dx)]);
                        [loss, logs, dx].concat().into_iter().map(f64::to_bits).collect::<Vec<_>>()
                    };
                    let apart = results(&|out| {
                        run(&Forward::<f64>::new(rows, classes, options), &inputs[..2], &out[..2]);
                        let inputs = [inputs[0], out[1], inputs[1], inputs[2]];
                        run(&Backward::<f64>::new(rows, classes, options), &inputs, &out[2..]);
                    });
                    let joined = results(&|out| run(&Both::<f64>::new(rows, classes, options), &inputs, out));
                    assert_eq!(apart, joined, "{rows} rows of {classes}, {options:?}");
                }
            }
        }
    }
}
