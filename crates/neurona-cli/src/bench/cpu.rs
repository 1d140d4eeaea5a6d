//! Training and inference on CPU cores.

use super::training::{Training, WARM_UP, best_mean, tenths};
use super::work::Network;
use crate::failure::{Outcome, say};
use neurona::Device;
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Row {
    peer: &'static str,
    work: String,
    train_per_s: f64,
    infer_per_s: f64,
    step_us: f64,
    /// Of a step, on the mean of all: tracing it and looking its plan up.
    trace_us: f64,
    /// Of a step, on the mean of all: all that is not a kernel; storing results as well.
    overhead_us: f64,
    threads: usize,
    /// Memory of the process before the network was made, and at its peak; absent where the system does not tell.
    baseline_bytes: Option<u64>,
    peak_bytes: Option<u64>,
}

/// The head of the table.
pub fn head() -> Outcome {
    say(format!("{} threads on cpu", neurona::num_threads()))?;
    say(format!(
        "{:<12} {:>14} {:>14} {:>14} {:>10} {:>16}",
        "work", "trained/s", "inferred/s", "step in µs", "tracing", "not in kernels"
    ))
}

/// Measures one workload, and prints it.
pub fn run(network: Network, batch: usize, seconds: f64, json: bool) -> Outcome {
    let row = measure(network, batch, seconds)?;
    if json {
        // A struct of numbers and plain strings always has a JSON form.
        return say(serde_json::to_string(&row).unwrap_or_default());
    }
    let Row { work, train_per_s, infer_per_s, step_us, trace_us, overhead_us, .. } = row;
    say(format!(
        "{work:<12} {train_per_s:>14.1} {infer_per_s:>14.1} {step_us:>14.1} {trace_us:>10.1} {overhead_us:>16.1}"
    ))
}

fn measure(network: Network, batch: usize, seconds: f64) -> neurona::Result<Row> {
    let baseline_bytes = memory("VmRSS:");
    let mut training = Training::new(network, batch, Device::Cpu)?;
    let (mut overhead, mut tracing, mut steps) = (Duration::ZERO, Duration::ZERO, 0u32);
    let step = best_mean(seconds, || {
        let (start, before) = (Instant::now(), neurona::stats());
        training.step()?.item::<f32>()?;
        // The first calls make the plan; what counts is the cost of finding it.
        if steps >= WARM_UP {
            let (elapsed, after) = (start.elapsed(), neurona::stats());
            let outside = elapsed.saturating_sub(after.running - before.running);
            overhead += outside;
            tracing += outside.saturating_sub(after.storing - before.storing);
        }
        steps += 1;
        Ok(())
    })?;
    training.eval();
    let inference = best_mean(seconds, || training.infer().map(drop))?;
    let mean = |time: Duration| tenths(time.as_secs_f64() * 1e6 / f64::from(steps - WARM_UP));
    Ok(Row {
        peer: "neurona",
        work: format!("{}_b{batch}", network.name()),
        train_per_s: tenths(batch as f64 / step),
        infer_per_s: tenths(batch as f64 / inference),
        step_us: tenths(step * 1e6),
        trace_us: mean(tracing),
        overhead_us: mean(overhead),
        threads: neurona::num_threads(),
        baseline_bytes,
        peak_bytes: memory("VmHWM:"),
    })
}

/// A line of what Linux says of this process's memory, in bytes.
fn memory(line: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = status.lines().find_map(|l| l.strip_prefix(line))?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
