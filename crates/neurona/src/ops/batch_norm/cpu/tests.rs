//! Batch normalisation against plain loops, slopes, and hard data.

use super::*;
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::{Buf, Kernel};
use crate::cpu::tasks::testing::{Rng, close, run, slopes};

const EPS: f64 = 1e-5;
const ACTIVATIONS: [Activation; 3] = [Activation::None, Activation::Relu, Activation::Relu6];

/// Mean and biased variance of each column.
fn statistics(x: &[f64], c: usize) -> (Vec<f64>, Vec<f64>) {
    let rows = (x.len() / c) as f64;
    (0..c)
        .map(|j| {
            let column = || x.iter().skip(j).step_by(c);
            let mean = column().sum::<f64>() / rows;
            let variance = column().map(|v| (v - mean) * (v - mean)).sum::<f64>() / rows;
            (mean, variance)
        })
        .unzip()
}

fn normalised(x: &[f64], mean: &[f64], var: &[f64], w: &[f64], b: &[f64], activation: Activation) -> Vec<f64> {
    let c = mean.len();
    x.iter()
        .enumerate()
        .map(|(i, v)| (v - mean[i % c]) / (var[i % c] + EPS).sqrt() * w[i % c] + b[i % c])
        .map(|v| activation.apply(v))
        .collect()
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|v| v.wide()).collect()
}

struct Trained<T> {
    y: Vec<T>,
    mean: Vec<T>,
    dev: Vec<T>,
}

fn train<T: Real>(x: &[T], w: &[T], b: &[T], activation: Activation) -> Trained<T> {
    let (c, rows) = (w.len(), x.len() / w.len());
    let (mut x, mut w, mut b) = (x.to_vec(), w.to_vec(), b.to_vec());
    let mut out = Trained { y: vec![T::nan(); x.len()], mean: vec![T::nan(); c], dev: vec![T::nan(); c] };
    let options = Training { eps: EPS, activation, affine: true, track: false, cumulative: false };
    run(
        &TrainForward::<T>::new(rows, c, options),
        &[Buf::over(&mut x), Buf::over(&mut w), Buf::over(&mut b)],
        &[Buf::over(&mut out.y), Buf::over(&mut out.mean), Buf::over(&mut out.dev)],
    );
    out
}

fn shapes() -> Vec<(usize, usize)> {
    vec![
        (2, 1),
        (5, 3),
        (1000, 1),
        (40_000, 1),
        (33_001, 3),
        (20_011, 6),
        (3000, 64),
        (700, 100),
        (64, 2048),
        (7, 300),
        (3, 20_000),
    ]
}

fn check_train<T: Real>(tolerance: f64) {
    let mut rng = Rng(11);
    for (rows, c) in shapes() {
        for activation in ACTIVATIONS {
            let x: Vec<T> = rng.vec(rows * c);
            let (w, b): (Vec<T>, Vec<T>) = (rng.vec(c), rng.vec(c));
            let (mean, var) = statistics(&wide(&x), c);
            let got = train(&x, &w, &b, activation);
            close(&got.mean, &mean, tolerance);
            let dev: Vec<f64> = var.iter().map(|v| 1.0 / (v + EPS).sqrt()).collect();
            close(&got.dev, &dev, tolerance);
            let want = normalised(&wide(&x), &mean, &var, &wide(&w), &wide(&b), activation);
            close(&got.y, &want, 20.0 * tolerance);
        }
    }
}

#[test]
fn training_agrees_with_plain_loops() {
    check_train::<f32>(1e-6);
    check_train::<f64>(1e-12);
}

#[test]
fn a_large_offset_does_not_spoil_the_variance() {
    let mut rng = Rng(2);
    let (rows, c) = (30_000, 3);
    // The first rows differ from the rest, as a border of black pixels would.
    let x: Vec<f32> = (0..rows * c).map(|i| if i < 3000 { 0.0 } else { 1000.0 + rng.unit() as f32 }).collect();
    let (mean, var) = statistics(&wide(&x), c);
    let got = train(&x, &[1.0; 3], &[0.0; 3], Activation::None);
    close(&got.mean, &mean, 1e-7);
    let dev: Vec<f64> = var.iter().map(|v| 1.0 / (v + EPS).sqrt()).collect();
    close(&got.dev, &dev, 1e-7);

    let x: Vec<f32> = x[3000..].to_vec();
    let (_, var) = statistics(&wide(&x), c);
    let got = train(&x, &[1.0; 3], &[0.0; 3], Activation::None);
    for (got, var) in got.dev.iter().zip(&var) {
        assert!((f64::from(*got) * (var + EPS).sqrt() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn running_statistics_move_in_place() {
    let mut rng = Rng(4);
    for (rows, c, cumulative, affine) in
        [(50, 7, false, true), (4000, 16, false, false), (4000, 16, true, true), (0, 3, false, true)]
    {
        let mut x: Vec<f32> = rng.vec(rows * c);
        let (mut w, mut b): (Vec<f32>, Vec<f32>) = (rng.vec(c), rng.vec(c));
        let (mut mean, mut var): (Vec<f32>, Vec<f32>) = (rng.vec(c), rng.vec(c));
        let (mut batches, mut momentum) = ([4i64], [0.1f32]);
        let moved = |old: &[f32], new: &[f64]| -> Vec<f64> {
            let m = if cumulative { 0.2 } else { f64::from(0.1f32) };
            let m = if rows == 0 { 0.0 } else { m };
            let new = new.iter().map(|&v| if rows == 0 { 0.0 } else { v });
            let pairs = old.iter().zip(new);
            pairs.map(|(&o, n)| f64::from(o) * (1.0 - m) + n * m).collect()
        };
        let (want_mean, want_var) = statistics(&wide(&x), c);
        let unbiased: Vec<f64> = want_var.iter().map(|v| v * rows as f64 / (rows as f64 - 1.0)).collect();
        let (want_mean, want_var) = (moved(&mean, &want_mean), moved(&var, &unbiased));
        let (mut y, mut saved, mut dev) = (vec![0f32; rows * c], vec![0f32; c], vec![0f32; c]);
        let tracked = [Buf::over(&mut mean), Buf::over(&mut var), Buf::over(&mut batches)];
        let mut inputs = vec![Buf::over(&mut x)];
        if affine {
            inputs.extend([Buf::over(&mut w), Buf::over(&mut b)]);
        }
        inputs.extend(tracked);
        if !cumulative {
            inputs.push(Buf::over(&mut momentum));
        }
        let mut outputs = vec![Buf::over(&mut y), Buf::over(&mut saved), Buf::over(&mut dev)];
        outputs.extend(tracked);
        let options = Training { eps: EPS, activation: Activation::None, affine, track: true, cumulative };
        run(&TrainForward::<f32>::new(rows, c, options), &inputs, &outputs);
        close(&mean, &want_mean, 1e-6);
        close(&var, &want_var, 1e-6);
        assert_eq!(batches, [5]);
    }
}

#[test]
fn evaluation_agrees_with_plain_loops() {
    let mut rng = Rng(9);
    for (rows, c) in shapes().into_iter().chain([(0, 5)]) {
        for affine in [false, true] {
            let mut x: Vec<f32> = rng.vec(rows * c);
            let mut mean: Vec<f32> = rng.vec(c);
            let mut var: Vec<f32> = rng.vec(c).iter().map(|v: &f32| v.abs() + 0.1).collect();
            let (mut w, mut b): (Vec<f32>, Vec<f32>) = (rng.vec(c), rng.vec(c));
            if !affine {
                w.fill(1.0);
                b.fill(0.0);
            }
            let want = normalised(&wide(&x), &wide(&mean), &wide(&var), &wide(&w), &wide(&b), Activation::Relu);
            let mut y = vec![f32::NAN; rows * c];
            let mut inputs = vec![Buf::over(&mut x), Buf::over(&mut mean), Buf::over(&mut var)];
            if affine {
                inputs.extend([Buf::over(&mut w), Buf::over(&mut b)]);
            }
            let kernel = EvalForward::<f32>::new(rows, c, EPS, Activation::Relu, affine);
            run(&kernel, &inputs, &[Buf::over(&mut y)]);
            close(&y, &want, 1e-5);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// dx, dweight and dbias by `kernel` from dy, x, two statistics, weight and y.
fn backward(kernel: &dyn Kernel, operands: &[&[f64]], affine: bool) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut held: Vec<Vec<f64>> = operands.iter().map(|o| o.to_vec()).collect();
    let inputs: Vec<Buf> = held.iter_mut().map(|o| Buf::over(o)).collect();
    let c = operands[2].len();
    let mut dx = vec![f64::NAN; operands[0].len()];
    let (mut dw, mut db) = (vec![f64::NAN; c], vec![f64::NAN; c]);
    let mut outputs = vec![Buf::over(&mut dx)];
    if affine {
        outputs.extend([Buf::over(&mut dw), Buf::over(&mut db)]);
    }
    run(kernel, &inputs, &outputs);
    (dx, dw, db)
}

#[test]
fn gradients_are_slopes() {
    let mut rng = Rng(21);
    for (rows, c) in [(4, 1), (9, 3), (40, 6), (5, 70), (6000, 6), (12_000, 3)] {
        // Among thousands of rows some would cross ReLU's corner within a difference's step.
        for activation in ACTIVATIONS.into_iter().take(if rows > 1000 { 1 } else { 2 }) {
            let x: Vec<f64> = rng.vec(rows * c);
            let dy: Vec<f64> = rng.vec(rows * c);
            let (w, b): (Vec<f64>, Vec<f64>) = (rng.vec(c), rng.vec(c));
            let out = train(&x, &w, &b, activation);
            let mut operands: Vec<&[f64]> = vec![&dy, &x, &out.mean, &out.dev, &w];
            operands.extend((activation != Activation::None).then_some(&out.y[..]));
            let kernel = TrainBackward::<f64>::new(rows, c, true, activation);
            let (dx, dw, db) = backward(&kernel, &operands, true);
            slopes(&x, &dx, |x| dot(&train(x, &w, &b, activation).y, &dy));
            slopes(&w, &dw, |w| dot(&train(&x, w, &b, activation).y, &dy));
            slopes(&b, &db, |b| dot(&train(&x, &w, b, activation).y, &dy));

            let relu = activation == Activation::Relu;
            let activation = if relu { activation } else { Activation::None };
            let (mean, var) = (rng.vec::<f64>(c), vec![0.7; c]);
            let eval = |x: &[f64], w: &[f64], b: &[f64]| normalised(x, &mean, &var, w, b, activation);
            let y = eval(&x, &w, &b);
            let mut operands: Vec<&[f64]> = vec![&dy, &x, &mean, &var, &w];
            if relu {
                operands.push(&y);
            }
            let kernel = EvalBackward::<f64>::new(rows, c, EPS, true, relu);
            let (dx, dw, db) = backward(&kernel, &operands, true);
            slopes(&x, &dx, |x| dot(&eval(x, &w, &b), &dy));
            slopes(&w, &dw, |w| dot(&eval(&x, w, &b), &dy));
            slopes(&b, &db, |b| dot(&eval(&x, &w, b), &dy));
        }
    }
}

#[test]
fn activations_mask_the_gradient() {
    let mut rng = Rng(44);
    for (rows, c) in [(50, 3), (30_000, 3), (500, 64)] {
        for activation in ACTIVATIONS {
            let (x, dy): (Vec<f64>, Vec<f64>) = (rng.vec(rows * c), rng.vec(rows * c));
            // So that some results are above 6.
            let w: Vec<f64> = rng.vec(c).iter().map(|w: &f64| 3.0 + 8.0 * w.abs()).collect();
            let b: Vec<f64> = rng.vec(c);
            let out = train(&x, &w, &b, activation);
            let passes = |y: f64| match activation {
                Activation::None => true,
                Activation::Relu => y > 0.0,
                Activation::Relu6 => y > 0.0 && y < 6.0,
            };
            assert!(activation != Activation::Relu6 || out.y.contains(&6.0));
            let masked: Vec<f64> = dy.iter().zip(&out.y).map(|(d, &y)| if passes(y) { *d } else { 0.0 }).collect();
            let (mean, dev) = (&out.mean, &out.dev);
            let fused = TrainBackward::<f64>::new(rows, c, true, activation);
            let apart = TrainBackward::<f64>::new(rows, c, true, Activation::None);
            let mut operands: Vec<&[f64]> = vec![&dy, &x, mean, dev, &w];
            operands.extend((activation != Activation::None).then_some(&out.y[..]));
            assert_eq!(backward(&fused, &operands, true), backward(&apart, &[&masked, &x, mean, dev, &w], true));
            if activation == Activation::Relu {
                let fused = EvalBackward::<f64>::new(rows, c, EPS, true, true);
                let apart = EvalBackward::<f64>::new(rows, c, EPS, true, false);
                assert_eq!(backward(&fused, &operands, true), backward(&apart, &[&masked, &x, mean, dev, &w], true));
            }
        }
    }
}

/// What passes a relu without a greatest value may be infinite.
#[test]
fn infinity_passes_relu() {
    let (mut dx, dy, y) = ([0f32; 4], [1.0, 2.0, 3.0, 4.0], [f32::INFINITY, f32::NAN, 0.0, 6.0]);
    for (most, want) in [(None, [1.0, 2.0, 0.0, 4.0]), (Some(6.0), [0.0, 2.0, 0.0, 0.0])] {
        backward::mask(&mut dx, &dy, &y, most);
        assert_eq!(dx, want);
    }
}

#[test]
fn gradients_without_weights_and_of_nothing() {
    let mut rng = Rng(33);
    for (rows, c) in [(0, 3), (6, 2), (9000, 4)] {
        let (x, dy): (Vec<f64>, Vec<f64>) = (rng.vec(rows * c), rng.vec(rows * c));
        let out = train(&x, &vec![1.0; c], &vec![0.0; c], Activation::None);
        let with = TrainBackward::<f64>::new(rows, c, true, Activation::None);
        let ones = vec![1.0; c];
        let want = backward(&with, &[&dy, &x, &out.mean, &out.dev, &ones], true).0;
        let without = TrainBackward::<f64>::new(rows, c, false, Activation::None);
        let got = backward(&without, &[&dy, &x, &out.mean, &out.dev], false).0;
        assert_eq!(got, want);
        let eval = EvalBackward::<f64>::new(rows, c, 0.0, false, false);
        let (var, got) = (vec![4.0; c], vec![0.0; c]);
        let got = backward(&eval, &[&dy, &x, &got, &var], false).0;
        close(&got, &dy.iter().map(|d| d * 0.5).collect::<Vec<_>>(), 1e-12);
    }
}
