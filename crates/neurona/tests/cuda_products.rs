//! Convolutions and matrix products of 16-bit numbers, and convolutions of few channels in f32 too, give on a GPU what they
//! give on CPU cores in f32, with our own kernels: sizes that are no whole tiles, every stride, padding and dilation that falls into parts of its own, few and
//! many channels, and those that no tensor core takes.
//!
//! Without a GPU every test here skips itself.

mod common;

use neurona::{Conv2dOptions, DType, Device, Kernels, Result, Tensor, set_kernels};

/// Numbers from −1 to 1, rounded to the type.
fn data(seed: u64, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let values = (0..shape.iter().product::<usize>()).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    });
    Tensor::from_vec(values.collect(), shape)?.to_dtype(dtype)
}

/// ‖got − want‖ / ‖want‖; NaN where one of them is not finite.
fn distance(got: &Tensor, want: &Tensor) -> Result<f64> {
    let values = |x: &Tensor| x.to(Device::Cpu)?.to_dtype(DType::F64)?.to_vec::<f64>();
    let (got, want) = (values(got)?, values(want)?);
    let norm = |list: &mut dyn Iterator<Item = f64>| list.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut got.iter().zip(&want).map(|(a, b)| a - b));
    Ok(apart / norm(&mut want.iter().copied()).max(1e-30))
}

/// What rounding the result alone costs, with room; in f32, what sums in another order do.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-6,
        DType::F16 => 6e-4,
        _ => 4e-3,
    }
}

fn on_gpu_in(types: &[DType], test: impl Fn(Device, DType) -> Result<()>) -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    set_kernels(Kernels::Own);
    types.iter().try_for_each(|dtype| test(gpu, *dtype))
}

fn on_gpu(test: impl Fn(Device, DType) -> Result<()>) -> Result<()> {
    on_gpu_in(&[DType::F16, DType::BF16], test)
}

/// Result and gradients of a sum of products with `by`.
fn all(inputs: [&Tensor; 2], by: &Tensor, f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<[Tensor; 3]> {
    let (a, b) = (inputs[0].requires_grad()?, inputs[1].requires_grad()?);
    let y = f(&a, &b)?;
    y.mul(by)?.sum()?.backward()?;
    Ok([y.detach(), a.grad().expect("depends on it"), b.grad().expect("depends on it")])
}

#[track_caller]
fn same(
    about: &str,
    gpu: Device,
    dtype: DType,
    inputs: [Tensor; 2],
    by: Tensor,
    f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<()> {
    let to = |x: &Tensor| x.to(gpu);
    let wide = |x: &Tensor| x.to_dtype(DType::F32);
    let want = all([&wide(&inputs[0])?, &wide(&inputs[1])?], &wide(&by)?, f)?;
    let got = all([&to(&inputs[0])?, &to(&inputs[1])?], &to(&by)?, f)?;
    for (i, what) in ["result", "gradient by the first", "gradient by the second"].iter().enumerate() {
        assert_eq!(got[i].shape(), want[i].shape(), "{about}: {what}");
        let apart = distance(&got[i], &want[i])?;
        assert!(apart < rounding(dtype), "{about} in {dtype}: {what} is {apart:.1e} away");
    }
    Ok(())
}

#[test]
fn convolutions() -> Result<()> {
    let cases = [
        ([3, 8, 7, 9], [8, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([2, 64, 13, 11], [64, 3, 3], [1, 1], [0, 0], [1, 1]),
        ([5, 72, 10, 17], [136, 5, 3], [2, 1], [3, 1], [1, 1]),
        ([1, 24, 33, 20], [40, 3, 3], [1, 1], [2, 2], [2, 2]),
        ([4, 128, 9, 9], [320, 1, 1], [2, 2], [0, 0], [1, 1]),
        ([2, 16, 23, 23], [256, 7, 7], [2, 2], [3, 3], [1, 1]),
        ([3, 40, 12, 12], [24, 3, 3], [2, 2], [1, 1], [2, 2]),
        ([7, 96, 8, 8], [64, 3, 3], [3, 3], [1, 1], [1, 1]),
        ([2, 8, 64, 3], [16, 3, 1], [1, 1], [1, 0], [1, 1]),
        ([1, 8, 1, 1], [8, 1, 1], [1, 1], [0, 0], [1, 1]),
        ([70, 64, 4, 4], [128, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([3, 32, 6, 7], [48, 3, 3], [1, 1], [4, 3], [1, 1]),
        ([2, 256, 6, 5], [64, 1, 1], [1, 1], [0, 0], [1, 1]),
        ([2, 3, 12, 12], [6, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([2, 12, 9, 9], [20, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([2, 3, 32, 32], [32, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([2, 6, 14, 14], [16, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([3, 1, 9, 11], [10, 3, 3], [2, 1], [1, 2], [1, 1]),
        ([1, 2, 17, 13], [64, 3, 5], [3, 3], [3, 3], [1, 1]),
        ([2, 7, 7, 8], [3, 2, 2], [2, 2], [0, 0], [1, 1]),
        ([1, 5, 6, 150], [127, 1, 4], [1, 3], [0, 3], [1, 1]),
    ];
    on_gpu(|gpu, dtype| cases.into_iter().try_for_each(|case| convolution(gpu, dtype, case)))
}

/// Few channels: tiles of several images, of parts of one and of some of its columns, sums that threads share, rows that
/// are moved in long pieces and value by value, windows that lie mostly outside.
#[test]
fn convolutions_of_few_channels() -> Result<()> {
    let cases = [
        ([1, 3, 32, 32], [6, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([4, 6, 14, 14], [16, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([5, 3, 32, 32], [6, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([3, 3, 20, 21], [6, 5, 5], [1, 1], [2, 2], [1, 1]),
        ([6, 6, 5, 5], [16, 5, 5], [1, 1], [0, 0], [1, 1]),
        ([2, 1, 28, 28], [8, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([2, 4, 9, 7], [5, 3, 2], [2, 2], [1, 1], [1, 1]),
        ([1, 3, 5, 140], [6, 3, 3], [1, 1], [4, 4], [1, 1]),
        ([300, 2, 6, 6], [6, 3, 3], [1, 1], [1, 1], [1, 1]),
        ([1030, 3, 5, 6], [4, 3, 3], [1, 1], [0, 1], [1, 1]),
        ([1, 3, 32, 32], [64, 7, 7], [2, 2], [3, 3], [1, 1]),
    ];
    on_gpu_in(&[DType::F32, DType::F16, DType::BF16], |gpu, dtype| {
        cases.into_iter().try_for_each(|case| convolution(gpu, dtype, case))
    })
}

/// Images, channels, height, width; filters, their height and width; stride, padding, dilation.
type Case = ([usize; 4], [usize; 3], [usize; 2], [usize; 2], [usize; 2]);

fn convolution(gpu: Device, dtype: DType, case: Case) -> Result<()> {
    let ([n, c, h, w], [k, r, s], stride, padding, dilation) = case;
    let options = Conv2dOptions { stride, padding, dilation, groups: 1 };
    let x = data(1, &[n, c, h, w], dtype)?;
    let filters = data(2, &[k, c, r, s], dtype)?;
    let out =
        |i: usize, size: usize, taps: usize| (size + 2 * padding[i] - dilation[i] * (taps - 1) - 1) / stride[i] + 1;
    let by = data(3, &[n, k, out(0, h, r), out(1, w, s)], dtype)?;
    let about = format!("{n}x{c}x{h}x{w} by {k}x{r}x{s}, {options:?}");
    same(&about, gpu, dtype, [x, filters], by, &|x, w| x.conv2d(w, None, options))
}

#[test]
fn convolutions_with_bias_and_relu() -> Result<()> {
    on_gpu(|gpu, dtype| {
        for (c, k) in [(64, 64), (24, 40), (128, 200), (3, 32), (6, 7)] {
            let options = Conv2dOptions { padding: [1, 1], ..Default::default() };
            let x = data(1, &[3, c, 10, 9], dtype)?;
            let bias = data(4, &[k], dtype)?;
            let f = |x: &Tensor, w: &Tensor| {
                let bias = bias.to(x.device())?.to_dtype(x.dtype())?;
                x.conv2d(w, Some(&bias), options)?.relu()
            };
            same(
                &format!("{c} to {k}"),
                gpu,
                dtype,
                [x, data(2, &[k, c, 3, 3], dtype)?],
                data(3, &[3, k, 10, 9], dtype)?,
                &f,
            )?;
        }
        Ok(())
    })
}

#[test]
fn products() -> Result<()> {
    on_gpu(|gpu, dtype| {
        for (m, n, k) in [
            (128, 128, 64),
            (8, 8, 8),
            (200, 264, 136),
            (1000, 520, 72),
            (136, 48, 784),
            (64, 16, 4096),
            (33, 24, 40),
            (7, 9, 5),
        ] {
            let (a, b, by) = (data(1, &[m, k], dtype)?, data(2, &[k, n], dtype)?, data(3, &[m, n], dtype)?);
            same(&format!("{m}x{n}x{k}"), gpu, dtype, [a, b], by.clone(), &|a, b| a.matmul(b))?;
            let (a, b) = (data(4, &[k, m], dtype)?, data(5, &[n, k], dtype)?);
            same(&format!("{m}x{n}x{k}, transposed"), gpu, dtype, [a, b], by, &|a, b| a.t()?.matmul(&b.t()?))?;
        }
        Ok(())
    })
}

#[test]
fn products_between_relus() -> Result<()> {
    on_gpu(|gpu, dtype| {
        // Whole tiles, parts of tiles, rows that the copy engine does not take, sums that several blocks share.
        for [n, input, hidden, output] in
            [[256, 64, 128, 64], [200, 40, 264, 72], [33, 20, 84, 10], [16, 32, 64, 2048], [2, 8, 8, 8]]
        {
            let about = format!("{n} of {input}, {hidden} and {output}");
            let inputs = [data(1, &[n, input], dtype)?, data(2, &[hidden, input], dtype)?];
            let second = data(3, &[output, hidden], dtype)?;
            same(&about, gpu, dtype, inputs, data(4, &[n, output], dtype)?, &|x, w| {
                let second = second.to(x.device())?.to_dtype(x.dtype())?;
                x.linear(w, None)?.relu()?.linear(&second, None)
            })?;
        }
        Ok(())
    })
}
