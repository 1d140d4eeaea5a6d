//! `neurona bench`: how fast this machine trains the networks that `bench/` measures PyTorch with.

mod work;

use crate::device::{self, DeviceName};
use crate::failure::{Outcome, say};
use crate::flags;
use neurona::nn::Forward;
use neurona::optim::{Optimizer, Sgd};
use neurona::{Device, Tensor, no_grad};
use serde::Serialize;
use std::time::{Duration, Instant};
use work::Work;

/// Measures training steps and inference on this machine, through the same calls that a program makes.
///
/// Each workload is a network and a batch size: lab (two convolutions, three linear layers), bn (three
/// convolutions with batch norm), mlp500 and mlp784 (linear layers), r18 (ResNet-18 for 32 by 32 pixels).
#[derive(clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  neurona bench --threads 2 --seconds 1 lab_b4 r18_b32"
)]
pub struct Args {
    /// Where to run.
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    device: DeviceName,
    /// Threads to run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = flags::threads)]
    threads: Option<usize>,
    /// Seconds to measure each of training and inference.
    #[arg(long, value_name = "S", default_value = "3", value_parser = flags::positive)]
    seconds: f64,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// What to measure [default: all].
    #[arg(value_name = "WORK")]
    works: Vec<Work>,
}

#[derive(Serialize)]
struct Row {
    peer: &'static str,
    work: &'static str,
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

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if let Some(threads) = args.threads {
        neurona::set_num_threads(threads);
    }
    let (device, _) = device::find(args.device)?;
    if !args.json {
        say(format!("{} threads on {}", neurona::num_threads(), device))?;
        say(format!(
            "{:<12} {:>14} {:>14} {:>14} {:>10} {:>16}",
            "work", "trained/s", "inferred/s", "step in µs", "tracing", "not in kernels"
        ))?;
    }
    let works = if args.works.is_empty() { Work::ALL } else { &args.works };
    for work in works {
        let row = measure(*work, args.seconds)?;
        if args.json {
            // A struct of numbers and plain strings always has a JSON form.
            say(serde_json::to_string(&row).unwrap_or_default())?;
        } else {
            let Row { work, train_per_s, infer_per_s, step_us, trace_us, overhead_us, .. } = row;
            say(format!(
                "{work:<12} {train_per_s:>14.1} {infer_per_s:>14.1} {step_us:>14.1} {trace_us:>10.1} {overhead_us:>16.1}"
            ))?;
        }
    }
    Ok(())
}

fn measure(work: Work, seconds: f64) -> neurona::Result<Row> {
    neurona::manual_seed(0);
    let baseline_bytes = memory("VmRSS:");
    let batch = work.batch();
    let net = work.network()?;
    let x = Tensor::randn(work.input())?;
    let labels: Vec<i64> = neurona::tensor::random::uniform(batch).iter().map(|u| (u * 10.0) as i64).collect();
    let y = Tensor::from_vec(labels, [batch])?;
    let mut opt = Sgd::new(net.parameters(), 1e-3).momentum(0.9);

    let (mut overhead, mut tracing, mut steps) = (Duration::ZERO, Duration::ZERO, 0u32);
    let step = best_mean(seconds, || {
        let (start, before) = (Instant::now(), neurona::stats());
        opt.zero_grad();
        let out = net.forward(&x)?;
        let loss = out.cross_entropy(&y)?;
        loss.backward()?;
        opt.step()?;
        loss.item::<f32>()?;
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
    net.eval();
    let inference = best_mean(seconds, || no_grad(|| net.forward(&x))?.to_vec::<f32>().map(drop))?;

    let tenths = |x: f64| (x * 10.0).round() / 10.0;
    let mean = |time: Duration| tenths(time.as_secs_f64() * 1e6 / f64::from(steps - WARM_UP));
    Ok(Row {
        peer: "neurona",
        work: work.name(),
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

/// Calls before anything is timed.
const WARM_UP: u32 = 5;

/// Seconds of one call: the best mean of five windows, after five calls to warm up. The peers' scripts do the same.
fn best_mean(seconds: f64, mut call: impl FnMut() -> neurona::Result<()>) -> neurona::Result<f64> {
    for _ in 0..WARM_UP {
        call()?;
    }
    let window = Duration::from_secs_f64(seconds / 5.0);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        let mut calls = 0;
        while calls < 2 || start.elapsed() < window {
            call()?;
            calls += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / calls as f64);
    }
    Ok(best)
}
