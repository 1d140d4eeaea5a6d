//! The plain matrix product for any float: for `f64`, and to test the fast one against.

use super::{Activation, MatLayout};
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use num_traits::Float;
use std::marker::PhantomData;

/// [`super::MatMul`] by its definition.
pub struct MatMulReference<T> {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    a: MatLayout,
    b: MatLayout,
    bias: bool,
    activation: Activation,
    element: PhantomData<T>,
}

impl<T: Float + Plain> MatMulReference<T> {
    /// Takes the same arguments as [`super::MatMul::new`].
    pub fn new(
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        a: MatLayout,
        b: MatLayout,
        bias: bool,
        activation: Activation,
    ) -> Self {
        MatMulReference { batch, m, n, k, a, b, bias, activation, element: PhantomData }
    }
}

impl<T: Float + Plain> Kernel for MatMulReference<T> {
    fn phases(&self) -> Vec<usize> {
        let rows = if self.n == 0 { 0 } else { self.batch * self.m };
        vec![rows.min(((self.flops() / 50_000) as usize).clamp(1, 64))]
    }

    fn run(&self, _: usize, task: usize, io: &Io<'_>) {
        // SAFETY: no task writes an input.
        let (a, b) = unsafe { (io.inputs[0].slice::<T>(), io.inputs[1].slice::<T>()) };
        // SAFETY: as above.
        let bias = self.bias.then(|| unsafe { io.inputs[2].slice::<T>() });
        for row in share(self.batch * self.m, self.phases()[0], task) {
            let (batch, i) = (row / self.m, row % self.m);
            // SAFETY: each row of the result belongs to one task.
            let c = unsafe { io.outputs[0].slice_mut::<T>(row * self.n..(row + 1) * self.n) };
            for (j, c) in c.iter_mut().enumerate() {
                let mut sum = T::zero();
                for t in 0..self.k {
                    let left = a[batch * self.a.batch + i * self.a.row + t * self.a.col];
                    let right = b[batch * self.b.batch + t * self.b.row + j * self.b.col];
                    sum = sum + left * right;
                }
                *c = self.activation.apply(sum + bias.map_or(T::zero(), |bias| bias[j]));
            }
        }
    }

    fn flops(&self) -> u64 {
        2 * (self.batch * self.m * self.n * self.k) as u64
    }
}
