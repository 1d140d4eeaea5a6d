//! What GPUs do in one launch gives what the ops give one by one. Without a GPU every test here skips itself.

mod common;

use common::stream;
use neurona::{Conv2dOptions, DType, Device, Result, Tensor, set_fusion};
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
