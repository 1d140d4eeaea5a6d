//! How fast matrix products run on CPU cores; `bench/matmul_torch.py` compares it with PyTorch.
//!
//!     echo 1024 1024 1024 ab | cargo run --release -p neurona --example bench_matmul -- [--threads N] [--seconds S]
//!
//! Every line of the input is a product of an M×K and a K×N matrix and how they are stored: `ab`, `abt` with the right
//! one transposed (a layer), `atb` with the left one (a layer's weight gradient). Prints its best GFLOP/s.

use neurona::cpu::gemm::{Activation, MatLayout, MatMul};
use neurona::cpu::kernel::{Buf, Io, Kernel};
use neurona::cpu::team::Team;
use std::error::Error;
use std::io::Write;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let threads = option("--threads").map_or(Ok(2), |n| n.parse())?;
    let seconds = option("--seconds").map_or(Ok(0.1), |s| s.parse())?;
    let mut team = Team::new(threads);
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [m, n, k, layout] = words[..] else { return Err(format!("{line:?} is not M N K LAYOUT").into()) };
        let (left, right) = (layout.starts_with("at"), layout.ends_with("bt"));
        println!("{:.2}", measure(&mut team, [m.parse()?, n.parse()?, k.parse()?], left, right, seconds));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The best GFLOP/s of five windows.
fn measure(team: &mut Team, [m, n, k]: [usize; 3], left: bool, right: bool, seconds: f64) -> f64 {
    let stored = |rows, columns, transposed| match transposed {
        true => MatLayout { row: 1, col: rows, batch: 0 },
        false => MatLayout { row: columns, col: 1, batch: 0 },
    };
    let product = MatMul::new(1, m, n, k, stored(m, k, left), stored(k, n, right), false, Activation::None);
    let values = |count: usize| (0..count).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect::<Vec<_>>();
    let aligned = |bytes: usize| vec![[0u64; 8]; bytes.div_ceil(64)].into_boxed_slice();
    let (mut a, mut b, mut c) = (values(m * k), values(k * n), values(m * n));
    let mut workspace = aligned(product.workspace());
    let mut scratch: Vec<_> = (0..team.threads()).map(|_| aligned(product.scratch())).collect();
    let inputs = [Buf::over(&mut a), Buf::over(&mut b)];
    let outputs = [Buf::over(&mut c)];
    let workspace = Buf::over(workspace.as_flattened_mut());
    let scratch: Vec<Buf> = scratch.iter_mut().map(|s| Buf::over(s.as_flattened_mut())).collect();
    let phases = product.phases();
    // Many times in one run, as in a plan.
    let mut run = |times: usize| {
        let start = Instant::now();
        team.run(&|walk| {
            let scratch = scratch[walk.thread()];
            let io = Io { inputs: &inputs, outputs: &outputs, workspace, scratch };
            for _ in 0..times {
                for (phase, &tasks) in phases.iter().enumerate() {
                    walk.phase(tasks, |task| product.run(phase, task, &io));
                }
            }
        });
        start.elapsed().as_secs_f64() / times as f64
    };
    run(1);
    let times = (seconds / 5.0 / run(1)).clamp(1.0, 1e6) as usize;
    let best = (0..5).map(|_| run(times)).fold(f64::INFINITY, f64::min);
    product.flops() as f64 / best / 1e9
}
