//! How light, memory-bound work is cut into tasks.

/// The number of tasks for `elements` of light work: one while a barrier would cost more than it
/// saves, then pieces of 16k elements, growing to 64k so that large tensors do not drown in tasks.
///
/// ```
/// use neurona::cpu::tasks::pieces;
/// assert_eq!((pieces(0), pieces(20_000), pieces(1 << 20), pieces(1 << 24)), (1, 1, 64, 256));
/// ```
pub fn pieces(elements: usize) -> usize {
    (elements >> 14).clamp(1, 64).max(elements >> 16)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Runs a kernel outside a plan, and makes numbers for it.

    use crate::cpu::kernel::{Buf, Io, Kernel};
    use crate::cpu::math::Real;

    /// Runs every task, the last first, on memory full of NaN: order and stale contents must not matter.
    pub fn run(kernel: &dyn Kernel, inputs: &[Buf], outputs: &[Buf]) {
        let mut workspace = vec![u64::MAX; kernel.workspace().div_ceil(8)];
        let mut scratch = vec![u64::MAX; kernel.scratch().div_ceil(8)];
        let workspace = Buf::over(&mut workspace).part::<u8>(0, kernel.workspace());
        for (phase, &tasks) in kernel.phases().iter().enumerate() {
            for task in (0..tasks).rev() {
                scratch.fill(u64::MAX);
                let scratch = Buf::over(&mut scratch).part::<u8>(0, kernel.scratch());
                kernel.run(phase, task, &Io { inputs, outputs, workspace, scratch });
            }
        }
    }

    /// A small generator of reproducible numbers.
    pub struct Rng(pub u64);

    impl Rng {
        /// The next number in `0..n`.
        pub fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % n
        }

        /// The next number in -1..1.
        pub fn unit(&mut self) -> f64 {
            self.below(1 << 30) as f64 / (1 << 29) as f64 - 1.0
        }

        /// `n` numbers in -1..1.
        pub fn vec<T: Real>(&mut self, n: usize) -> Vec<T> {
            (0..n).map(|_| T::of(self.unit())).collect()
        }
    }

    /// Panics unless every element is within `tolerance` (absolute below one, relative above).
    #[track_caller]
    pub fn close<T: Real>(got: &[T], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        for (i, (g, &w)) in got.iter().zip(want).enumerate() {
            let g = g.wide();
            let same = g == w || g.is_nan() && w.is_nan();
            assert!(same || (g - w).abs() <= tolerance * w.abs().max(1.0), "element {i}: got {g}, want {w}");
        }
    }

    /// Panics unless `gradient` is the slope of `f` at `x`, by central differences at up to 40 places.
    #[track_caller]
    pub fn slopes(x: &[f64], gradient: &[f64], mut f: impl FnMut(&[f64]) -> f64) {
        let step = 1e-5;
        for i in (0..x.len()).step_by(x.len().div_ceil(40).max(1)) {
            let mut moved = x.to_vec();
            moved[i] = x[i] + step;
            let up = f(&moved);
            moved[i] = x[i] - step;
            let slope = (up - f(&moved)) / (2.0 * step);
            let error = (slope - gradient[i]).abs();
            assert!(error < 1e-6 * (1.0 + slope.abs()), "element {i}: slope {slope}, gradient {}", gradient[i]);
        }
    }
}
