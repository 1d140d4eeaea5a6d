//! Winograd's convolutions on a GPU against sums in f64, where they are asked for rather than chosen by their speed.
//!
//! Without a GPU the test skips itself.

mod common;

use common::stream;
use neurona::{Conv2dOptions, DType, Device, Result, Tensor};
use std::process::Command;

/// Images, channels in, height, width, channels out, padding.
type Shape = [usize; 7];

/// Tiles of every size, whole and cut off, on every kind of padding; channels that are fours, that are not, and more
/// than a block has; a long sum.
const SHAPES: [Shape; 9] = [
    [2, 5, 9, 7, 6, 1, 1],
    [1, 8, 4, 4, 4, 0, 0],
    [3, 12, 3, 3, 16, 1, 1],
    [1, 1, 6, 11, 3, 2, 0],
    [2, 20, 3, 5, 36, 2, 2],
    [2, 4, 8, 8, 40, 0, 1],
    [1, 3, 2, 1, 2, 1, 2],
    [5, 36, 6, 6, 33, 1, 1],
    [1, 300, 4, 4, 20, 1, 1],
];

/// The convolution with ReLU, without it, and all gradients of the latter.
fn results(shape: Shape, device: Device, dtype: DType) -> Result<Vec<Vec<f64>>> {
    let [n, c, h, w, k, down, right] = shape;
    let options = Conv2dOptions { padding: [down, right], ..Default::default() };
    let leaf = |seed: u64, shape: &[usize], size: f64| {
        // The same numbers for both types.
        stream(seed, shape, DType::F32, -size, size)?.to_dtype(dtype)?.to(device)?.requires_grad()
    };
    let taps = (9.0 * c as f64).sqrt();
    let (x, weight) = (leaf(1, &[n, c, h, w], 1.0)?, leaf(2, &[k, c, 3, 3], 1.0 / taps)?);
    let bias = leaf(3, &[k], 1.0)?;
    let y = x.conv2d(&weight, Some(&bias), options)?;
    let dy = stream(4, y.shape(), DType::F32, -1.0, 1.0)?.to_dtype(dtype)?.to(device)?;
    y.mul(&dy)?.sum()?.backward()?;
    let values = |t: &Tensor| t.to_dtype(DType::F64)?.to(Device::Cpu)?.to_vec::<f64>();
    let positive = x.detach().conv2d(&weight.detach(), Some(&bias.detach()), options)?.relu()?;
    let mut all = vec![values(&positive)?, values(&y)?];
    for leaf in [&x, &weight, &bias] {
        all.push(values(&leaf.grad().expect("leaves have gradients"))?);
    }
    Ok(all)
}

#[test]
fn every_pass_is_near_the_sums_in_f64() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    // What is asked for is read once a process.
    if std::env::var("NEURONA_WINOGRAD").as_deref() != Ok("1") {
        let itself = std::env::current_exe().expect("a running program");
        let run = Command::new(itself).env("NEURONA_WINOGRAD", "1").output().expect("it starts again");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        return Ok(());
    }
    for shape in SHAPES {
        let (got, want) = (results(shape, gpu, DType::F32)?, results(shape, Device::Cpu, DType::F64)?);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let largest = want.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let far = got.iter().zip(want).fold(0.0, |a: f64, (x, y)| a.max((x - y).abs()));
            assert_eq!(got.len(), want.len());
            assert!(far <= 1e-5 * largest, "{shape:?}, result {i}: {far:e} from f64, whose largest is {largest}");
        }
    }
    Ok(())
}
