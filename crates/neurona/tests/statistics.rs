//! Batch norm in training by statistics that the convolution before it took on the way: what it gives, forward and
//! backward, is what batch norm gives that measures for itself, whatever the number of threads.

mod common;

use common::stream;
use neurona::nn::Buffer;
use neurona::{Conv2dOptions, DType, PoolOptions, Result, RunningStats, Tensor, latest_steps};
use neurona::{set_fusion, set_num_threads};

const MEASURED: &str = "conv2d·statistics";

/// What follows on the normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    Relu,
    Pool,
    /// The input is added, as at the end of a residual block.
    Add,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    x: [usize; 4],
    k: usize,
    filter: [usize; 2],
    options: Conv2dOptions,
    bias: bool,
    then: Then,
}

/// Names and numbers.
type Seen = Vec<(&'static str, Vec<f64>)>;

/// All that can be seen of a training step, and the steps of its plan.
fn run(b: Block, seed: u64) -> Result<(Seen, Vec<String>)> {
    let leaf = |seed: u64, shape: &[usize], low, high| stream(seed, shape.to_vec(), DType::F32, low, high);
    let x = leaf(seed, &b.x, -1.0, 1.0)?.requires_grad()?;
    let filters = [b.k, b.x[1] / b.options.groups, b.filter[0], b.filter[1]];
    let weight = leaf(seed + 1, &filters, -0.5, 0.5)?.requires_grad()?;
    let offset = leaf(seed + 2, &[b.k], 3.0, 9.0)?;
    let scale = leaf(seed + 3, &[b.k], 0.5, 1.5)?.requires_grad()?;
    let shift = leaf(seed + 4, &[b.k], -0.5, 0.5)?.requires_grad()?;
    let before = [leaf(seed + 5, &[b.k], -1.0, 1.0)?, leaf(seed + 6, &[b.k], 0.5, 1.5)?, Tensor::scalar(4i64)];
    let buffers = before.iter().map(Buffer::new).collect::<Result<Vec<_>>>()?;
    let y = {
        let [mean, var, batches] = [buffers[0].get()?, buffers[1].get()?, buffers[2].get()?];
        let running = RunningStats { mean: &mean, var: &var, batches: &batches };
        let images = x.conv2d(&weight, b.bias.then_some(&offset), b.options)?;
        let done = images.batch_norm_train(Some((&scale, &shift)), Some(running), Some(0.1), 1e-3)?;
        for (buffer, value) in buffers.iter().zip(done.stats.into_iter().flatten()) {
            buffer.cell().stage(value)?;
        }
        match b.then {
            Then::Nothing => done.output,
            Then::Relu => done.output.relu()?,
            Then::Pool => done.output.relu()?.max_pool2d(PoolOptions::square(2))?,
            Then::Add => done.output.add(&x)?.relu()?,
        }
    };
    // Smooth in y: where relu's corner lies must not decide.
    let loss = y.mul(&stream(seed + 7, y.shape(), DType::F32, 0.5, 1.0)?)?.square()?.sum()?;
    drop(y);
    loss.backward()?;
    let numbers = |t: Option<Tensor>| t.expect("a gradient").to_vec::<f64>();
    let mut seen = vec![("dx", numbers(x.grad())?)];
    let steps = latest_steps();
    seen.push(("loss", loss.to_vec::<f64>()?));
    seen.push(("dweight", numbers(weight.grad())?));
    seen.push(("dscale", numbers(scale.grad())?));
    seen.push(("dshift", numbers(shift.grad())?));
    for (name, buffer) in ["mean", "variance", "batches"].into_iter().zip(&buffers) {
        seen.push((name, buffer.get()?.to_vec::<f64>()?));
    }
    Ok((seen, steps))
}

/// Shapes of every way a convolution goes: 1×1, stride 2, Winograd's, groups, depthwise, few and odd channels.
fn blocks() -> Vec<Block> {
    let mut state = 5u64;
    let mut pick = |from: &[usize]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from[(state >> 33) as usize % from.len()]
    };
    let mut all = Vec::new();
    for i in 0..40 {
        let groups = pick(&[1, 1, 1, 2]);
        let side = pick(&[1, 1, 3, 3, 5]);
        let c = groups * pick(&[1, 3, 8, 16, 19]);
        let depthwise = i % 7 == 6 && c > 1;
        let then = [Then::Nothing, Then::Relu, Then::Pool, Then::Add][pick(&[0, 1, 2, 3])];
        let k = if depthwise || then == Then::Add { c } else { groups * pick(&[1, 5, 16, 33, 64]) };
        let stride = if then == Then::Add { 1 } else { pick(&[1, 1, 2]) };
        let options = Conv2dOptions {
            stride: [stride; 2],
            padding: [side / 2; 2],
            groups: if depthwise { c } else { groups },
            ..Default::default()
        };
        let x = [pick(&[2, 3, 9]), c, pick(&[8, 11, 16]), pick(&[9, 12, 16])];
        all.push(Block { x, k, filter: [side; 2], options, bias: pick(&[0, 1]) == 1, then });
    }
    all
}

// One test: fusion and the number of threads belong to the process.
#[test]
fn statistics_on_the_way_are_those_taken_afterwards() -> Result<()> {
    let mut measured = 0;
    for (i, block) in blocks().into_iter().enumerate() {
        let seed = 100 * i as u64;
        set_fusion(false);
        let plain = run(block, seed);
        set_fusion(true);
        let (plain, without) = plain?;
        assert!(!without.iter().any(|step| step == MEASURED), "{block:?}: {without:?}");
        set_num_threads(1);
        let (fused, with) = run(block, seed)?;
        measured += usize::from(with.iter().any(|step| step == MEASURED));
        for ((name, want), (_, got)) in plain.iter().zip(&fused) {
            let largest = want.iter().fold(1e-2, |a: f64, b| a.max(b.abs()));
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                // A whole batch's sums cancel in the gradients by filters and scales.
                let near = if name.starts_with('d') { 2e-4 } else { 1e-5 };
                assert!((got - want).abs() <= near * largest, "{block:?}, {name} {i}: {got} fused, {want} one by one");
            }
        }
        for threads in [2, 3] {
            set_num_threads(threads);
            assert_eq!(run(block, seed)?.0, fused, "{block:?} with {threads} threads");
        }
    }
    assert!(measured > 30, "only {measured} blocks measured on the way");
    Ok(())
}
