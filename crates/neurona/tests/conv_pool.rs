//! Convolution, relu and max-pool become one op on CPU cores, forward and backward, wherever nobody else needs what lies
//! between; and that op gives what the three give.

mod common;

use common::stream;
use neurona::{Conv2dOptions, DType, PoolOptions, Result, Tensor, latest_steps, set_fusion};
use std::sync::{Mutex, MutexGuard};

const FORWARD: &str = "conv2d·relu·max_pool2d";
const BACKWARD: &str = "conv2d·relu·max_pool2d_grad";

/// Fusion is the process's setting: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn has(steps: &[String], name: &str) -> bool {
    steps.iter().any(|step| step == name)
}

/// A block: its input's and its filters' sizes, its options, and what is asked of it.
#[derive(Clone, Copy, Debug)]
struct Block {
    x: [usize; 4],
    weight: [usize; 4],
    options: Conv2dOptions,
    pool: PoolOptions,
    bias: bool,
    by_input: bool,
    /// Whether linear layers would come next, as they do behind the last block of a network.
    flat: bool,
}

impl Block {
    fn new(x: [usize; 4], k: usize, filter: usize) -> Self {
        let options = Conv2dOptions::default();
        Block {
            x,
            weight: [k, x[1], filter, filter],
            options,
            pool: PoolOptions::square(2),
            bias: true,
            by_input: true,
            flat: false,
        }
    }
}

/// Names and numbers.
type Seen = Vec<(&'static str, Vec<f64>)>;

/// Pooled images and gradients, and the steps of the plans: without gradients, and with them.
fn run(block: Block, dtype: DType, between: impl Fn(&Tensor) -> Result<Tensor>) -> Result<(Seen, [Vec<String>; 2])> {
    let leaf = |seed: u64, shape: &[usize]| stream(seed, shape, dtype, -1.0, 1.0);
    let x = leaf(1, &block.x)?;
    let x = if block.by_input { x.requires_grad()? } else { x };
    let weight = leaf(2, &block.weight)?.requires_grad()?;
    let bias = leaf(3, &block.weight[..1])?.requires_grad()?;
    let forward = || -> Result<Tensor> {
        let y = x.conv2d(&weight, block.bias.then_some(&bias), block.options)?;
        between(&y.relu()?)?.max_pool2d(block.pool)
    };
    let numbers = |t: &Tensor| t.to_dtype(DType::F64)?.to_vec::<f64>();
    // A pool that is held keeps its winners' places too: hence under another shape.
    let pooled = forward()?.flatten(1, -1)?;
    let mut seen = vec![("pooled", numbers(&pooled)?)];
    let first = latest_steps();
    drop(pooled);
    let loss = || -> Result<Tensor> {
        let pooled = if block.flat { forward()?.flatten(1, -1)? } else { forward()? };
        let slopes = stream(99, pooled.shape(), dtype, -1.0, 1.0)?;
        pooled.mul(&slopes)?.sum()
    };
    loss()?.backward()?;
    let mut gradients = vec![("dweight", weight.grad().expect("a gradient"))];
    let steps = [first, latest_steps()];
    if block.bias {
        gradients.push(("dbias", bias.grad().expect("a gradient")));
    }
    if block.by_input {
        gradients.push(("dx", x.grad().expect("a gradient")));
    }
    for (name, gradient) in gradients {
        seen.push((name, numbers(&gradient)?));
    }
    Ok((seen, steps))
}

/// Whether forward, forward in training, and backward are joined; after comparing with the ops one by one.
fn compare(block: Block) -> Result<[bool; 3]> {
    set_fusion(false);
    let plain = run(block, DType::F32, |y| Ok(y.clone()));
    set_fusion(true);
    let ((plain, without), (fused, with)) = (plain?, run(block, DType::F32, |y| Ok(y.clone()))?);
    let all = |steps: &[Vec<String>; 2]| [has(&steps[0], FORWARD), has(&steps[1], FORWARD), has(&steps[1], BACKWARD)];
    assert_eq!(all(&without), [false; 3], "{block:?}");
    assert_eq!(plain.len(), fused.len());
    for ((name, want), (_, got)) in plain.iter().zip(&fused) {
        assert_eq!(got.len(), want.len(), "{block:?}, {name}");
        let largest = want.iter().fold(1e-2, |a: f64, b| a.max(b.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= 1e-5 * largest, "{block:?}, {name} {i}: {got} fused, {want} one by one");
        }
    }
    // Behind the last block the order of memory is that of its elements: nothing turns the images or their gradient.
    let joined = all(&with);
    assert!(!joined[0] || !has(&with[0], "to_nchw"), "{block:?}: {with:?}");
    assert!(!joined[2] || !block.flat || block.by_input || !has(&with[1], "to_nchw"), "{block:?}: {with:?}");
    Ok(joined)
}

#[test]
fn gives_what_the_ops_give() -> Result<()> {
    let _alone = alone();
    let padded = Conv2dOptions { padding: [1, 2], ..Default::default() };
    let strided = Conv2dOptions { stride: [2, 1], dilation: [1, 2], ..Default::default() };
    for block in [
        Block::new([4, 3, 32, 32], 6, 5),
        Block { by_input: false, ..Block::new([1, 3, 32, 32], 6, 5) },
        Block::new([3, 6, 14, 14], 16, 5),
        Block { bias: false, ..Block::new([2, 6, 15, 13], 16, 4) },
        Block { options: padded, ..Block::new([2, 3, 20, 19], 6, 3) },
        Block { options: padded, ..Block::new([2, 1, 28, 28], 32, 3) },
        Block { options: strided, ..Block::new([2, 5, 21, 24], 9, 3) },
        Block { options: strided, ..Block::new([2, 4, 21, 24], 24, 3) },
    ] {
        assert_eq!(compare(block)?, [true; 3], "{block:?}");
        assert_eq!(compare(Block { flat: true, by_input: false, ..block })?, [true; 3], "{block:?}");
        assert_eq!(compare(Block { flat: true, ..block })?, [true; 3], "{block:?}");
    }
    Ok(())
}

/// Their images are laid out for the gradient by the tasks that look at them, and no step turns them before.
#[test]
fn images_of_large_batches_are_not_turned() -> Result<()> {
    let _alone = alone();
    for padding in [0, 1] {
        for by_input in [false, true] {
            let options = Conv2dOptions { padding: [padding; 2], ..Default::default() };
            let size = 36 - 2 * padding;
            let block = Block { options, by_input, flat: true, ..Block::new([48, 3, size, size], 6, 5) };
            assert_eq!(compare(block)?, [true; 3], "{block:?}");
            let (_, [_, steps]) = run(block, DType::F32, |y| Ok(y.clone()))?;
            assert!(!has(&steps, "to_nhwc"), "{block:?}: {steps:?}");
        }
    }
    Ok(())
}

#[test]
fn other_windows_and_groups_are_left_alone() -> Result<()> {
    let _alone = alone();
    let block = Block::new([2, 4, 13, 13], 8, 3);
    let overlapping = PoolOptions { kernel: [3, 3], stride: [2, 2], padding: [1, 1], ceil_mode: false };
    assert_eq!(compare(Block { pool: overlapping, ..block })?, [false; 3]);
    // A last window that is cut off.
    let ceiling = PoolOptions { ceil_mode: true, ..PoolOptions::square(2) };
    assert_eq!(compare(Block { pool: ceiling, ..block })?, [false; 3]);
    let options = Conv2dOptions { groups: 2, ..Default::default() };
    assert_eq!(compare(Block { options, weight: [8, 2, 3, 3], ..block })?, [false; 3]);
    Ok(())
}

#[test]
fn other_readers_keep_the_ops_apart() -> Result<()> {
    let _alone = alone();
    let block = Block::new([2, 3, 12, 12], 6, 5);
    let joined = |steps: &[Vec<String>; 2]| has(&steps[0], FORWARD) || has(&steps[1], FORWARD);
    // Another op between relu and pool.
    let (_, steps) = run(block, DType::F32, |y| y.mul(&Tensor::scalar(2f32)))?;
    assert!(!joined(&steps), "{steps:?}");
    // Another type of numbers.
    let (_, steps) = run(block, DType::F64, |y| Ok(y.clone()))?;
    assert!(!joined(&steps), "{steps:?}");
    // Somebody who holds what lies between.
    let (x, weight) = (stream(1, block.x, DType::F32, -1.0, 1.0)?, stream(2, block.weight, DType::F32, -1.0, 1.0)?);
    let y = x.conv2d(&weight, None, block.options)?.relu()?;
    let pooled = y.max_pool2d(block.pool)?.flatten(1, -1)?;
    let (largest, all) = (pooled.to_vec::<f32>()?, y.to_vec::<f32>()?);
    assert!(!has(&latest_steps(), FORWARD));
    let top = |values: &[f32]| values.iter().fold(0f32, |a, b| a.max(*b));
    assert_eq!(top(&largest), top(&all));
    Ok(())
}
