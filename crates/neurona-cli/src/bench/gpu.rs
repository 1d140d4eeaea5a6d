//! Training on a GPU.

use super::training::{Training, tenths};
use super::work::Network;
use crate::data::gibibytes;
use crate::device::describe;
use crate::failure::{Outcome, say};
use neurona::{DType, Device};
use serde::Serialize;
use std::time::Instant;

#[derive(Serialize)]
struct Row {
    peer: &'static str,
    train: &'static str,
    batch: usize,
    dtype: &'static str,
    kernels: String,
    img_per_s: f64,
    step_us: f64,
    /// From the start of the process to the end of its first training step; only the first row has it.
    first_step_s: Option<f64>,
    /// The most device memory that the process has held so far.
    peak_bytes: u64,
    gpu: String,
}

/// The head of the table.
pub fn head(device: Device) -> Outcome {
    say(format!("{}, {} kernels", describe(device), kernels()))?;
    say(format!(
        "{:<8} {:>6} {:>10} {:>14} {:>12} {:>14} {:>12}",
        "network", "batch", "numbers", "images/s", "step in µs", "first step", "memory"
    ))
}

/// Measures one workload, and prints it. `begun` is when the process began, for its first workload.
pub fn run(network: Network, batch: usize, device: Device, begun: Option<Instant>, json: bool) -> Outcome {
    let row = measure(network, batch, device, begun)?;
    if json {
        // A struct of numbers and plain strings always has a JSON form.
        return say(serde_json::to_string(&row).unwrap_or_default());
    }
    let Row { train, batch, dtype, img_per_s, step_us, first_step_s, peak_bytes, .. } = row;
    let first = first_step_s.map_or(String::new(), |seconds| format!("{seconds:.2} s"));
    let memory = gibibytes(peak_bytes);
    say(format!("{train:<8} {batch:>6} {dtype:>10} {img_per_s:>14.0} {step_us:>12.1} {first:>14} {memory:>12}"))
}

fn measure(network: Network, batch: usize, device: Device, begun: Option<Instant>) -> neurona::Result<Row> {
    let mut training = Training::new(network, batch, device)?;
    training.step()?;
    device.synchronize()?;
    let first_step_s = begun.map(|begun| (begun.elapsed().as_secs_f64() * 1e3).round() / 1e3);
    let step = training.in_a_row(if batch > 1000 { 50 } else { 200 })?;
    Ok(Row {
        peer: "neurona",
        train: network.name(),
        batch,
        dtype: match neurona::autocast() {
            Some(DType::BF16) => "bfloat16",
            Some(DType::F16) => "float16",
            _ => "float32",
        },
        kernels: kernels(),
        img_per_s: (batch as f64 / step).round(),
        step_us: tenths(step * 1e6),
        first_step_s,
        peak_bytes: neurona::gpu_peak_memory(),
        gpu: crate::device::gpu_name(device),
    })
}

fn kernels() -> String {
    format!("{:?}", neurona::kernels()).to_lowercase()
}
