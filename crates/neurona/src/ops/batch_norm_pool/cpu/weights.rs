//! The gradient, and with it that of the filters before the normalisation. What passes from one to the other is made an
//! image at a time, in a core's own cache. Who else needs it gets it, too: then it is written and read while the filters'
//! products keep the core busy.

use super::Backward;
use crate::cpu::kernel::{Buf, Io, Kernel};
use crate::ops::conv2d::cpu::{Fresh, Geometry, WeightGrad};
use crate::ops::pool::Pool;

/// Inputs: the convolution's images, then those of [`Backward`].
/// Outputs: dx if it is kept; if affine dweight, dbias; those of [`WeightGrad`].
pub struct Weights {
    norm: Backward<f32>,
    filters: WeightGrad,
    /// Outputs of the normalisation.
    affine: usize,
    keep: bool,
    /// Floats of an image.
    image: usize,
}

/// Whole cache lines.
fn lines(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

impl Weights {
    /// The gradients of a convolution and of what follows it; nothing where they are faster one after the other.
    pub fn new(g: Geometry, with_bias: bool, pool: Pool, affine: bool, keep: bool) -> Option<Self> {
        let norm = Backward::new(pool, affine);
        let filters = WeightGrad::of_fresh(g, with_bias, keep)?;
        let image = pool.h * pool.w * pool.c;
        let fits = [pool.n, pool.c, pool.h, pool.w] == [g.n, g.k, g.oh(), g.ow()];
        // Where there is no last phase apart, all is one task's.
        let apart = norm.phases().len() == PHASES;
        let several = image * size_of::<f32>() <= ROOM;
        (fits && apart && several).then_some(Weights { norm, filters, affine: if affine { 2 } else { 0 }, keep, image })
    }

    /// Bytes of the room for an image.
    fn room(&self) -> usize {
        if self.keep { 0 } else { self.image * size_of::<f32>() }
    }

    /// Runs something with the memory of the normalisation's gradient.
    fn with_norm(&self, io: &Io<'_>, run: impl FnOnce(&Io<'_>)) {
        let mut outputs = [Buf::empty(); 3];
        outputs[1..=self.affine].copy_from_slice(&io.outputs[self.kept()..][..self.affine]);
        run(&Io { inputs: &io.inputs[1..], outputs: &outputs[..=self.affine], ..*io });
    }

    /// Outputs before these.
    fn kept(&self) -> usize {
        usize::from(self.keep)
    }

    /// Where the room for an image begins in scratch, and where what the filters' gradient has there.
    fn rooms(&self) -> [usize; 2] {
        let image = lines(self.norm.scratch());
        [image, lines(image + self.room())]
    }
}

/// Sums, what is made of them, and the images.
const PHASES: usize = 3;

/// Where what is normalised is among the inputs.
const X: usize = 2;

/// Bytes of an image that a core's own cache holds beside what it is made of.
const ROOM: usize = 256 << 10;

impl Kernel for Weights {
    fn phases(&self) -> Vec<usize> {
        let mut phases = self.norm.phases();
        phases.truncate(PHASES - 1);
        phases.extend(self.filters.phases());
        phases
    }

    fn workspace(&self) -> usize {
        lines(self.norm.workspace()) + self.filters.workspace()
    }

    fn scratch(&self) -> usize {
        self.rooms()[1] + self.filters.scratch()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase + 1 < PHASES {
            return self.with_norm(io, |io| self.norm.run(phase, task, io));
        }
        let [room, scratch] = self.rooms();
        let sums = lines(self.norm.workspace());
        let inputs = [io.inputs[0], if self.keep { io.outputs[0] } else { Buf::empty() }];
        let filters = Io {
            inputs: &inputs,
            outputs: &io.outputs[self.kept() + self.affine..],
            workspace: io.workspace.part::<u8>(sums, self.filters.workspace()),
            scratch: io.scratch.part::<u8>(scratch, self.filters.scratch()),
        };
        if phase + 1 > PHASES {
            return self.filters.run(1, task, &filters);
        }
        self.with_norm(io, |io| {
            let make = |image: usize, dx: &mut [f32]| self.norm.image(image, dx, io);
            let room = io.scratch.part::<u8>(room, self.room());
            let from = io.inputs[X].ptr::<f32>().cast_const();
            self.filters.run_fresh(task, &filters, Fresh { make: &make, room, from });
        });
    }

    fn flops(&self) -> u64 {
        self.norm.flops() + self.filters.flops()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tasks::testing::{Rng, close, run};
    use crate::ops::conv2d::cpu::weight_grad;

    /// Both gradients one after the other, and as one, of the same numbers.
    fn check(g: Geometry, pool: Pool, [with_bias, affine, keep]: [bool; 3]) -> bool {
        let Some(both) = Weights::new(g, with_bias, pool, affine, keep) else { return false };
        let mut rng = Rng(g.n as u64);
        let channels = |rng: &mut Rng| rng.vec::<f32>(g.k);
        let mut images: Vec<f32> = rng.vec(g.n * g.c * g.h * g.w);
        let (mut slopes, mut x): (Vec<f32>, Vec<f32>) = (rng.vec(pool.output_len()), rng.vec(pool.input_len()));
        let mut rest = [channels(&mut rng), vec![1.5; g.k], channels(&mut rng), channels(&mut rng)];
        let mut inputs = vec![Buf::over(&mut images), Buf::over(&mut slopes), Buf::over(&mut x)];
        inputs.extend(rest[..if affine { 4 } else { 2 }].iter_mut().map(|v| Buf::over(v)));

        let results =
            || [vec![f32::NAN; g.k], vec![f32::NAN; g.k], vec![f32::NAN; g.k * g.taps() * g.c], vec![0.0; g.k]];
        let (mut want, mut got, mut dx) = (results(), results(), vec![f32::NAN; pool.input_len()]);
        let chosen = |all: &mut [Vec<f32>; 4]| -> Vec<Buf> {
            let mut all: Vec<_> = all.iter_mut().map(|v| Buf::over(v)).collect();
            all.truncate(if with_bias { 4 } else { 3 });
            all.drain(..if affine { 0 } else { 2 });
            all
        };
        let wanted = chosen(&mut want);
        let (norm, filters) = wanted.split_at(if affine { 2 } else { 0 });
        let norm: Vec<_> = std::iter::once(Buf::over(&mut dx)).chain(norm.iter().copied()).collect();
        run(&Backward::<f32>::new(pool, affine), &inputs[1..], &norm);
        run(&*weight_grad(g, with_bias), &[inputs[0], Buf::over(&mut dx)], filters);

        let mut kept = vec![f32::NAN; dx.len()];
        let outputs = keep.then(|| Buf::over(&mut kept)).into_iter().chain(chosen(&mut got));
        run(&both, &inputs, &outputs.collect::<Vec<_>>());
        assert!(!keep || kept == dx);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let want: Vec<f64> = want.iter().map(|x| f64::from(*x)).collect();
            // Only a bias's sums, and those that an image's end cuts, are added up in another order.
            close(got, &want, if i < 2 { 0.0 } else { 1e-4 });
        }
        true
    }

    #[test]
    fn one_kernel_gives_what_two_give() {
        let mut rng = Rng(3);
        let mut fitting = 0;
        for i in 0..120 {
            let (r, s) = (1 + rng.below(5), 1 + rng.below(5));
            let (padding, stride) = ([rng.below(r), rng.below(s)], [1 + rng.below(2), 1 + rng.below(2)]);
            let (h, w) = (r + 8 + rng.below(20), s + 8 + rng.below(20));
            let (n, c, k) = (64 + rng.below(80), 1 + rng.below(4), 1 + rng.below(40));
            let g = Geometry { n, c, h, w, k, r, s, stride, padding, dilation: [1 + rng.below(2), 1], groups: 1 };
            let kernel = [1 + rng.below(3), 1 + rng.below(3)];
            let pool_stride = kernel.map(|k| k + rng.below(2));
            let (h, w, ceil_mode) = (g.oh(), g.ow(), i % 3 == 0);
            if h < kernel[0] || w < kernel[1] {
                continue;
            }
            let pool = Pool { n, c: k, h, w, kernel, stride: pool_stride, padding: [0, 0], ceil_mode };
            fitting += usize::from(check(g, pool, [i % 2 == 0, i % 5 != 0, false]));
        }
        assert!(fitting > 20, "{fitting} shapes");
    }

    /// What Winograd's products hide is kept besides.
    #[test]
    fn gradients_that_others_need_are_kept() {
        let mut rng = Rng(5);
        let mut fitting = 0;
        for i in 0..12 {
            let (h, w, padding) = (14 + rng.below(6), 14 + rng.below(6), [rng.below(2), rng.below(2)]);
            let (n, c, k) = (16 * (4 + rng.below(3)), 16 + rng.below(20), 16 + rng.below(40));
            let (stride, dilation) = ([1, 1], [1, 1]);
            let g = Geometry { n, c, h, w, k, r: 3, s: 3, stride, padding, dilation, groups: 1 };
            let (h, w) = (g.oh(), g.ow());
            let (kernel, stride) = ([2, 2], [2, 2]);
            let pool = Pool { n, c: k, h, w, kernel, stride, padding: [0, 0], ceil_mode: false };
            fitting += usize::from(check(g, pool, [i % 2 == 0, i % 5 != 0, true]));
            // Tasks would have parts of an image.
            assert!(!check(Geometry { n: n + 1, ..g }, Pool { n: n + 1, ..pool }, [true; 3]));
        }
        assert!(fitting > 6, "{fitting} shapes");
    }

    #[test]
    fn images_of_other_sizes_do_not_fit() {
        let g = Geometry {
            n: 64,
            c: 3,
            h: 24,
            w: 24,
            k: 32,
            r: 3,
            s: 3,
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        let pool =
            Pool { n: 64, c: 32, h: 24, w: 24, kernel: [2, 2], stride: [2, 2], padding: [0, 0], ceil_mode: false };
        assert!(Weights::new(g, true, pool, true, false).is_some());
        assert!(Weights::new(g, true, Pool { h: 23, ..pool }, true, false).is_none());
        // One task has all: nothing to join.
        assert!(Weights::new(Geometry { n: 1, ..g }, true, Pool { n: 1, ..pool }, true, false).is_none());
    }
}
