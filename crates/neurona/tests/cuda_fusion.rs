//! What GPUs do in one launch gives what the ops give one by one. Without a GPU every test here skips itself.

mod common;

use common::stream;
use neurona::{Conv2dOptions, CrossEntropyOptions, DType, Device, Reduction, Result, Tensor, set_fusion};
use std::sync::{Mutex, MutexGuard};

/// Settings are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// What `compute` gives on the GPU, fused and op by op.
fn both(compute: impl Fn(Device) -> Result<Vec<f64>>) -> Result<Option<[Vec<f64>; 2]>> {
    let _alone = alone();
    let Some(gpu) = common::gpu() else { return Ok(None) };
    let fused = compute(gpu)?;
    set_fusion(false);
    let plain = compute(gpu);
    set_fusion(true);
    Ok(Some([fused, plain?]))
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.to_dtype(DType::F64)?.to_vec::<f64>()
}

/// Differences beside the largest number are at most what is allowed.
#[track_caller]
fn same(a: &[f64], b: &[f64], allowed: f64, about: &str) {
    assert_eq!(a.len(), b.len(), "{about}");
    let size = b.iter().filter(|x| x.is_finite()).fold(1e-30f64, |most, x| most.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let close = (a - b).abs() <= allowed * size || a.is_nan() && b.is_nan();
        assert!(close, "{about}, at {i}: {a} and {b}, the largest being {size}");
    }
}

#[test]
fn layout_and_type_change_at_once() -> Result<()> {
    // Few channels are copied, many turn in squares; both ways, with edges that are no whole squares.
    for (channels, filters) in [(3, 5), (40, 24)] {
        for (from, to) in
            [(DType::F32, DType::BF16), (DType::F32, DType::F16), (DType::BF16, DType::F32), (DType::F64, DType::F32)]
        {
            let pair = both(|gpu| {
                let x = stream(1, [2, channels, 7, 9], from, -1.0, 1.0)?.to(gpu)?;
                let w = stream(2, [filters, channels, 1, 1], to, -1.0, 1.0)?.to(gpu)?;
                let y = x.to_dtype(to)?.conv2d(&w, None, Conv2dOptions::default())?;
                numbers(&y.to_dtype(from)?)
            })?;
            if let Some([fused, plain]) = pair {
                assert_eq!(fused, plain, "{channels} channels, {from} as {to}");
            }
        }
    }
    Ok(())
}

/// Loss, and the gradient by the logits, of targets of which every 7th is ignored.
fn cross_entropy(gpu: Device, [rows, n]: [usize; 2], dtype: DType, o: CrossEntropyOptions) -> Result<Vec<f64>> {
    let x = stream(3, [rows, n], dtype, -4.0, 4.0)?.to(gpu)?.requires_grad()?;
    let targets = (0..rows as i64).map(|i| if i % 7 == 3 { o.ignore_index } else { i * i % n as i64 }).collect();
    let loss = x.cross_entropy_with(&Tensor::from_vec(targets, [rows])?.to(gpu)?, o)?;
    let factors = stream(4, loss.shape().clone(), dtype, 0.5, 2.0)?.to(gpu)?;
    loss.mul(&factors)?.sum()?.backward()?;
    let mut all = numbers(&x.grad().expect("backward was called"))?;
    all.extend(numbers(&loss)?);
    Ok(all)
}

#[test]
fn a_loss_and_its_gradient_are_those_of_two_passes() -> Result<()> {
    let reductions = [Reduction::None, Reduction::Mean, Reduction::Sum];
    // Fewer threads than a row has, several rows a warp, whole blocks a row; more rows than every block counts for itself.
    for size in [[0, 4], [1, 1], [300, 10], [5, 1200], [4200, 3]] {
        for reduction in reductions {
            for (label_smoothing, ignore_index) in [(0.0, -100), (0.1, 0)] {
                let options = CrossEntropyOptions { reduction, label_smoothing, ignore_index };
                // In 16 bits, one pass does not round the logarithms that two hand on.
                for (dtype, allowed) in [(DType::F32, 1e-6), (DType::F64, 1e-14), (DType::BF16, 0.01)] {
                    if dtype != DType::F32 && size[0] != 300 {
                        continue;
                    }
                    let pair = both(|gpu| cross_entropy(gpu, size, dtype, options))?;
                    let Some([fused, plain]) = pair else { return Ok(()) };
                    let (fused, plain) = (fused.split_at(size[0] * size[1]), plain.split_at(size[0] * size[1]));
                    for (what, a, b) in [("gradient", fused.0, plain.0), ("loss", fused.1, plain.1)] {
                        same(a, b, allowed, &format!("{what} of {size:?} in {dtype}, {options:?}"));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_loss_is_the_same_when_its_plan_runs_again() -> Result<()> {
    let Some([first, _]) = both(|gpu| cross_entropy(gpu, [300, 10], DType::F32, CrossEntropyOptions::default()))?
    else {
        return Ok(());
    };
    // Launched op by op, then captured, then replayed: blocks are counted anew each time.
    for _ in 0..3 {
        if let Some([again, _]) = both(|gpu| cross_entropy(gpu, [300, 10], DType::F32, CrossEntropyOptions::default()))?
        {
            assert_eq!(first, again);
        }
    }
    Ok(())
}

#[test]
fn relu_is_undone_behind_a_product() -> Result<()> {
    // Batch, input, hidden and output sizes: edges of tiles, rows that are no whole vectors, sums that several blocks share.
    for [n, input, hidden, output] in [[8, 16, 24, 10], [5, 7, 9, 3], [64, 32, 84, 120], [2, 8, 16, 3000], [1, 1, 1, 1]]
    {
        for (dtype, allowed) in [(DType::F32, 1e-6), (DType::BF16, 1e-2), (DType::F64, 1e-14)] {
            let pair = both(|gpu| {
                let x = stream(5, [n, input], dtype, -1.0, 1.0)?.to(gpu)?;
                let first = stream(6, [hidden, input], dtype, -1.0, 1.0)?.to(gpu)?.requires_grad()?;
                let second = stream(7, [output, hidden], dtype, -1.0, 1.0)?.to(gpu)?;
                let by = stream(8, [n, output], dtype, -1.0, 1.0)?.to(gpu)?;
                let bias = stream(9, [hidden], dtype, -1.0, 1.0)?.to(gpu)?.requires_grad()?;
                let hidden = x.linear(&first, Some(&bias))?.relu()?;
                hidden.linear(&second, None)?.mul(&by)?.sum()?.backward()?;
                let gradients = [first.grad(), bias.grad()].map(|g| numbers(&g.expect("backward was called")));
                gradients.into_iter().collect::<Result<Vec<_>>>().map(|both| both.concat())
            })?;
            let Some([fused, plain]) = pair else { return Ok(()) };
            same(&fused, &plain, allowed, &format!("{n} of {input}, {hidden} and {output} in {dtype}"));
        }
    }
    Ok(())
}

#[test]
fn a_residual_sum_is_that_of_its_parts() -> Result<()> {
    // Whole vectors of channels and single ones; more rows than one run has.
    for [n, c, side] in [[2, 8, 3], [3, 5, 4], [4, 64, 9], [2, 1, 2]] {
        for (dtype, allowed) in [(DType::F32, 1e-6), (DType::F64, 1e-14), (DType::BF16, 0.02)] {
            for relu in [false, true] {
                let pair = both(|gpu| {
                    let image = |seed| stream(seed, [n, c, side, side], dtype, -2.0, 2.0)?.to(gpu)?.requires_grad();
                    let (x, other, by) = (image(1)?, image(2)?, image(3)?);
                    let weight = stream(4, [c], dtype, 0.5, 1.5)?.to(gpu)?.requires_grad()?;
                    let bias = stream(5, [c], dtype, -0.5, 0.5)?.to(gpu)?.requires_grad()?;
                    let y = x.batch_norm_train(Some((&weight, &bias)), None, None, 1e-5)?.output.add(&other)?;
                    let y = if relu { y.relu()? } else { y };
                    y.mul(&by)?.sum()?.backward()?;
                    let mut all = numbers(&y)?;
                    for gradient in [&x, &other, &weight, &bias].map(Tensor::grad) {
                        all.extend(numbers(&gradient.expect("backward was called"))?);
                    }
                    Ok(all)
                })?;
                let Some([fused, plain]) = pair else { return Ok(()) };
                same(&fused, &plain, allowed, &format!("{n} images of {c}x{side}x{side} in {dtype}, relu {relu}"));
            }
        }
    }
    Ok(())
}
