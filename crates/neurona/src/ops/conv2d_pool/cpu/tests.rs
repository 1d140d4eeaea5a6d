//! The joined kernels against the plain convolution, and a pool in plain loops.

use super::*;
use crate::cpu::gemm::Activation;
use crate::cpu::gemm::tests::{close, noise, run, wide};
use crate::cpu::kernel::{Buf, Io};
use crate::cpu::tasks::testing::Rng;
use crate::ops::conv2d::reference::{ForwardReference, InputGradReference, WeightGradReference};
use crate::ops::sgd_step::Options as SgdOptions;
use crate::ops::sgd_step::cpu::Step;

/// Runs all tasks of a kernel whose second output or input is bytes.
fn all(kernel: &dyn Kernel, inputs: &[Buf], outputs: &[Buf], backwards: bool) {
    let aligned = |bytes: usize| vec![[f64::NAN; 8]; bytes.div_ceil(64)];
    let (mut workspace, mut scratch) = (aligned(kernel.workspace()), aligned(kernel.scratch()));
    let io = Io {
        inputs,
        outputs,
        workspace: Buf::new(workspace.as_mut_ptr().cast(), kernel.workspace()),
        scratch: Buf::new(scratch.as_mut_ptr().cast(), kernel.scratch()),
    };
    for (phase, tasks) in kernel.phases().into_iter().enumerate() {
        for task in 0..tasks {
            kernel.run(phase, if backwards { tasks - 1 - task } else { task }, &io);
        }
    }
}

/// What a pool of 2 by 2 over a relu gives, and where the largest stood, as `[pixel][filter]`.
fn plain_pool(g: &Geometry, y: &[f64]) -> (Vec<f64>, Vec<u8>) {
    let [down, across] = pooled(g);
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for window in 0..g.n * down * across {
        let (image, row, column) = (window / across / down, window / across % down, window % across);
        for k in 0..g.k {
            let cell = |i: usize| y[((image * g.oh() + 2 * row + i / 2) * g.ow() + 2 * column + i % 2) * g.k + k];
            let mut best = 0;
            for i in 1..4 {
                if cell(i) > cell(best) || cell(i).is_nan() {
                    best = i;
                }
            }
            values.push(cell(best));
            places.push(if cell(best) > 0.0 { best as u8 } else { NOWHERE });
        }
    }
    (values, places)
}

/// Places `[n][pixel][filter]` in the order that the kernels of these sizes have them.
fn ordered(g: &Geometry, places: &[u8]) -> Vec<u8> {
    let pixels = pooled(g).iter().product::<usize>();
    if windows_abreast(g) { in_rows(pixels, g.k, places) } else { places.to_vec() }
}

/// `[n, size, c]` as `[n, c, size]`.
fn in_rows<T: Copy>(size: usize, c: usize, x: &[T]) -> Vec<T> {
    (0..x.len()).map(|i| x[(i / (c * size) * size + i % size) * c + i / size % c]).collect()
}

fn check_forward(g: Geometry, bias: bool, scaled: bool, [from_rows, to_rows]: [bool; 2]) {
    let [down, across] = pooled(&g);
    let results = g.n * down * across * g.k;
    let window = g.c * g.r * g.s;
    let mut inputs = vec![noise(g.n * g.h * g.w * g.c, 1), noise(g.k * window, 2)];
    if bias {
        inputs.push(noise(g.k, 3));
    }
    let mut exact = wide(&inputs);
    if scaled {
        let scale = noise(g.k, 5);
        for (filter, scale) in exact[1].chunks_mut(window.max(1)).zip(&scale) {
            filter.iter_mut().for_each(|w| *w *= f64::from(*scale));
        }
        inputs.push(scale);
    }
    let y = run(
        &ForwardReference::<f64>::new(g, bias, Activation::Relu),
        &mut exact,
        &[g.n * g.oh() * g.ow() * g.k],
        false,
    );
    let (mut want, want_places) = plain_pool(&g, &y[0]);
    if from_rows {
        inputs[0] = in_rows(g.h * g.w, g.c, &inputs[0]);
    }
    if to_rows {
        want = in_rows(down * across, g.k, &want);
    }
    // Plain, and in Winograd's way.
    for (places, fast) in [(true, false), (false, false), (true, true), (false, true)] {
        let Some(kernel) = forward_by(g, Options { bias, scaled, places, from_rows, to_rows }, fast) else { continue };
        let mut seen = Vec::new();
        for backwards in [false, true] {
            let buffers: Vec<Buf> = inputs.iter_mut().map(|v| Buf::over(v)).collect();
            let (mut got, mut got_places) = (vec![f32::NAN; results], vec![77u8; results]);
            let outputs = [Buf::over(&mut got), Buf::over(&mut got_places)];
            all(&*kernel, &buffers, &outputs[..1 + usize::from(places)], backwards);
            close(&got, &want, window + 2, &format!("{g:?} {bias} {scaled} {from_rows} {to_rows}"));
            if places {
                // Where two are nearly equal, rounding decides.
                let differ = ordered(&g, &want_places).iter().zip(&got_places).filter(|(a, b)| a != b).count();
                assert!(differ <= results / 200, "{g:?}: {differ} of {results} places");
            }
            seen.push((got, got_places));
        }
        assert!(seen[0] == seen[1], "{g:?}");
    }
}

fn check_backward(g: Geometry, bias: bool, input: bool, by_rows: ByRows) {
    let [down, across] = pooled(&g);
    let (windows, pixels) = (g.n * down * across, g.n * g.oh() * g.ow());
    let (x, weight) = (g.n * g.h * g.w * g.c, g.k * g.c * g.r * g.s);
    let mut slopes = noise(windows * g.k, 4);
    let mut rng = Rng(9);
    let places: Vec<u8> = (0..windows * g.k).map(|_| rng.below(5) as u8).collect();
    // What the convolution's gradients get when pool and relu have done theirs.
    let mut dy = vec![0f32; pixels * g.k];
    for (i, (slope, place)) in slopes.iter().zip(&places).enumerate() {
        let (window, k, place) = (i / g.k, i % g.k, usize::from(*place));
        let (image, row, column) = (window / across / down, window / across % down, window % across);
        if place < 4 {
            dy[((image * g.oh() + 2 * row + place / 2) * g.ow() + 2 * column + place % 2) * g.k + k] = *slope;
        }
    }
    let (mut images, mut filters) = (noise(x, 1), noise(weight, 2));
    let sizes = [weight, g.k];
    let plain = WeightGradReference::<f64>::new(g, bias);
    let mut want = run(&plain, &mut wide(&[images.clone(), dy.clone()]), &sizes[..1 + usize::from(bias)], false);
    if input {
        let plain = InputGradReference::<f64>::new(g);
        want.extend(run(&plain, &mut wide(&[dy, filters.clone()]), &[x], false));
    }
    let mut places = ordered(&g, &places);
    if by_rows.slopes {
        slopes = in_rows(down * across, g.k, &slopes);
    }
    if by_rows.images {
        images = in_rows(g.h * g.w, g.c, &images);
    }
    let inputs = [Buf::over(&mut slopes), Buf::over(&mut places), Buf::over(&mut images), Buf::over(&mut filters)];
    let kernel = Backward::new(g, bias, input, by_rows, None);
    let mut seen = Vec::new();
    for backwards in [false, true] {
        let mut got: Vec<Vec<f32>> = want.iter().map(|v| vec![f32::NAN; v.len()]).collect();
        let outputs: Vec<Buf> = got.iter_mut().map(|v| Buf::over(v)).collect();
        all(&kernel, &inputs, &outputs, backwards);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let terms = if i == want.len() { g.k * g.r * g.s } else { pixels.max(g.k * g.r * g.s) };
            close(got, want, terms, &format!("{g:?} {bias} {input} result {i}"));
        }
        seen.push(got);
    }
    assert!(seen[0] == seen[1], "{g:?}");
}

/// Filters that take their step along against a step of its own: the same bits.
fn check_step(g: Geometry, input: bool, options: SgdOptions, step: f64) {
    let [down, across] = pooled(&g);
    let windows = g.n * down * across * g.k;
    let (x, weight) = (g.n * g.h * g.w * g.c, g.k * g.c * g.r * g.s);
    let mut rng = Rng(9);
    let (mut slopes, mut images) = (noise(windows, 4), noise(x, 1));
    let mut places: Vec<u8> = (0..windows).map(|_| rng.below(5) as u8).collect();
    let mut numbers = vec![0.1, 0.9, 0.3, 5e-4, step];
    let mut kept = vec![noise(weight, 2), noise(weight, 3)];
    kept.truncate(options.operands() - 1);
    let mut alone = kept.clone();
    let sizes = [weight, g.k, x];
    let results = || sizes[..2 + usize::from(input)].iter().map(|n| vec![f32::NAN; *n]).collect::<Vec<_>>();

    let mut want = results();
    let mut inputs = vec![Buf::over(&mut slopes), Buf::over(&mut places), Buf::over(&mut images)];
    let outputs: Vec<Buf> = want.iter_mut().map(|v| Buf::over(v)).collect();
    let filters = Buf::over(&mut alone[0]);
    all(&Backward::new(g, true, input, ByRows::default(), None), &[&inputs[..], &[filters]].concat(), &outputs, false);
    let mut operands: Vec<Buf> = alone.iter_mut().map(|v| Buf::over(v)).collect();
    let updated = operands.clone();
    operands.insert(1, outputs[0]);
    operands.push(Buf::over(&mut numbers));
    all(&Step::<f32>::new(&[weight], options), &operands, &updated, false);

    for backwards in [false, true] {
        let (mut got, mut kept) = (results(), kept.clone());
        let mut outputs: Vec<Buf> = got.iter_mut().map(|v| Buf::over(v)).collect();
        let step: Vec<Buf> = kept.iter_mut().map(|v| Buf::over(v)).collect();
        inputs.truncate(3);
        inputs.push(step[0]);
        inputs.extend(&step);
        inputs.push(Buf::over(&mut numbers));
        outputs.extend(&step);
        all(&Backward::new(g, true, input, ByRows::default(), Some(options)), &inputs, &outputs, backwards);
        assert!(got == want && kept == alone, "{g:?} {input} {options:?} {step:?}");
    }
}

#[test]
fn filters_take_their_step_along() {
    for (momentum, nesterov) in [(false, false), (true, false), (true, true)] {
        for (input, step) in [(false, 1.0), (true, 2.0)] {
            let options = SgdOptions { momentum, nesterov, maximize: nesterov };
            for g in [square(4, 3, 32, 6, 5), square(4, 6, 14, 16, 5), square(3, 5, 11, 7, 3), square(1, 1, 4, 1, 3)] {
                check_step(g, input, options, step);
            }
        }
    }
}

fn check(g: Geometry) {
    for (bias, scaled) in [(false, false), (true, false), (true, true)] {
        for rows in [[false, false], [true, false], [false, true]] {
            check_forward(g, bias, scaled, rows);
        }
    }
    for (bias, input, slopes, images) in
        [(false, false, false, false), (true, true, true, false), (false, true, false, true), (true, false, true, true)]
    {
        check_backward(g, bias, input, ByRows { slopes, images });
    }
}

/// A square convolution without padding.
fn square(n: usize, c: usize, size: usize, k: usize, filter: usize) -> Geometry {
    let (stride, padding, dilation) = ([1, 1], [0, 0], [1, 1]);
    Geometry { n, c, h: size, w: size, k, r: filter, s: filter, stride, padding, dilation, groups: 1 }
}

#[test]
fn networks() {
    check(square(4, 3, 32, 6, 5));
    check(square(33, 6, 14, 16, 5));
    check(square(1, 3, 32, 6, 5));
    check(square(1, 6, 14, 16, 5));
    check(Geometry { padding: [1, 1], ..square(3, 1, 28, 32, 3) });
    check(Geometry { padding: [2, 2], ..square(2, 3, 32, 32, 5) });
    check(Geometry { padding: [1, 1], ..square(2, 3, 70, 8, 3) });
    check(Geometry { padding: [3, 3], stride: [2, 2], ..square(2, 3, 64, 12, 7) });
    // Windows that see nothing but what is below the image.
    check(Geometry { padding: [4, 0], ..square(2, 3, 33, 6, 2) });
    check(Geometry { padding: [8, 0], ..square(2, 3, 36, 6, 5) });
}

#[test]
fn sweep() {
    let mut rng = Rng(3);
    let mut pick = |from: &[usize]| from[rng.below(from.len())];
    let mut done = 0;
    while done < 200 {
        let g = Geometry {
            n: pick(&[1, 2, 3, 7]),
            c: pick(&[1, 2, 3, 5, 8, 17]),
            h: pick(&[2, 4, 5, 7, 10, 13, 20]),
            w: pick(&[2, 3, 5, 8, 9, 12, 37]),
            k: pick(&[1, 3, 6, 7, 8, 9, 13, 16, 18, 34]),
            r: pick(&[1, 2, 3, 5, 7]),
            s: pick(&[1, 2, 3, 4, 5]),
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])],
            padding: [pick(&[0, 1, 2]), pick(&[0, 0, 1, 2])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2, 3])],
            groups: 1,
        };
        if !pooled(&g).contains(&0) {
            check(g);
            done += 1;
        }
    }
}

#[test]
fn winograd_ways() {
    let mut rng = Rng(5);
    let mut pick = |from: &[usize]| from[rng.below(from.len())];
    let mut done = 0;
    while done < 60 {
        let g = Geometry {
            h: pick(&[5, 6, 7, 9, 13, 14, 20, 32]),
            w: pick(&[5, 6, 8, 9, 14, 19, 37, 75]),
            padding: [pick(&[0, 0, 1, 2, 3]), pick(&[0, 0, 1, 2, 3])],
            ..square(pick(&[1, 2, 5]), pick(&[1, 2, 3, 5, 6, 16, 17, 33]), 0, pick(&[1, 3, 6, 7, 8, 13, 16, 18, 34]), 5)
        };
        if pooled(&g).contains(&0) {
            continue;
        }
        assert!(winograd::possible(&g), "{g:?}");
        for (bias, scaled) in [(false, false), (true, true)] {
            for rows in [[false, false], [true, false], [false, true]] {
                check_forward(g, bias, scaled, rows);
            }
        }
        done += 1;
    }
}

#[test]
fn three_by_three_tiles_pool_before_they_are_written() {
    for (n, c, k, size, padding) in
        [(3, 32, 48, [16, 16], 1), (2, 33, 40, [13, 15], 1), (5, 64, 16, [9, 22], 0), (4, 16, 130, [7, 7], 2)]
    {
        let g = Geometry { h: size[0], w: size[1], padding: [padding; 2], ..square(n, c, 0, k, 3) };
        let options = Options { bias: true, scaled: true, places: false, from_rows: false, to_rows: false };
        let on = crate::ops::conv2d::cpu::winograd_on();
        assert!(forward(g, options).is_some() || !on, "{g:?}");
        for (bias, scaled) in [(false, false), (true, true), (true, false)] {
            check_forward(g, bias, scaled, [false, false]);
        }
    }
}

/// The greatest error is below 1e-5 of what elements are like, whether or not a relu leaves them.
#[test]
fn winograd_error() {
    for (c, k) in [(1, 6), (3, 6), (6, 16), (16, 16), (32, 32)] {
        let g = square(8, c, 20, k, 5);
        let window = c * 25;
        let mut inputs = vec![noise(g.n * g.h * g.w * c, 11), noise(k * window, 12)];
        let pixels = g.n * g.oh() * g.ow() * k;
        let y = run(&ForwardReference::<f64>::new(g, false, Activation::None), &mut wide(&inputs), &[pixels], false);
        let like = (y[0].iter().map(|y| y * y).sum::<f64>() / pixels as f64).sqrt();
        let (want, _) = plain_pool(&g, &y[0]);
        let options = Options { bias: false, scaled: false, places: false, from_rows: false, to_rows: false };
        let kernel = forward_by(g, options, true).expect("a kernel");
        let mut got = vec![f32::NAN; want.len()];
        let buffers: Vec<Buf> = inputs.iter_mut().map(|v| Buf::over(v)).collect();
        all(&*kernel, &buffers, &[Buf::over(&mut got)], false);
        let errors = got.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want.max(0.0)).abs());
        let worst = errors.fold(0.0, f64::max) / like;
        println!("{c} to {k} channels: {worst:.1e}");
        assert!(worst < 1e-5, "{c} to {k} channels: {worst:e}");
    }
}

#[test]
fn nothing_and_what_is_no_number() {
    let options = Options { bias: false, scaled: false, places: true, from_rows: false, to_rows: false };
    assert!(forward(square(0, 3, 8, 6, 3), options).is_none());
    // The largest of a window with NaN is NaN, as in a pool, and lets nothing back, as a relu's.
    for k in [3, 16] {
        let g = square(1, 1, 4, k, 1);
        let mut x: Vec<f32> = (0..16).map(|i| i as f32 - 4.0).collect();
        x[5] = f32::NAN;
        let mut weight = vec![1f32; k];
        let (mut y, mut places) = (vec![0f32; 4 * k], vec![9u8; 4 * k]);
        let kernel = forward(g, options).expect("a kernel");
        all(
            &*kernel,
            &[Buf::over(&mut x), Buf::over(&mut weight)],
            &[Buf::over(&mut y), Buf::over(&mut places)],
            false,
        );
        assert!(y[..k].iter().all(|v| v.is_nan()) && y[k..2 * k].iter().all(|v| *v == 3.0), "{y:?}");
        let wanted: Vec<u8> = [NOWHERE, 3, 3, 3].into_iter().flat_map(|place| vec![place; k]).collect();
        assert_eq!(places, ordered(&g, &wanted));
    }
}
