//! The fast convolutions against the plain ones.

use super::super::reference::{ForwardReference, InputGradReference, WeightGradReference};
use super::winograd::{self, Winograd};
use super::*;
use crate::cpu::gemm::Activation;
use crate::cpu::gemm::tests::{close, noise, run, wide};
use crate::cpu::kernel::{Buf, Kernel};
use crate::cpu::tasks::testing;
use crate::ops::batch_norm::cpu::{TrainForward, Training, record};
use crate::ops::sgd_step::cpu::Step;

fn compare(fast: &dyn Kernel, plain: &dyn Kernel, inputs: &mut [Vec<f32>], sizes: &[usize], terms: usize, what: &str) {
    let expected = run(plain, &mut wide(inputs), sizes, false);
    let forwards = run(fast, inputs, sizes, false);
    let backwards = run(fast, inputs, sizes, true);
    for ((fast, again), plain) in forwards.iter().zip(&backwards).zip(&expected) {
        close(fast, plain, terms, what);
        assert_eq!(fast, again, "{what}");
    }
}

/// One for some shapes, the other for others.
fn some_relu(g: &Geometry) -> Activation {
    if (g.h + g.k).is_multiple_of(2) { Activation::Relu } else { Activation::Relu6 }
}

/// All passes in the way for few pixels, whether they are few or not.
fn check_few(g: Geometry) {
    let pixels = g.n * g.oh() * g.ow();
    let (x, y, weight, window) = (g.n * g.h * g.w * g.c, pixels * g.k, g.k * g.c * g.taps(), g.c * g.taps());
    let few = |pass: Pass| Few::possible(g, pass).expect("one group, nothing empty");
    for (bias, activation) in [(false, Activation::None), (true, some_relu(&g))] {
        let plain = ForwardReference::<f64>::new(g, bias, activation);
        let mut inputs = vec![noise(x, 1), noise(weight, 2), noise(g.k, 3)];
        inputs.truncate(2 + usize::from(bias));
        let what = format!("few, forward {g:?}");
        compare(&few(Pass::Forward { bias, activation }), &plain, &mut inputs, &[y], window, &what);

        let plain = WeightGradReference::<f64>::new(g, bias);
        let sizes = &[weight, g.k][..1 + usize::from(bias)];
        let what = format!("few, weight_grad {g:?}");
        let fast = few(Pass::WeightGrad { with_bias: bias, step: None });
        compare(&fast, &plain, &mut [noise(x, 1), noise(y, 4)], sizes, pixels, &what);
    }
    for (momentum, nesterov, maximize) in [(false, false, true), (true, false, false), (true, true, false)] {
        for (step, with_bias) in [(1.0, true), (2.0, false)] {
            check_few_step(g, Options { momentum, nesterov, maximize }, step, with_bias);
        }
    }
    let (plain, what) = (InputGradReference::<f64>::new(g), format!("few, input_grad {g:?}"));
    compare(&few(Pass::InputGrad), &plain, &mut [noise(y, 4), noise(weight, 2)], &[x], g.k * g.taps(), &what);
}

/// A step along gradients that are there already, and the same in one sweep with them.
fn check_few_step(g: Geometry, options: Options, step: f64, with_bias: bool) {
    let (x, y, size) = (g.n * g.h * g.w * g.c, g.n * g.oh() * g.ow() * g.k, g.k * g.c * g.taps());
    let (mut x, mut dy, mut bias) = (noise(x, 1), noise(y, 4), vec![f32::NAN; g.k]);
    let mut numbers = vec![0.1, 0.9, 0.3, 5e-4, step];
    // The first step must not read the buffer.
    let mut kept = vec![noise(size, 2), if step > 1.0 { noise(size, 5) } else { vec![f32::NAN; size] }];
    kept.truncate(options.operands() - 1);
    let mut alone = kept.clone();

    let few = |step| Few::possible(g, Pass::WeightGrad { with_bias, step }).expect("one group, nothing empty");
    let (mut gradients, mut again) = (vec![f32::NAN; size], vec![f32::NAN; size]);
    let given = |gradients: &mut Vec<f32>, bias: &mut Vec<f32>| {
        let mut given = vec![Buf::over(gradients), Buf::over(bias)];
        given.truncate(1 + usize::from(with_bias));
        given
    };
    let inputs = [Buf::over(&mut x), Buf::over(&mut dy)];
    testing::run(&few(None), &inputs, &given(&mut gradients, &mut bias));
    let mut operands: Vec<Buf> = alone.iter_mut().map(|v| Buf::over(v)).collect();
    let results = operands.clone();
    operands.insert(1, Buf::over(&mut gradients));
    operands.push(Buf::over(&mut numbers));
    testing::run(&Step::<f32>::new(&[size], options), &operands, &results);

    let mut inputs = inputs.to_vec();
    let mut outputs = given(&mut again, &mut bias);
    for kept in &mut kept {
        inputs.push(Buf::over(kept));
        outputs.push(Buf::over(kept));
    }
    inputs.push(Buf::over(&mut numbers));
    testing::run(&few(Some(options)), &inputs, &outputs);
    assert_eq!(gradients, again, "{g:?}, {options:?}");
    assert_eq!(alone, kept, "{g:?}, {options:?}, step {step}");
}

#[test]
fn few_pixels() {
    check_few(Geometry { padding: [1, 1], ..square(1, 64, 4, 40, 3) });
    check_few(Geometry { padding: [1, 1], stride: [2, 2], ..square(1, 36, 8, 33, 3) });
    check_few(Geometry { padding: [2, 1], dilation: [2, 1], ..square(2, 7, 5, 130, 3) });
    check_few(square(3, 90, 1, 15, 1));
    check_few(Geometry { padding: [1, 0], stride: [1, 2], ..square(1, 3, 9, 5, 5) });
    check_few(Geometry { w: 2, s: 2, ..square(1, 600, 3, 28, 3) });
    // Whole registers of pixels and a few more, which are no vectors; and only these.
    check_few(square(1, 70, 7, 40, 1));
    check_few(Geometry { padding: [1, 1], ..square(2, 20, 5, 30, 3) });
    check_few(Geometry { h: 3, w: 17, ..square(1, 530, 3, 33, 1) });
    check_few(square(1, 40, 3, 20, 3));
}

#[test]
fn padding_is_left_out() {
    for (r, s) in [(1, 7), (7, 1), (1, 5), (5, 1)] {
        let padding = [r / 2, s / 2];
        for (n, c, size, k) in [(8, 20, 14, 40), (1, 33, 14, 34), (3, 100, 9, 16), (8, 48, 17, 33)] {
            check(Geometry { r, s, padding, ..square(n, c, size, k, 1) });
        }
        check(Geometry { r, s, padding, stride: [2, 1], ..square(2, 18, 15, 32, 1) });
        check(Geometry { r, s, padding: padding.map(|p| 2 * p), dilation: [2, 2], ..square(3, 34, 14, 32, 1) });
        // Some pixels meet nothing but padding.
        check(Geometry { r, s, padding: [2 * r, 2 * s], ..square(2, 16, 14, 33, 1) });
    }
    check(Geometry { padding: [3, 3], ..square(4, 32, 7, 32, 7) });
}

#[test]
fn reach_of_filters() {
    let g = Geometry { r: 1, s: 7, padding: [0, 3], ..square(1, 1, 14, 1, 1) };
    assert_eq!([0, 3, 10, 13].map(|at| g.reach(1, at)), [3..7, 0..7, 0..7, 0..4]);
    assert_eq!([0, 3, 6].map(|tap| g.reached(1, tap)), [3..14, 0..14, 0..11]);
    let g = Geometry { stride: [2, 2], dilation: [2, 2], padding: [5, 5], ..square(1, 1, 4, 1, 3) };
    assert_eq!((0..g.oh()).map(|at| g.reach(0, at)).collect::<Vec<_>>(), [3..3, 2..3, 1..3, 0..2, 0..1].to_vec());
}

fn check(g: Geometry) {
    let pixels = g.n * g.oh() * g.ow();
    let (x, y) = (g.n * g.h * g.w * g.c, pixels * g.k);
    let weight = g.k * g.c / g.groups * g.r * g.s;
    let window = g.c / g.groups * g.r * g.s;
    for (bias, activation) in [(false, Activation::None), (true, some_relu(&g))] {
        let fast = Forward::new(g, bias, false, activation).by(None);
        let plain = ForwardReference::<f64>::new(g, bias, activation);
        let mut inputs = vec![noise(x, 1), noise(weight, 2)];
        if bias {
            inputs.push(noise(g.k, 3));
        }
        compare(&fast, &plain, &mut inputs, &[y], window, &format!("forward {g:?}"));
        if bias {
            let fast = Forward::new(g, true, true, activation).by(None);
            scaled(g, &fast, &plain, inputs, y);
        }

        let (fast, plain) = (WeightGrad::new(g, bias).by(None), WeightGradReference::<f64>::new(g, bias));
        let sizes = [weight, g.k];
        let sizes = if bias { &sizes[..] } else { &sizes[..1] };
        let mut inputs = [noise(x, 1), noise(y, 4)];
        compare(&fast, &plain, &mut inputs, sizes, pixels, &format!("weight_grad {g:?}"));
    }
    let (fast, plain) = (InputGrad::new(g).by(None), InputGradReference::<f64>::new(g));
    let mut inputs = [noise(y, 4), noise(weight, 2)];
    let terms = g.k / g.groups * g.r * g.s;
    compare(&fast, &plain, &mut inputs, &[x], terms, &format!("input_grad {g:?}"));
}

/// Filters that are scaled on the way give what filters give that were scaled before.
fn scaled(g: Geometry, fast: &Forward, plain: &dyn Kernel, mut inputs: Vec<Vec<f32>>, y: usize) {
    let window = g.c / g.groups * g.r * g.s;
    let scale = noise(g.k, 5);
    inputs.push(scale.clone());
    let got = run(fast, &mut inputs, &[y], false);
    for (filter, scale) in inputs[1].chunks_mut(window.max(1)).zip(&scale) {
        filter.iter_mut().for_each(|x| *x *= scale);
    }
    let want = run(plain, &mut wide(&inputs[..3]), &[y], false);
    close(&got[0], &want[0], window, &format!("scaled {g:?}"));
}

/// A square convolution without padding.
fn square(n: usize, c: usize, size: usize, k: usize, filter: usize) -> Geometry {
    Geometry {
        n,
        c,
        h: size,
        w: size,
        k,
        r: filter,
        s: filter,
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        groups: 1,
    }
}

#[test]
fn networks() {
    check(square(4, 3, 32, 6, 5));
    check(square(4, 6, 14, 16, 5));
    check(Geometry { padding: [1, 1], ..square(3, 3, 32, 32, 3) });
    check(Geometry { padding: [1, 1], ..square(5, 32, 16, 64, 3) });
    check(Geometry { padding: [1, 1], ..square(1, 64, 32, 64, 3) });
    check(Geometry { padding: [1, 1], stride: [2, 2], ..square(2, 64, 16, 128, 3) });
    check(Geometry { stride: [2, 2], ..square(2, 64, 16, 128, 1) });
    check(Geometry { padding: [1, 1], ..square(5, 256, 4, 520, 3) });
    check(Geometry { padding: [3, 3], stride: [2, 2], ..square(1, 3, 40, 64, 7) });
}

#[test]
fn points() {
    for (n, c, size, k) in [(1, 130, 7, 100), (3, 33, 5, 260), (2, 1024, 4, 17), (8, 5, 16, 7), (2, 9, 33, 18)] {
        check(square(n, c, size, k, 1));
    }
    check(Geometry { w: 1, ..square(5, 64, 3, 300, 1) });
    check(square(0, 3, 8, 6, 1));
    check(square(2, 0, 8, 6, 1));
    check(square(2, 3, 8, 0, 1));
}

/// Pixels that lie a power of two apart, and that many: tasks copy them, or the gradients, to where they are not crowded.
#[test]
fn crowded_points() {
    let g = Geometry { stride: [2, 2], ..square(5, 512, 9, 1024, 1) };
    check(g);
    check_statistics(g, false);
    check(Geometry { stride: [3, 2], w: 12, groups: 2, ..square(5, 512, 10, 1024, 1) });
    check(square(6, 1024, 5, 768, 1));
    check(Geometry { padding: [1, 0], ..square(5, 1024, 6, 512, 1) });
}

/// Few filters beyond whole panels: panels of one column, whose vectors run along the window, or not where it is short.
#[test]
fn few_columns_at_the_end() {
    for (c, k) in [(16, 33), (24, 1), (33, 35), (100, 130), (130, 36), (48, 4), (5, 34)] {
        let same = |filter: usize| Geometry { padding: [filter / 2; 2], ..square(2, c, 9, k, filter) };
        for g in [
            same(1),
            same(3),
            same(5),
            square(3, c, 6, k, 2),
            Geometry { stride: [2, 1], ..same(3) },
            Geometry { dilation: [2, 2], padding: [2, 2], ..same(3) },
            Geometry { c: 2 * c, k: 2 * k, groups: 2, ..same(3) },
        ] {
            check(g);
            check_statistics(g, false);
        }
    }
}

/// Kernels share filters only where both have packed them in the same panels.
#[test]
fn packed_in_the_same_panels() {
    let g = Geometry { padding: [0, 8], ..square(40, 1, 12, 33, 9) };
    let forward = |g: Geometry| Forward::new(g, false, false, Activation::None).by(None);
    let (near, apart) = (forward(g), forward(Geometry { dilation: [1, 2], ..g }));
    let form = |kernel: &Forward| Kernel::prepared(kernel).expect("filters are packed").form;
    assert_ne!(form(&near), form(&apart));
    assert_eq!(form(&near), form(&forward(Geometry { n: 70, ..g })));
}

/// Images that no cache holds: what comes next is asked for, beyond the last one too.
#[test]
fn far_images() {
    check(square(2, 64, 224, 3, 1));
    check(Geometry { stride: [1, 2], ..square(1, 64, 340, 5, 1) });
    check(Geometry { padding: [1, 1], stride: [2, 2], groups: 20, ..square(2, 20, 400, 20, 3) });
    check(Geometry { padding: [3, 3], groups: 16, ..square(1, 16, 500, 16, 3) });
    // Results that go past the caches, whole and with statistics; and such as have no whole lines.
    check(Geometry { padding: [1, 1], ..square(70, 3, 64, 32, 3) });
    check(square(3, 2, 250, 40, 5));
    check_statistics(Geometry { padding: [1, 1], ..square(70, 3, 64, 32, 3) }, false);
}

#[test]
fn empty() {
    check(square(0, 3, 8, 6, 3));
    check(square(2, 0, 8, 6, 3));
    check(square(2, 3, 8, 0, 3));
    check(square(2, 3, 2, 4, 3));
}

#[test]
fn depthwise() {
    for channels in [1, 3, 16, 37] {
        for stride in [1, 2] {
            let g = Geometry { padding: [1, 1], groups: channels, ..square(2, channels, 9, channels, 3) };
            check(Geometry { stride: [stride, stride], ..g });
        }
    }
    // Channels that are split among tasks; few pixels and many; filters longer than what is summed at once.
    check(Geometry { padding: [1, 1], groups: 300, ..square(1, 300, 7, 300, 3) });
    check(Geometry { padding: [1, 1], stride: [2, 2], groups: 129, ..square(3, 129, 14, 129, 3) });
    check(Geometry { padding: [1, 1], groups: 17, ..square(2, 17, 40, 17, 3) });
    check(Geometry { padding: [0, 5], r: 1, groups: 20, ..square(2, 20, 9, 20, 11) });
}

#[test]
fn depthwise_sweep() {
    let mut state = 11u64;
    let mut pick = |from: &[usize]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from[(state >> 33) as usize % from.len()]
    };
    for _ in 0..250 {
        let channels = pick(&[2, 3, 8, 15, 16, 17, 33, 48, 100, 130]);
        check(Geometry {
            n: pick(&[0, 1, 2, 5]),
            c: channels,
            h: pick(&[1, 2, 5, 7, 13]),
            w: pick(&[1, 3, 6, 8, 14, 19]),
            k: channels,
            r: pick(&[1, 2, 3, 5, 7]),
            s: pick(&[1, 3, 4, 5, 10]),
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3, 4])],
            padding: [pick(&[0, 1, 2, 6]), pick(&[0, 1, 2, 11])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2, 3])],
            groups: channels,
        });
    }
}

#[test]
fn few_channels_a_group() {
    // Groups that fill registers and that do not; registers that are split among tasks; stride, and longer filters.
    for (groups, from, to) in [(32, 4, 4), (5, 2, 2), (9, 3, 3), (16, 2, 4), (7, 5, 1), (33, 1, 2), (12, 8, 8)] {
        let g = Geometry { padding: [1, 1], groups, ..square(2, groups * from, 9, groups * to, 3) };
        check(g);
        check(Geometry { stride: [2, 2], ..g });
        check(Geometry { padding: [2, 2], r: 5, s: 5, ..g });
    }
    check(Geometry { padding: [1, 1], groups: 64, ..square(3, 256, 14, 256, 3) });
    check(Geometry { groups: 40, ..square(2, 120, 6, 240, 1) });
}

#[test]
fn few_channels_a_group_sweep() {
    let mut state = 5u64;
    let mut pick = |from: &[usize]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from[(state >> 33) as usize % from.len()]
    };
    for _ in 0..300 {
        let groups = pick(&[2, 3, 4, 7, 9, 16, 33]);
        check(Geometry {
            n: pick(&[0, 1, 2, 5]),
            c: groups * pick(&[1, 2, 3, 4, 5, 8]),
            h: pick(&[1, 2, 5, 7, 13]),
            w: pick(&[1, 3, 6, 8, 14, 19]),
            k: groups * pick(&[1, 2, 3, 4, 6, 8]),
            r: pick(&[1, 2, 3, 5]),
            s: pick(&[1, 3, 3, 4, 5]),
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])],
            padding: [pick(&[0, 1, 2, 6]), pick(&[0, 1, 2, 7])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2, 3])],
            groups,
        });
    }
}

#[test]
fn sweep() {
    let mut state = 7u64;
    let mut pick = |from: &[usize]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from[(state >> 33) as usize % from.len()]
    };
    for _ in 0..250 {
        let groups = pick(&[1, 1, 1, 2, 3]);
        check(Geometry {
            n: pick(&[1, 2, 3, 7]),
            c: groups * pick(&[1, 2, 3, 5, 8, 16, 17, 33]),
            h: pick(&[1, 4, 5, 7, 10, 13]),
            w: pick(&[1, 3, 5, 8, 9, 12]),
            k: groups * pick(&[1, 3, 6, 8, 9, 16, 18, 34]),
            r: pick(&[1, 2, 3, 5]),
            s: pick(&[1, 2, 3, 4]),
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])],
            padding: [pick(&[0, 1, 2]), pick(&[0, 0, 1, 2])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2, 3])],
            groups,
        });
    }
}

/// The largest error of a value of one result, relative to its largest value.
fn error(
    fast: &dyn Kernel,
    plain: &dyn Kernel,
    inputs: &mut [Vec<f32>],
    sizes: &[usize],
    result: usize,
    what: &str,
) -> f64 {
    let want = run(plain, &mut wide(inputs), sizes, false).swap_remove(result);
    let got = run(fast, inputs, sizes, false).swap_remove(result);
    assert_eq!(got, run(fast, inputs, sizes, true).swap_remove(result), "{what}");
    let largest = want.iter().fold(0f64, |m, y| m.max(y.abs()));
    got.iter().zip(&want).fold(0f64, |m, (x, y)| m.max((f64::from(*x) - y).abs())) / largest.max(1e-30)
}

/// All passes in Winograd's way.
fn check_winograd(g: Geometry) {
    let (x, y, weight) = (g.n * g.h * g.w * g.c, g.n * g.oh() * g.ow() * g.k, g.k * g.group_c() * 9);
    let activation = some_relu(&g);
    let pass = winograd::Pass::Forward { bias: true, scaled: false, activation };
    let fast = Forward::new(g, true, false, activation).by(Winograd::possible(g, pass));
    let plain = ForwardReference::<f64>::new(g, true, activation);
    assert!(Winograd::possible(g, pass).is_some(), "{g:?}");
    let mut inputs = vec![noise(x, 1), noise(weight, 2), noise(g.k, 3)];
    let forward = error(&fast, &plain, &mut inputs, &[y], 0, &format!("{g:?}"));
    assert!(forward < 1e-5, "forward {g:?}: {forward:e}");
    let pass = winograd::Pass::Forward { bias: true, scaled: true, activation };
    let fast = Forward::new(g, true, true, activation).by(Winograd::possible(g, pass));
    scaled(g, &fast, &plain, inputs, y);

    let fast = InputGrad::new(g).by(Winograd::possible(g, winograd::Pass::InputGrad));
    let mut inputs = [noise(y, 4), noise(weight, 2)];
    let back = error(&fast, &InputGradReference::<f64>::new(g), &mut inputs, &[x], 0, &format!("{g:?}"));
    assert!(back < 1e-5, "input_grad {g:?}: {back:e}");

    for bias in [false, true] {
        let fast = WeightGrad::new(g, bias).by(winograd::WeightGrad::possible(g, bias));
        let plain = WeightGradReference::<f64>::new(g, bias);
        let mut inputs = [noise(x, 1), noise(y, 4)];
        let sizes = if bias { vec![weight, g.k] } else { vec![weight] };
        for (part, size) in sizes.iter().enumerate() {
            let filters = error(&fast, &plain, &mut inputs, &sizes, part, &format!("{g:?}"));
            assert!(filters < 1e-5, "weight_grad {g:?}, result {part} of {size}: {filters:e}");
        }
    }
}

#[test]
fn winograd_ways() {
    for (n, c, size, k, padding) in [
        (2, 64, 32, 64, 1),
        (3, 16, 9, 33, 0),
        (1, 1, 3, 1, 0),
        (5, 17, 4, 16, 2),
        (2, 256, 8, 48, 1),
        (9, 24, 7, 40, 1),
        (1, 512, 4, 64, 1),
        (3, 300, 5, 307, 1),
    ] {
        check_winograd(Geometry { padding: [padding, padding], ..square(n, c, size, k, 3) });
    }
    check_winograd(Geometry { padding: [1, 2], w: 5, ..square(2, 19, 11, 21, 3) });
    // So many tiles that tasks have images of their own for the weights; and images larger than caches.
    for (n, c, size, k, groups) in [(70, 32, 16, 64, 1), (65, 19, 13, 21, 1), (260, 20, 5, 20, 2), (17, 33, 30, 40, 1)]
    {
        check_winograd(Geometry { padding: [1, 1], groups, ..square(n, groups * c, size, groups * k, 3) });
    }
    // Groups whose channels begin in the middle of registers, and groups of more channels than are transformed at once.
    for (groups, c, size, k) in [(2, 48, 13, 48), (4, 25, 14, 25), (3, 17, 9, 40), (2, 70, 6, 100), (5, 2, 7, 3)] {
        check_winograd(Geometry { padding: [1, 1], groups, ..square(3, groups * c, size, groups * k, 3) });
    }
}

/// The images of a convolution that measures, and the statistics of all its parts.
fn measured(fast: Forward, inputs: &mut [Vec<f32>], pixels: usize, k: usize) -> (Vec<f32>, Vec<f64>) {
    let (parts, fast) = (fast.parts(), fast.measuring());
    let (mut y, mut statistics) = (vec![f32::NAN; pixels * k], vec![f64::NAN; parts * record(k)]);
    let inputs: Vec<Buf> = inputs.iter_mut().map(|v| Buf::over(v)).collect();
    testing::run(&fast, &inputs, &[Buf::over(&mut y), Buf::over(&mut statistics)]);
    (y, statistics)
}

/// Mean and variance of each channel.
fn plain_statistics(y: &[f32], k: usize) -> Vec<[f64; 2]> {
    let pixels = (y.len() / k) as f64;
    let of = |channel: usize| y.iter().skip(channel).step_by(k).map(|&v| f64::from(v));
    let pair = |channel: usize| {
        let mean = of(channel).sum::<f64>() / pixels;
        [mean, of(channel).map(|v| (v - mean).powi(2)).sum::<f64>() / pixels]
    };
    (0..k).map(pair).collect()
}

/// What batch normalisation makes of a convolution's statistics, and what of the images alone: mean and variance of each
/// channel.
fn normalised(y: &mut [f32], statistics: Option<&mut [f64]>, k: usize) -> Vec<[f64; 2]> {
    let options = Training { eps: 0.0, activation: Activation::None, affine: false, track: false, cumulative: false };
    let (mut out, mut means, mut devs) = (vec![f32::NAN; y.len()], vec![f32::NAN; k], vec![f32::NAN; k]);
    let kernel = TrainForward::<f32>::new(y.len() / k, k, options);
    let outputs = [Buf::over(&mut out), Buf::over(&mut means), Buf::over(&mut devs)];
    match statistics {
        Some(given) => {
            let parts = given.len() / record(k);
            testing::run(&kernel.measured(parts), &[Buf::over(y), Buf::over(given)], &outputs);
        }
        None => testing::run(&kernel, &[Buf::over(y)], &outputs),
    }
    means.iter().zip(&devs).map(|(&mean, &dev)| [f64::from(mean), f64::from(dev).powi(-2)]).collect()
}

/// Statistics that a convolution takes on the way are those of its images, which stay as they are.
fn check_statistics(g: Geometry, winograd: bool) {
    let pixels = g.n * g.oh() * g.ow();
    if pixels < 2 || g.k == 0 {
        return;
    }
    let window = g.c / g.groups * g.r * g.s;
    let activation = Activation::None;
    for bias in [false, true] {
        let pass = winograd::Pass::Forward { bias, scaled: false, activation };
        let way = || if winograd { Winograd::possible(g, pass) } else { None };
        let mut inputs = vec![noise(g.n * g.h * g.w * g.c, 1), noise(g.k * window, 2)];
        if bias {
            inputs.push(noise(g.k, 3).iter().map(|b| 40.0 * b).collect());
        }
        let plain = run(&Forward::new(g, bias, false, activation).by(way()), &mut inputs, &[pixels * g.k], false);
        let (mut y, mut given) = measured(Forward::new(g, bias, false, activation).by(way()), &mut inputs, pixels, g.k);
        assert_eq!(y, plain[0], "{g:?}");
        let counted: f64 = given.iter().step_by(record(g.k)).sum();
        assert_eq!(counted, pixels as f64, "{g:?}");
        let want = plain_statistics(&y, g.k);
        for (got, want) in normalised(&mut y, Some(&mut given), g.k).iter().zip(&want) {
            // Channels of padding alone have no variance but rounding's.
            let near = 1e-6 * (want[0].abs() + want[1].sqrt());
            assert!((got[0] - want[0]).abs() <= near, "{g:?}: mean {} is not {}", got[0], want[0]);
            assert!((got[1] - want[1]).abs() <= 1e-5 * want[1] + near * near, "{g:?}: {} is not {}", got[1], want[1]);
        }
    }
}

#[test]
fn statistics_of_every_way() {
    for (n, c, size, k, padding) in [(2, 64, 32, 64, 1), (3, 16, 9, 33, 0), (5, 17, 4, 16, 2), (3, 300, 5, 307, 1)] {
        check_statistics(Geometry { padding: [padding, padding], ..square(n, c, size, k, 3) }, true);
    }
    check_statistics(Geometry { padding: [1, 1], groups: 3, ..square(2, 75, 14, 99, 3) }, true);
    for channels in [3, 16, 37, 96] {
        let g = Geometry { padding: [1, 1], groups: channels, ..square(3, channels, 13, channels, 3) };
        check_statistics(g, false);
        check_statistics(Geometry { stride: [2, 2], ..g }, false);
    }
    for (groups, from, to) in [(32, 4, 4), (5, 3, 3), (9, 1, 2)] {
        let g = Geometry { padding: [1, 1], groups, ..square(3, groups * from, 13, groups * to, 3) };
        check_statistics(g, false);
    }
    let mut state = 11u64;
    let mut pick = |from: &[usize]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from[(state >> 33) as usize % from.len()]
    };
    for _ in 0..120 {
        let groups = pick(&[1, 1, 1, 2, 3]);
        let g = Geometry {
            n: pick(&[1, 2, 5, 9]),
            c: groups * pick(&[1, 3, 8, 17, 33]),
            h: pick(&[5, 7, 10, 13]),
            w: pick(&[5, 8, 9, 12]),
            k: groups * pick(&[1, 3, 8, 16, 18, 65]),
            r: pick(&[1, 1, 3, 5]),
            s: pick(&[1, 1, 3, 4]),
            stride: [pick(&[1, 1, 2]), pick(&[1, 1, 2])],
            padding: [pick(&[0, 1, 2]), pick(&[0, 1])],
            dilation: [1, pick(&[1, 1, 2])],
            groups,
        };
        if g.h + 2 * g.padding[0] >= g.r && g.w + 2 * g.padding[1] > (g.s - 1) * g.dilation[1] {
            check_statistics(g, false);
        }
    }
}

/// Channels whose mean is a thousand deviations, over more than 10⁵ pixels: the variance keeps its digits, as it does when
/// the images are measured afterwards.
#[test]
fn statistics_far_from_zero() {
    for (size, filter) in [(64, 1), (66, 3)] {
        let g = square(32, 16, size, 24, filter);
        let pixels = g.n * g.oh() * g.ow();
        // Weights of 16 channels of noise with variance a third: deviations of about one.
        let window = (g.c * filter * filter) as f32;
        let weight = noise(g.k * g.c * filter * filter, 2).iter().map(|w| 3.0 * w / window.sqrt()).collect();
        let mut inputs = vec![noise(g.n * g.h * g.w * g.c, 1), weight, vec![1000.0; g.k]];
        for winograd in [false, true] {
            let pass = winograd::Pass::Forward { bias: true, scaled: false, activation: Activation::None };
            let way = if winograd { Winograd::possible(g, pass) } else { None };
            let fast = Forward::new(g, true, false, Activation::None).by(way);
            let (mut y, mut given) = measured(fast, &mut inputs, pixels, g.k);
            let want = plain_statistics(&y, g.k);
            let afterwards = normalised(&mut y, None, g.k);
            let on_the_way = normalised(&mut y, Some(&mut given), g.k);
            let worst =
                |got: &[[f64; 2]]| got.iter().zip(&want).fold(0f64, |m, (g, w)| m.max((g[1] / w[1] - 1.0).abs()));
            let (before, now) = (worst(&afterwards), worst(&on_the_way));
            assert!(want.iter().all(|w| w[0] > 990.0 && (0.3..3.0).contains(&w[1].sqrt())), "{want:?}");
            // Both are as exact as the single-precision result they are read from.
            assert!(now < 1e-6 && now <= before.max(5e-7), "{now:e} on the way, {before:e} afterwards");
        }
    }
}
