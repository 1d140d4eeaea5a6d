//! Both kernels against plain loops in double precision, which go the way of the ops one by one.

use super::*;
use crate::cpu::gemm::Activation;
use crate::cpu::tasks::testing::{Rng, close, run};
use crate::ops::batch_norm::cpu::{TrainForward, Training};
use crate::ops::conv2d::cpu::{Forward, Winners};
use crate::ops::conv2d::reference::ForwardReference;

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// `[n, size, c]` as `[n, c, size]`.
fn in_rows(size: usize, c: usize, x: &[f32]) -> Vec<f32> {
    (0..x.len()).map(|i| x[(i / (c * size) * size + i % size) * c + i / size % c]).collect()
}

struct Case {
    g: Geometry,
    options: Options,
    /// The convolution has a bias.
    biased: bool,
    images: Vec<f32>,
    filters: Vec<f32>,
    bias: Vec<f32>,
    weight: Vec<f32>,
    shift: Vec<f32>,
    slopes: Vec<f32>,
}

impl Case {
    fn new(g: Geometry, options: Options, biased: bool, offset: f32, rng: &mut Rng) -> Self {
        let mut images: Vec<f32> = rng.vec(g.n * g.h * g.w * g.c);
        images.iter_mut().for_each(|x| *x += offset);
        let filters = rng.vec(g.k * g.c * g.r * g.s);
        let mut weight: Vec<f32> = rng.vec(g.k);
        // Of neither sign: the first element of a window wins.
        weight[1] = 0.0;
        if !options.affine {
            weight.fill(1.0);
        }
        let shift = if options.affine { rng.vec(g.k) } else { vec![0.0; g.k] };
        let bias = if biased { rng.vec(g.k) } else { vec![0.0; g.k] };
        let slopes = rng.vec(g.n * g.k * windows(&g).iter().product::<usize>());
        Case { g, options, biased, images, filters, bias, weight, shift, slopes }
    }

    /// What is convolved.
    fn convolved(&self) -> Vec<f64> {
        let mut y = vec![f64::NAN; self.g.n * self.g.oh() * self.g.ow() * self.g.k];
        let [mut x, mut w, mut b] = [&self.images, &self.filters, &self.bias].map(|v| wide(v));
        let reference = ForwardReference::<f64>::new(self.g, true, Activation::None);
        run(&reference, &[Buf::over(&mut x), Buf::over(&mut w), Buf::over(&mut b)], &[Buf::over(&mut y)]);
        y
    }

    /// Mean and inverse deviation of each channel.
    fn statistics(&self, y: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let rows = (y.len() / self.g.k) as f64;
        let channel = |k: usize| y.iter().skip(k).step_by(self.g.k);
        let mean: Vec<f64> = (0..self.g.k).map(|k| channel(k).sum::<f64>() / rows).collect();
        let variance = |k: usize| channel(k).map(|v| (v - mean[k]).powi(2)).sum::<f64>() / rows;
        let dev = (0..self.g.k).map(|k| 1.0 / (variance(k) + EPS).sqrt()).collect();
        (mean, dev)
    }

    /// The winners of windows, and where they stand in what is convolved.
    fn winners(&self, y: &[f64]) -> (Vec<f64>, Vec<usize>) {
        let (g, [down, across]) = (&self.g, windows(&self.g));
        let all = (0..g.n * down * across * g.k).map(|i| {
            let (window, k) = (i / g.k, i % g.k);
            let (image, row, column) = (window / across / down, window / across % down, window % across);
            let at = |i: usize| ((image * g.oh() + 2 * row + i / 2) * g.ow() + 2 * column + i % 2) * g.k + k;
            let signed = |i: usize| y[at(i)] * f64::from(self.weight[k]);
            let best = (1..4).fold(0, |best, i| if signed(i) > signed(best) { i } else { best });
            (y[at(best)], at(best))
        });
        all.unzip()
    }

    fn given_images(&self) -> Vec<f32> {
        let g = &self.g;
        if self.options.from_rows { in_rows(g.h * g.w, g.c, &self.images) } else { self.images.clone() }
    }

    fn forward(&self) {
        let g = self.g;
        let y = self.convolved();
        let (want, at) = self.winners(&y);
        let winners = Winners { scales: self.options.affine, from_rows: self.options.from_rows };
        let kernel = Bands::new(g, self.biased, Some(winners)).expect("sizes that fit");
        let mut statistics = vec![f64::NAN; kernel.parts() * (1 + 2 * g.k)];
        let (mut got, mut places) = (vec![f32::NAN; want.len()], vec![9u8; want.len()]);
        let (mut images, mut filters) = (self.given_images(), self.filters.clone());
        let (mut bias, mut weight) = (self.bias.clone(), self.weight.clone());
        let mut inputs = vec![Buf::over(&mut images), Buf::over(&mut filters)];
        inputs.extend(self.biased.then(|| Buf::over(&mut bias)));
        inputs.extend(self.options.affine.then(|| Buf::over(&mut weight)));
        let outputs = [Buf::over(&mut got), Buf::over(&mut statistics), Buf::over(&mut places)];
        run(&kernel, &inputs, &outputs);
        close(&got, &want, 1e-5);
        // As near as rounding tells elements apart.
        for (i, place) in places.iter().enumerate() {
            let (window, k) = (at[i] / g.k, i % g.k);
            let top = window / g.ow() / 2 * 2 * g.ow() + window % g.ow() / 2 * 2;
            let found = y[(top + usize::from(place / 2) * g.ow() + usize::from(place % 2)) * g.k + k];
            assert!((found - want[i]).abs() < 1e-5 * want[i].abs().max(1.0), "place {place} of {i}");
            assert!(self.weight[k] != 0.0 || *place == 0);
        }
        // The same bits as where all that is convolved is given.
        let mut all = vec![f32::NAN; y.len()];
        let mut whole = vec![f64::NAN; statistics.len()];
        let kernel = Bands::new(g, self.biased, None).expect("sizes that fit");
        let mut images = self.images.clone();
        inputs[0] = Buf::over(&mut images);
        inputs.truncate(2 + usize::from(self.biased));
        run(&kernel, &inputs, &[Buf::over(&mut all), Buf::over(&mut whole)]);
        close(&all, &y, 1e-5);
        assert_eq!(statistics, whole);
        // Which batch normalisation takes.
        let (mean, dev) = self.statistics(&y);
        let training =
            Training { eps: EPS, activation: Activation::None, affine: false, track: false, cumulative: false };
        let (mut means, mut devs) = (vec![0f32; g.k], vec![0f32; g.k]);
        let norm = TrainForward::<f32>::new(got.len() / g.k, g.k, training).measured(kernel.parts());
        let mut normal = vec![0f32; got.len()];
        let outputs = [Buf::over(&mut normal), Buf::over(&mut means), Buf::over(&mut devs)];
        run(&norm, &[Buf::over(&mut got), Buf::over(&mut statistics)], &outputs);
        close(&means, &mean, 1e-5);
        close(&devs, &dev, 1e-5);
    }

    fn backward(&self, tolerance: f64) {
        let (g, options) = (self.g, self.options);
        let y = self.convolved();
        let (mean, dev) = self.statistics(&y);
        let (winners, at) = self.winners(&y);
        // Each op's gradient, one after the other.
        let pixels = (y.len() / g.k) as f64;
        let mut slopes = vec![0.0; y.len()];
        let (mut sum, mut dot) = (vec![0.0; g.k], vec![0.0; g.k]);
        for (i, (winner, at)) in winners.iter().zip(&at).enumerate() {
            let k = i % g.k;
            let apart = winner - mean[k];
            if apart * dev[k] * f64::from(self.weight[k]) + f64::from(self.shift[k]) > 0.0 {
                slopes[*at] = f64::from(self.slopes[i]);
                sum[k] += slopes[*at];
                dot[k] += slopes[*at] * apart;
            }
        }
        let (mut by_filters, mut by_bias) = (vec![0.0; self.filters.len()], vec![0.0; g.k]);
        for (i, slope) in slopes.iter().enumerate() {
            let (pixel, k) = (i / g.k, i % g.k);
            let (image, row, column) = (pixel / g.ow() / g.oh(), pixel / g.ow() % g.oh(), pixel % g.ow());
            let tilt = dot[k] * dev[k] * dev[k] / pixels;
            let dy = dev[k] * f64::from(self.weight[k]) * (slope - sum[k] / pixels - tilt * (y[i] - mean[k]));
            by_bias[k] += dy;
            for j in 0..g.c * g.r * g.s {
                let (c, r, s) = (j / (g.r * g.s), j / g.s % g.r, j % g.s);
                let place = |at: usize, axis: usize, tap: usize, size: usize| {
                    (at * g.stride[axis] + tap * g.dilation[axis]).checked_sub(g.padding[axis]).filter(|v| *v < size)
                };
                if let (Some(y), Some(x)) = (place(row, 0, r, g.h), place(column, 1, s, g.w)) {
                    let x = self.images[((image * g.h + y) * g.w + x) * g.c + c];
                    by_filters[k * g.c * g.r * g.s + j] += dy * f64::from(x);
                }
            }
        }

        let pooled = winners.iter().enumerate().map(|(i, winner)| {
            let k = i % g.k;
            ((winner - mean[k]) * dev[k] * f64::from(self.weight[k]) + f64::from(self.shift[k])).max(0.0) as f32
        });
        let (mut pooled, mut found): (Vec<f32>, _) = (pooled.collect(), self.slopes.clone());
        let mut places: Vec<u8> =
            at.iter().map(|at| (at / g.k / g.ow() % 2 * 2 + at / g.k % g.ow() % 2) as u8).collect();
        let mut devs: Vec<f32> = dev.iter().map(|dev| *dev as f32).collect();
        let (mut images, mut filters, mut weight) = (self.given_images(), self.filters.clone(), self.weight.clone());
        let mut inputs = vec![Buf::over(&mut found), Buf::over(&mut pooled), Buf::over(&mut places)];
        inputs.extend([Buf::over(&mut devs), Buf::over(&mut images), Buf::over(&mut filters)]);
        inputs.extend(options.affine.then(|| Buf::over(&mut weight)));
        let mut got = [g.k, g.k, self.filters.len(), g.k].map(|len| vec![f32::NAN; len]);
        let mut outputs: Vec<Buf> = got.iter_mut().map(|v| Buf::over(v)).collect();
        outputs.truncate(if options.bias { 4 } else { 3 });
        outputs.drain(..if options.affine { 0 } else { 2 });
        run(&Backward::new(g, options).expect("sizes that fit"), &inputs, &outputs);
        let near = |got: &[f32], want: &[f64], tolerance: f64| {
            let largest = want.iter().fold(1e-2, |a: f64, b| a.max(b.abs()));
            let scaled: Vec<f32> = got.iter().map(|v| v / largest as f32).collect();
            close(&scaled, &want.iter().map(|v| v / largest).collect::<Vec<f64>>(), tolerance);
        };
        near(&got[2], &by_filters, tolerance);
        if options.affine {
            let scales: Vec<f64> = dot.iter().zip(&dev).map(|(dot, dev)| dot * dev).collect();
            near(&got[0], &scales, 1e-5);
            near(&got[1], &sum, 1e-5);
        }
        if options.bias {
            // It is 0, but for what is rounded.
            let much = slopes.iter().map(|v| v.abs()).sum::<f64>() / g.k as f64;
            got[3].iter().zip(&by_bias).for_each(|(got, want)| {
                assert!((f64::from(*got) - want).abs() < 1e-5 * much, "{got} {want}");
            });
        }
    }
}

const EPS: f64 = 1e-3;

/// Sizes of all kinds that fit, and how many there were.
fn cases(mut check: impl FnMut(Case)) -> usize {
    let mut rng = Rng(11);
    let mut fitting = 0;
    for i in 0..160 {
        let (r, s, c) = (1 + rng.below(4), 1 + rng.below(4), 1 + rng.below(4));
        let g = Geometry {
            n: 16 + rng.below(20),
            c,
            h: r + 1 + rng.below(12),
            w: s + 1 + rng.below(24),
            k: 16 * (1 + rng.below(4)),
            r,
            s,
            stride: [1 + rng.below(2), 1 + rng.below(2)],
            padding: [rng.below(r), rng.below(s)],
            dilation: [1 + rng.below(2), 1 + rng.below(2)],
            groups: 1,
        };
        let biased = i % 3 != 0;
        let options = Options { from_rows: i % 2 == 0, bias: biased && i % 4 < 2, affine: i % 5 != 0 };
        if g.h + 2 * g.padding[0] <= g.dilation[0] * (r - 1) || g.w + 2 * g.padding[1] <= g.dilation[1] * (s - 1) {
            continue;
        }
        if Backward::new(g, options).is_none() {
            continue;
        }
        fitting += 1;
        check(Case::new(g, options, biased, 0.0, &mut rng));
    }
    fitting
}

#[test]
fn winners_and_statistics() {
    assert!(cases(|case| case.forward()) > 20);
}

#[test]
fn gradients_are_those_of_the_ops_one_by_one() {
    assert!(cases(|case| case.backward(2e-5)) > 20);
}

const FIRST: Geometry = Geometry {
    n: 40,
    c: 3,
    h: 16,
    w: 16,
    k: 32,
    r: 3,
    s: 3,
    stride: [1, 1],
    padding: [0, 0],
    dilation: [1, 1],
    groups: 1,
};

/// Images far from zero: nothing of the gradient is lost beside their mean.
#[test]
fn an_offset_cancels() {
    let options = Options { from_rows: true, bias: true, affine: true };
    for offset in [10.0, 100.0] {
        Case::new(FIRST, options, true, offset, &mut Rng(5)).backward(2e-4);
    }
}

#[test]
fn what_is_not_made_for_these_sizes_says_so() {
    let fits = |g: Geometry| Bands::new(g, true, None).is_some();
    assert!(fits(FIRST) && fits(Geometry { k: 64, ..FIRST }) && fits(Geometry { stride: [2, 1], h: 17, ..FIRST }));
    let others = [
        Geometry { n: 15, ..FIRST },
        Geometry { k: 24, ..FIRST },
        Geometry { k: 80, ..FIRST },
        Geometry { k: 0, ..FIRST },
        Geometry { c: 4, ..FIRST },
        Geometry { c: 0, ..FIRST },
        Geometry { h: 15, ..FIRST },
        Geometry { w: 17, ..FIRST },
        Geometry { h: 200, w: 200, ..FIRST },
    ];
    for g in others {
        assert!(!fits(g), "{g:?}");
    }
    // Whose statistics other kernels take, in as many parts as they have.
    let other = Geometry { n: 15, ..FIRST };
    let parts = Forward::parts_of(other);
    assert_eq!(crate::ops::conv2d::cpu::statistics(other), [parts, 1 + 2 * other.k]);
}
