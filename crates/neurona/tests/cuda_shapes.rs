//! Kernels on GPUs cut their work by shape and type: rows by lanes, warps and blocks, columns by strips and runs, long
//! sums by parts, windows by size. Here each op meets the shapes that need every way, and must give what the CPU gives.
//!
//! Without a GPU every test here skips itself.

mod common;

use common::stream;
use neurona::{CrossEntropyOptions, DType, Device, PoolOptions, Reduction, Result, RunningStats, Tensor};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// How far results may be apart, relative to the largest of a tensor.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

fn assert_near(what: &str, got: &Tensor, want: &Tensor, tolerance: f64) -> Result<()> {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    let (got, want) = (got.to_dtype(DType::F64)?.to_vec::<f64>()?, want.to_dtype(DType::F64)?.to_vec::<f64>()?);
    let largest = want.iter().filter(|v| v.is_finite()).fold(1e-3, |a: f64, b| a.max(b.abs()));
    for (i, (got, want)) in got.into_iter().zip(want).enumerate() {
        let near = (got - want).abs() <= tolerance * largest || got == want || got.is_nan() && want.is_nan();
        assert!(near, "{what}, element {i}: {got} on the GPU, {want} on the CPU");
    }
    Ok(())
}

/// Results of `f`, then the gradients of its floating-point ones, on a device.
fn run(x: &[Tensor], device: Device, f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    let leaf = |x: &Tensor| if x.dtype().is_float() { x.to(device)?.requires_grad() } else { x.to(device) };
    let leaves = x.iter().map(leaf).collect::<Result<Vec<_>>>()?;
    let mut found = f(&leaves)?;
    if found[0].dtype().is_float() {
        let dy = stream(99, found[0].shape(), found[0].dtype(), -1.0, 1.0)?.to(device)?;
        found[0].mul(&dy)?.to_dtype(DType::F64)?.sum()?.backward()?;
        found.extend(leaves.iter().filter_map(Tensor::grad));
    }
    Ok(found)
}

/// Both devices give the same.
fn same(what: &str, x: &[Tensor], near: f64, f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let (got, want) = (run(x, gpu, &f)?, run(x, Device::Cpu, &f)?);
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_near(&format!("{what}, result {i}"), got, want, near)?;
    }
    Ok(())
}

#[test]
fn batch_norm() -> Result<()> {
    // In mixed precision images have 16 bits and channels f32.
    let mixed = [(DType::F16, DType::F32), (DType::BF16, DType::F32)];
    for (dtype, of_channel) in FLOATS.map(|dtype| (dtype, dtype)).into_iter().chain(mixed) {
        for shape in
            [&[4, 3][..], &[300, 7], &[64, 200], &[5000, 8], &[3, 64, 9, 10], &[40, 6, 12, 11], &[2, 1, 30, 31]]
        {
            for relu in [false, true] {
                let c = shape[1];
                let mut x = vec![stream(1, shape, dtype, -1.0, 3.0)?, stream(2, [c], of_channel, 0.5, 1.5)?];
                x.extend([stream(3, [c], of_channel, -1.0, 1.0)?, stream(4, [c], of_channel, -1.0, 1.0)?]);
                x.extend([stream(5, [c], of_channel, 0.5, 1.5)?, Tensor::scalar(4i64)]);
                for momentum in [Some(0.1), None] {
                    same(
                        &format!("{dtype} {of_channel} {shape:?} relu {relu} {momentum:?}"),
                        &x,
                        tolerance(dtype),
                        |x| {
                            let (mean, var) = (x[3].detach(), x[4].detach());
                            let running = RunningStats { mean: &mean, var: &var, batches: &x[5] };
                            let done = x[0].batch_norm_train(Some((&x[1], &x[2])), Some(running), momentum, 1e-3)?;
                            let mut results = vec![if relu { done.output.relu()? } else { done.output }];
                            results.extend(done.stats.into_iter().flatten());
                            Ok(results)
                        },
                    )?;
                }
                same(
                    &format!("{dtype} {of_channel} {shape:?} relu {relu} by given statistics"),
                    &x,
                    tolerance(dtype),
                    |x| {
                        let (mean, var) = (x[3].detach(), x[4].detach());
                        let y = x[0].batch_norm_eval(&mean, &var, Some((&x[1], &x[2])), 1e-3)?;
                        Ok(vec![if relu { y.relu()? } else { y }])
                    },
                )?;
            }
        }
    }
    Ok(())
}

#[test]
fn batch_norm_far_from_zero() -> Result<()> {
    // In f32 the numbers near 10,000 are a thousandth apart.
    let x = vec![stream(1, [3000, 16], DType::F32, 9_999.0, 10_001.0)?];
    same("far", &x, 2e-3, |x| Ok(vec![x[0].batch_norm_train(None, None, None, 1e-3)?.output]))
}

#[test]
fn pooling() -> Result<()> {
    let windows = [
        ([2, 2], [2, 2], [0, 0], false),
        ([3, 3], [2, 2], [1, 1], false),
        ([3, 2], [1, 3], [1, 0], true),
        ([2, 2], [3, 3], [0, 1], true),
        ([5, 7], [2, 3], [2, 3], true),
        ([1, 1], [2, 2], [0, 0], false),
    ];
    for dtype in FLOATS {
        for shape in [[2, 3, 9, 8], [1, 16, 11, 10], [3, 1, 7, 7], [2, 10, 6, 12]] {
            // Few different values, so that windows have equal ones.
            let x = vec![stream(1, shape, DType::F64, -3.0, 3.0)?.round()?.to_dtype(dtype)?];
            for (kernel, stride, padding, ceil_mode) in windows {
                let options = PoolOptions { kernel, stride, padding, ceil_mode };
                let what = format!("{dtype} {shape:?} {options:?}");
                same(&what, &x, tolerance(dtype), |x| Ok(vec![x[0].max_pool2d(options)?]))?;
                for pads in [false, true] {
                    same(&what, &x, tolerance(dtype), |x| Ok(vec![x[0].avg_pool2d_with(options, pads)?]))?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn pooling_with_nan() -> Result<()> {
    let mut values: Vec<f32> = (0..2 * 4 * 6 * 6).map(|i| ((i * 37) % 11) as f32).collect();
    values.iter_mut().step_by(7).for_each(|v| *v = f32::NAN);
    values.iter_mut().step_by(5).for_each(|v| *v = f32::NEG_INFINITY);
    let x = vec![Tensor::from_vec(values, [2, 4, 6, 6])?];
    let options = PoolOptions { padding: [1, 1], stride: [2, 2], ..PoolOptions::square(3) };
    same("NaN", &x, 0.0, |x| Ok(vec![x[0].max_pool2d(options)?]))
}

/// Rows that need one lane, some, a warp, and blocks of both sizes.
const ROWS: [[usize; 2]; 9] =
    [[5, 1], [3, 7], [70, 10], [2, 64], [9, 150], [3, 1024], [2, 3000], [1, 40_000], [1500, 1040]];

#[test]
fn softmax() -> Result<()> {
    for dtype in FLOATS {
        for shape in ROWS.into_iter().filter(|[rows, _]| *rows < 1000 || dtype == DType::F32) {
            let x = vec![stream(1, shape, dtype, -5.0, 5.0)?];
            same(&format!("{dtype} {shape:?}"), &x, tolerance(dtype), |x| Ok(vec![x[0].softmax(1)?]))?;
            same(&format!("{dtype} {shape:?} log"), &x, tolerance(dtype), |x| Ok(vec![x[0].log_softmax(1)?]))?;
        }
    }
    Ok(())
}

#[test]
fn layer_norm() -> Result<()> {
    for dtype in FLOATS {
        for shape in ROWS.into_iter().chain([[5000, 8]]) {
            if shape[1] == 1 || shape[0] > 1000 && dtype != DType::F32 {
                continue;
            }
            let [w, b] = [stream(2, [shape[1]], dtype, 0.5, 1.5)?, stream(3, [shape[1]], dtype, -1.0, 1.0)?];
            let x = vec![stream(1, shape, dtype, -1.0, 2.0)?, w, b];
            for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
                same(&format!("{dtype} {shape:?} {weight} {bias}"), &x, tolerance(dtype), |x| {
                    let (w, b) = (weight.then_some(&x[1]), bias.then_some(&x[2]));
                    Ok(vec![x[0].layer_norm([shape[1]], w, b, 1e-3)?])
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn cross_entropy() -> Result<()> {
    for dtype in FLOATS {
        for [rows, classes] in [[1, 1], [64, 10], [2049, 10], [7, 1000], [600, 100], [3, 9001], [5000, 12]] {
            if rows > 600 && dtype != DType::F32 {
                continue;
            }
            let mut targets: Vec<i64> = (0..rows as i64).map(|i| (i * 7 + 3) % classes as i64).collect();
            targets.iter_mut().skip(1).step_by(5).for_each(|t| *t = -100);
            let x = vec![stream(1, [rows, classes], dtype, -4.0, 4.0)?, Tensor::from_vec(targets, [rows])?];
            for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
                for label_smoothing in [0.0, 0.2] {
                    let options = CrossEntropyOptions { reduction, label_smoothing, ..Default::default() };
                    let what = format!("{dtype} {rows} {classes} {options:?}");
                    same(&what, &x, tolerance(dtype), |x| Ok(vec![x[0].cross_entropy_with(&x[1], options)?]))?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn reductions() -> Result<()> {
    let shapes: [(&[usize], &[isize]); 12] = [
        (&[70_000], &[0]),
        (&[1, 40_001], &[1]),
        (&[3, 20_000], &[1]),
        (&[5000, 6], &[0]),
        (&[9000, 64], &[0]),
        (&[2, 70, 33], &[1]),
        (&[3000, 5, 3], &[1]),
        (&[4, 3, 5, 6], &[0, 2]),
        (&[4, 3, 5, 6], &[1, 3]),
        (&[2, 3, 4, 5, 6], &[0, 2, 4]),
        (&[7, 3], &[]),
        (&[3, 0, 4], &[1]),
    ];
    for dtype in FLOATS.into_iter().chain([DType::I64, DType::U8]) {
        for (shape, dims) in shapes {
            let x = vec![stream(1, shape, DType::F64, -4.0, 4.0)?.to_dtype(dtype)?];
            let what = format!("{dtype} {shape:?} over {dims:?}");
            // Sums of tens of thousands cancel.
            let near = tolerance(dtype) * 4.0;
            same(&what, &x, near, |x| Ok(vec![x[0].sum_dims(dims, false)?]))?;
            if shape.contains(&0) {
                same(&what, &x, near, |x| Ok(vec![x[0].prod_dims(dims, true)?]))?;
                continue;
            }
            same(&what, &x, near, |x| Ok(vec![x[0].amax(dims, true)?, x[0].detach().amin(dims, false)?]))?;
            if dtype.is_float() {
                same(&what, &x, near, |x| Ok(vec![x[0].mean_dims(dims, true)?]))?;
            }
            if x[0].numel() < 1000 {
                same(&what, &x, near, |x| Ok(vec![x[0].prod_dims(dims, false)?]))?;
            }
        }
    }
    Ok(())
}

/// Images with channels last are reduced as they lie, and give results in the order of their dimensions.
#[test]
fn reductions_of_images() -> Result<()> {
    let sets: [&[isize]; 10] = [&[], &[0], &[1], &[2], &[3], &[0, 1], &[1, 2], &[2, 3], &[0, 2, 3], &[0, 1, 2, 3]];
    for dtype in FLOATS {
        let x = vec![stream(1, [3, 5, 8, 6], dtype, -4.0, 4.0)?];
        for dims in sets {
            same(&format!("{dtype} {dims:?}"), &x, tolerance(dtype), |x| {
                let images = x[0].max_pool2d(PoolOptions::square(2))?;
                Ok(vec![images.sum_dims(dims, false)?, images.detach().amax(dims, true)?])
            })?;
        }
    }
    Ok(())
}

#[test]
fn places() -> Result<()> {
    for dtype in FLOATS.into_iter().chain([DType::I64, DType::U8]) {
        for (shape, dim) in
            [(&[5, 7][..], 1), (&[50_000], 0), (&[2, 2000], 1), (&[900, 3], 0), (&[6, 40, 70], 1), (&[4, 1], 1)]
        {
            // Few different values: ties must go to the first.
            let x = stream(1, shape, DType::F64, -3.0, 9.0)?.round()?.to_dtype(dtype)?;
            let what = format!("{dtype} {shape:?} {dim}");
            same(&what, std::slice::from_ref(&x), 0.0, |x| Ok(vec![x[0].argmax(dim)?, x[0].argmin(dim)?]))?;
            for descending in [false, true] {
                same(&what, std::slice::from_ref(&x), 0.0, |x| Ok(vec![x[0].argsort(dim, descending)?]))?;
            }
            if dtype.is_float() {
                // 0 / 0 where an element is 0.
                let holes = vec![x.div(&x)?.mul(&x)?];
                same(&what, &holes, 0.0, |x| Ok(vec![x[0].argmax(dim)?, x[0].argmin(dim)?, x[0].argsort(dim, true)?]))?;
            }
        }
    }
    Ok(())
}

#[test]
fn running_sums_and_products() -> Result<()> {
    for dtype in FLOATS.into_iter().chain([DType::I64]) {
        for (shape, dim) in [(&[5, 7][..], 1), (&[5000], 0), (&[40, 3], 0), (&[3, 70, 5], 1), (&[20_000, 2], 1)] {
            let x = vec![stream(1, shape, DType::F64, -3.0, 3.0)?.to_dtype(dtype)?];
            let what = format!("{dtype} {shape:?} {dim}");
            same(&what, &x, tolerance(dtype), |x| Ok(vec![x[0].cumsum(dim)?]))?;
            if dtype.is_float() {
                let x = vec![stream(1, shape, DType::F64, 0.95, 1.05)?.to_dtype(dtype)?];
                same(&what, &x, 10.0 * tolerance(dtype), |x| Ok(vec![x[0].prod_dims(&[dim], false)?]))?;
            }
        }
    }
    Ok(())
}
