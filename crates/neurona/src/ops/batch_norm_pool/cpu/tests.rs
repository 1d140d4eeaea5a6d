use super::{Backward, Forward};
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::Buf;
use crate::cpu::math::Real;
use crate::cpu::tasks::testing::{Rng, close, run};
use crate::ops::batch_norm::cpu::{TrainBackward, TrainForward, Training};
use crate::ops::max_pool2d::cpu as max_pool;
use crate::ops::pool::Pool;

fn geometry(n: usize, c: usize, size: [usize; 2], kernel: [usize; 2], stride: [usize; 2], ceil_mode: bool) -> Pool {
    Pool { n, c, h: size[0], w: size[1], kernel, stride, padding: [0, 0], ceil_mode }
}

/// Blocks of every width, rows and columns left over, gaps between windows, cut windows, one task and several.
fn shapes() -> Vec<Pool> {
    let mut all = vec![
        geometry(2, 1, [2, 2], [2, 2], [2, 2], false),
        geometry(3, 16, [1, 1], [1, 1], [1, 1], false),
        geometry(9, 32, [16, 18], [2, 2], [2, 2], false),
        geometry(9, 33, [15, 17], [2, 2], [2, 2], false),
        geometry(5, 64, [13, 14], [3, 3], [3, 3], true),
        // Larger than caches.
        geometry(3, 32, [257, 130], [2, 2], [2, 2], false),
        geometry(2, 19, [230, 360], [3, 2], [3, 3], true),
        geometry(0, 16, [4, 4], [2, 2], [2, 2], false),
    ];
    let mut rng = Rng(5);
    for _ in 0..60 {
        let kernel = [1 + rng.below(3), 1 + rng.below(3)];
        let stride = kernel.map(|k| k + rng.below(3));
        let size = kernel.map(|k| k + rng.below(9));
        all.push(geometry(2 + rng.below(3), 1 + rng.below(40), size, kernel, stride, rng.below(2) == 1));
    }
    all
}

/// The three kernels one after the other, forward and backward.
struct Plain<T> {
    pooled: Vec<T>,
    statistics: [Vec<T>; 4],
    dx: Vec<T>,
    by: [Vec<T>; 2],
}

/// Operands: x, gradient by the pooled images, weight, bias, running mean and variance.
fn one_by_one<T: Real>(g: Pool, options: Training, operands: &mut [Vec<T>; 6]) -> Plain<T> {
    let (rows, c) = (g.n * g.h * g.w, g.c);
    let [x, dp, weight, bias, mean, variance] = operands.each_mut().map(|v| Buf::over(v));
    let (mut y, mut pooled, mut places) =
        (vec![T::zero(); g.input_len()], vec![T::zero(); g.output_len()], vec![0u8; g.output_len()]);
    let mut statistics: [Vec<T>; 4] = std::array::from_fn(|_| vec![T::zero(); c]);
    let (mut before, mut after, mut momentum) = ([3i64], [0i64], [T::of(0.25)]);
    let mut inputs = vec![x];
    inputs.extend(options.affine.then_some([weight, bias]).into_iter().flatten());
    inputs.extend([mean, variance, Buf::over(&mut before), Buf::over(&mut momentum)]);
    let mut outputs = vec![Buf::over(&mut y)];
    outputs.extend(statistics.iter_mut().map(|v| Buf::over(v)));
    outputs.push(Buf::over(&mut after));
    run(&TrainForward::<T>::new(rows, c, Training { activation: Activation::Relu, ..options }), &inputs, &outputs);
    let results = [Buf::over(&mut pooled), Buf::over(&mut places)];
    run(&max_pool::Forward::<T>::new(g), &[Buf::over(&mut y)], &results);
    // SAFETY: nobody writes it.
    let slopes = unsafe { dp.slice::<T>() };
    let mut masked: Vec<T> =
        slopes.iter().zip(&pooled).map(|(d, p)| if *p > T::zero() { *d } else { T::zero() }).collect();
    let (mut dy, mut dx) = (vec![T::zero(); g.input_len()], vec![T::zero(); g.input_len()]);
    run(&max_pool::InputGrad::<T>::new(g), &[Buf::over(&mut masked), Buf::over(&mut places)], &[Buf::over(&mut dy)]);
    let mut by = [vec![T::zero(); c], vec![T::zero(); c]];
    let mut inputs = vec![Buf::over(&mut dy), x, Buf::over(&mut statistics[0]), Buf::over(&mut statistics[1])];
    inputs.extend(options.affine.then_some(weight));
    let mut outputs = vec![Buf::over(&mut dx)];
    outputs.extend(by.iter_mut().map(|v| Buf::over(v)));
    run(&TrainBackward::<T>::new(rows, c, options.affine, Activation::None), &inputs, &outputs);
    Plain { pooled, statistics, dx, by }
}

fn wide<T: Real>(values: &[T]) -> Vec<f64> {
    values.iter().map(|v| v.wide()).collect()
}

fn check<T: Real>(tolerance: f64) {
    let mut rng = Rng(1);
    for (i, g) in shapes().into_iter().enumerate() {
        let affine = i % 4 != 1;
        let options = Training { eps: 1e-3, activation: Activation::None, affine, track: true, cumulative: false };
        // Few different values, so that ties are common; now and then a channel with a NaN.
        let mut x: Vec<T> = (0..g.input_len()).map(|_| T::of(rng.below(9) as f64 - 4.0)).collect();
        if i % 5 == 4 {
            x[0] = T::nan();
        }
        let channel = |rng: &mut Rng| rng.vec::<T>(g.c);
        let variance = (0..g.c).map(|_| T::of(1.0 + rng.unit() / 2.0)).collect();
        let rest = [channel(&mut rng), channel(&mut rng), channel(&mut rng)];
        let [weight, bias, mean] = rest;
        let mut operands = [x, rng.vec(g.output_len()), weight, bias, mean, variance];
        let want = one_by_one(g, options, &mut operands);

        let [x, dp, weight, bias, mean, variance] = operands.each_mut().map(|v| Buf::over(v));
        let mut pooled = vec![T::nan(); g.output_len()];
        let mut statistics: [Vec<T>; 4] = std::array::from_fn(|_| vec![T::zero(); g.c]);
        let (mut before, mut after, mut momentum) = ([3i64], [0i64], [T::of(0.25)]);
        let mut inputs = vec![x];
        inputs.extend(affine.then_some([weight, bias]).into_iter().flatten());
        inputs.extend([mean, variance, Buf::over(&mut before), Buf::over(&mut momentum)]);
        let mut outputs = vec![Buf::over(&mut pooled)];
        outputs.extend(statistics.iter_mut().map(|v| Buf::over(v)));
        outputs.push(Buf::over(&mut after));
        run(&Forward::<T>::new(g, options), &inputs, &outputs);
        close(&pooled, &wide(&want.pooled), 0.0);
        for (got, want) in statistics.iter().zip(&want.statistics) {
            close(got, &wide(want), 0.0);
        }
        assert_eq!(after, [4]);

        let mut dx = vec![T::nan(); g.input_len()];
        let mut by = [vec![T::zero(); g.c], vec![T::zero(); g.c]];
        let mut inputs = vec![dp, x, Buf::over(&mut statistics[0]), Buf::over(&mut statistics[1])];
        inputs.extend(affine.then_some([weight, bias]).into_iter().flatten());
        let mut outputs = vec![Buf::over(&mut dx)];
        outputs.extend(by.iter_mut().map(|v| Buf::over(v)));
        run(&Backward::<T>::new(g, affine), &inputs, &outputs);
        close(&dx, &wide(&want.dx), tolerance);
        for (got, want) in by.iter().zip(&want.by) {
            close(got, &wide(want), tolerance);
        }
    }
}

#[test]
fn one_kernel_gives_what_three_give() {
    check::<f32>(2e-5);
    check::<f64>(1e-12);
}
