//! Batch-norm in training, relu and max-pool become one op, forward and backward, wherever nobody else needs what is
//! normalised; and that op gives what the three give. On every device there is.

mod common;

use common::stream;
use neurona::models::course_cnn_with;
use neurona::nn::{Buffer, Forward, Module};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Conv2dOptions, DType, Device, PoolOptions, Result, RunningStats, Tensor, latest_steps, manual_seed};
use neurona::{set_autocast, set_fusion, set_num_threads};
use std::sync::{Mutex, MutexGuard};

const FORWARD: &str = "batch_norm·relu·max_pool2d";
const BACKWARD: &str = "batch_norm·relu·max_pool2d_grad";

/// Fusion is the process's setting: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn devices() -> impl Iterator<Item = Device> {
    [Some(Device::Cpu), common::gpu()].into_iter().flatten()
}

fn window(kernel: [usize; 2], stride: [usize; 2]) -> PoolOptions {
    PoolOptions { kernel, stride, padding: [0, 0], ceil_mode: false }
}

/// What a block has beside its input.
#[derive(Clone, Copy, Debug)]
struct Layer {
    dtype: DType,
    /// Of what is there once a channel.
    channel: DType,
    affine: bool,
    track: bool,
    momentum: Option<f64>,
    pool: PoolOptions,
}

impl Layer {
    fn new(dtype: DType, pool: PoolOptions) -> Self {
        Layer { dtype, channel: dtype, affine: true, track: true, momentum: Some(0.1), pool }
    }
}

/// Names and numbers.
type Seen = Vec<(&'static str, Vec<f64>)>;

/// Everything one can see of a block (pooled images, gradients by input, weight and bias, new running statistics), and the
/// steps of its plans: without gradients, and with them.
fn run(layer: Layer, x: &Tensor, device: Device) -> Result<(Seen, [Vec<String>; 2])> {
    let c = x.shape()[1];
    let leaf = |t: Tensor| t.to(device)?.requires_grad();
    let of_channel = |seed, low, high| stream(seed, [c], layer.channel, low, high);
    let x = leaf(x.to_dtype(layer.dtype)?)?;
    // Scales of both signs, and shifts that let some windows pass nothing.
    let (weight, bias) = (leaf(of_channel(2, -1.5, 1.5)?)?, leaf(of_channel(3, -1.5, 0.5)?)?);
    let before = [of_channel(4, -1.0, 1.0)?, of_channel(5, 0.5, 1.5)?, Tensor::scalar(4i64)];
    let buffers = before.iter().map(|t| Buffer::new(&t.to(device)?)).collect::<Result<Vec<_>>>()?;
    // As in a network: nothing but the result stays held.
    let block = || -> Result<Tensor> {
        let [mean, var, batches] = [buffers[0].get()?, buffers[1].get()?, buffers[2].get()?];
        let running = layer.track.then_some(RunningStats { mean: &mean, var: &var, batches: &batches });
        let affine = layer.affine.then_some((&weight, &bias));
        let done = x.batch_norm_train(affine, running, layer.momentum, 1e-3)?;
        for (buffer, value) in buffers.iter().zip(done.stats.into_iter().flatten()) {
            buffer.cell().stage(value)?;
        }
        done.output.relu()?.max_pool2d(layer.pool)
    };
    let numbers = |t: &Tensor| t.to_dtype(DType::F64)?.to_vec::<f64>();
    let loss = || -> Result<Tensor> {
        let pooled = block()?;
        let dy = stream(99, pooled.shape(), layer.dtype, -1.0, 1.0)?.to(device)?;
        pooled.mul(&dy)?.to_dtype(DType::F64)?.sum()
    };
    // A pool that is held keeps its winners' places too: hence under another shape.
    let pooled = block()?.flatten(1, -1)?;
    let mut seen = vec![("pooled", pooled.to_vec::<f64>()?)];
    let forward = latest_steps();
    drop(pooled);
    loss()?.backward()?;
    let dx = x.grad().expect("a gradient");
    let backward = latest_steps();
    seen.push(("dx", numbers(&dx)?));
    if layer.affine {
        seen.push(("dweight", numbers(&weight.grad().expect("a gradient"))?));
        seen.push(("dbias", numbers(&bias.grad().expect("a gradient"))?));
    }
    for (name, buffer) in ["mean", "variance", "batches"].into_iter().zip(&buffers) {
        seen.push((name, numbers(&buffer.get()?)?));
    }
    Ok((seen, [forward, backward]))
}

/// Gradients come from sums in another order, and in pure 16-bit types from statistics that are not rounded.
fn tolerance(layer: &Layer) -> f64 {
    match (layer.dtype, layer.channel) {
        (DType::F64, _) => 1e-13,
        (DType::F32, _) => 3e-6,
        (DType::F16, DType::F32) => 1e-3,
        (DType::BF16, DType::F32) => 8e-3,
        (DType::F16, _) => 4e-3,
        _ => 3e-2,
    }
}

fn has(steps: &[String], name: &str) -> bool {
    steps.iter().any(|step| step == name)
}

fn compare(layer: Layer, x: &Tensor, device: Device) -> Result<()> {
    let what = format!("{device:?} {:?} {layer:?}", x.shape());
    set_fusion(false);
    let plain = run(layer, x, device);
    set_fusion(true);
    let ((plain, without), (fused, with)) = (plain?, run(layer, x, device)?);
    let all = |steps: &[Vec<String>; 2]| [has(&steps[0], FORWARD), has(&steps[1], FORWARD), has(&steps[1], BACKWARD)];
    assert_eq!(all(&without), [false; 3], "{what}: {without:?}");
    // CPU cores go the way that is faster for the shape.
    let wanted = if device == Device::Cpu { [has(&with[0], FORWARD); 3] } else { [true; 3] };
    assert_eq!(all(&with), wanted, "{what}: {with:?}");
    assert_eq!(plain.len(), fused.len(), "{what}");
    for ((name, want), (_, got)) in plain.iter().zip(&fused) {
        assert_eq!(got.len(), want.len(), "{what}, {name}");
        let near = if name.starts_with('d') { tolerance(&layer) } else { 0.0 };
        let largest = want.iter().filter(|v| v.is_finite()).fold(1e-2, |a: f64, b| a.max(b.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let same = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= near * largest;
            assert!(same, "{what}, {name} {i}: {got} fused, {want} one by one");
        }
    }
    Ok(())
}

/// Whether forward and backward of a block are joined.
fn joined(layer: Layer, x: &Tensor, device: Device) -> Result<bool> {
    let [_, steps] = run(layer, x, device)?.1;
    assert_eq!(has(&steps, FORWARD), has(&steps, BACKWARD), "{steps:?}");
    Ok(has(&steps, FORWARD))
}

/// Sizes with rows and columns left over, single pixels, every kind of channels, windows with gaps and cut ones.
fn shapes() -> Vec<([usize; 4], PoolOptions)> {
    let square = PoolOptions::square;
    vec![
        ([2, 32, 8, 8], square(2)),
        ([2, 64, 7, 5], square(2)),
        ([3, 1, 9, 6], square(2)),
        ([2, 3, 2, 2], square(2)),
        ([5, 6, 3, 2], square(2)),
        ([2, 33, 6, 7], square(2)),
        ([9, 32, 31, 30], square(2)),
        ([2, 32, 10, 11], square(3)),
        ([2, 3, 7, 8], window([2, 2], [3, 3])),
        ([2, 16, 9, 10], window([2, 1], [3, 4])),
        ([2, 8, 7, 5], PoolOptions { ceil_mode: true, ..square(2) }),
        ([4, 6, 1, 1], square(1)),
        ([2, 4, 9, 11], window([5, 4], [5, 6])),
    ]
}

#[test]
fn one_op_gives_what_three_give() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let mut types = vec![(DType::F32, DType::F32), (DType::F64, DType::F64)];
        if device != Device::Cpu {
            types.push((DType::BF16, DType::F32));
        }
        for (dtype, channel) in types {
            // Every kernel is compiled for each type and window: f64 need not see them all.
            let few = if dtype == DType::F64 && device != Device::Cpu { 3 } else { usize::MAX };
            for (shape, pool) in shapes().into_iter().take(few) {
                let x = stream(1, shape, DType::F32, -1.0, 3.0)?;
                compare(Layer { channel, ..Layer::new(dtype, pool) }, &x, device)?;
            }
        }
    }
    Ok(())
}

#[test]
fn with_and_without_parameters_and_statistics() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let x = stream(1, [4, 16, 6, 7], DType::F32, -1.0, 3.0)?;
        let layer = Layer::new(DType::F32, PoolOptions::square(2));
        for affine in [false, true] {
            for (track, momentum) in [(false, None), (true, None), (true, Some(0.3))] {
                compare(Layer { affine, track, momentum, ..layer }, &x, device)?;
            }
        }
        if device != Device::Cpu {
            for (dtype, channel) in [(DType::F16, DType::F16), (DType::BF16, DType::BF16), (DType::F16, DType::F32)] {
                compare(Layer { dtype, channel, ..layer }, &x, device)?;
                compare(Layer { dtype, channel, affine: false, track: false, ..layer }, &x, device)?;
            }
        }
    }
    Ok(())
}

#[test]
fn ties_and_nans() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let layer = Layer { channel: DType::F32, ..Layer::new(dtype, PoolOptions::square(2)) };
            let layer = if device == Device::Cpu { Layer::new(DType::F32, layer.pool) } else { layer };
            // Few different values: many windows have several greatest ones, or nothing above 0.
            compare(layer, &stream(7, [3, 8, 12, 10], DType::F32, -2.0, 2.0)?.round()?, device)?;
            // Numbers that differ in f32 and are equal once they are rounded to 16 bits.
            compare(layer, &stream(8, [3, 8, 12, 10], DType::F32, 1.0, 1.002)?, device)?;
            let mut values = stream(9, [2, 8, 6, 6], DType::F32, -1.0, 1.0)?.to_vec::<f32>()?;
            (values[3], values[200]) = (f32::NAN, f32::INFINITY);
            compare(layer, &Tensor::from_vec(values, [2, 8, 6, 6])?, device)?;
        }
    }
    Ok(())
}

/// Far from zero the statistics keep their digits.
#[test]
fn far_from_zero() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let layer = Layer::new(DType::F32, PoolOptions::square(2));
        compare(layer, &stream(1, [4, 32, 16, 16], DType::F32, 9_999.0, 10_001.0)?, device)?;
    }
    Ok(())
}

#[test]
fn an_empty_batch() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let layer = Layer::new(DType::F32, PoolOptions::square(2));
        compare(layer, &Tensor::zeros([0, 16, 4, 4], DType::F32)?, device)?;
    }
    Ok(())
}

/// Images for which one op is faster on this device, whatever its vector instructions.
fn images(device: Device) -> Result<Tensor> {
    let shape = if device == Device::Cpu { [18, 32, 44, 48] } else { [2, 32, 8, 8] };
    stream(1, shape, DType::F32, -1.0, 1.0)?.to(device)
}

#[test]
fn only_windows_that_do_not_overlap_are_joined() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let x = images(device)?;
        let layer = |pool| Layer::new(DType::F32, pool);
        assert!(joined(layer(PoolOptions::square(2)), &x, device)?);
        assert!(joined(layer(window([2, 2], [3, 2])), &x, device)?);
        assert!(!joined(layer(window([3, 3], [2, 3])), &x, device)?);
        assert!(!joined(layer(PoolOptions { padding: [1, 0], ..PoolOptions::square(2) }), &x, device)?);
    }
    Ok(())
}

/// Runs a block whose steps somebody else reads too, and says what its plan is made of.
fn steps(device: Device, other: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<String>> {
    let x = images(device)?.requires_grad()?;
    let y = x.batch_norm_train(None, None, None, 1e-3)?.output;
    let positive = y.relu()?;
    let pooled = positive.max_pool2d(PoolOptions::square(2))?;
    let loss = other(&y, &positive, &pooled)?;
    drop((y, positive, pooled));
    loss.backward()?;
    x.grad().expect("a gradient").to_vec::<f32>()?;
    Ok(latest_steps())
}

#[test]
fn whoever_else_needs_the_images_gets_them() -> Result<()> {
    let _alone = alone();
    for device in devices() {
        let has = |steps: Vec<String>| has(&steps, FORWARD);
        assert!(has(steps(device, |_, _, pooled| pooled.sum())?));
        assert!(has(steps(device, |_, _, pooled| pooled.square()?.sum()?.add(&pooled.sum()?))?));
        assert!(!has(steps(device, |_, positive, pooled| positive.sum()?.add(&pooled.sum()?))?));
        assert!(!has(steps(device, |y, _, pooled| y.sum()?.add(&pooled.sum()?))?));

        // Without gradients, and with somebody who holds what is normalised.
        let x = images(device)?;
        let y = x.batch_norm_train(None, None, None, 1e-3)?.output;
        let pooled = y.relu()?.max_pool2d(PoolOptions::square(2))?;
        pooled.to_vec::<f32>()?;
        assert!(!has(latest_steps()));
        assert_eq!(y.to_vec::<f32>()?.len(), x.shape().numel());
        drop((y, pooled));
        let y = x.batch_norm_train(None, None, None, 1e-3)?.output.relu()?;
        y.max_pool2d(PoolOptions::square(2))?.flatten(1, -1)?.to_vec::<f32>()?;
        assert!(!has(latest_steps()));
        drop(y);
        let norm = x.batch_norm_train(None, None, None, 1e-3)?.output;
        let flat = norm.relu()?.max_pool2d(PoolOptions::square(2))?.flatten(1, -1)?;
        drop(norm);
        flat.to_vec::<f32>()?;
        assert!(has(latest_steps()), "{:?}", latest_steps());
    }
    Ok(())
}

/// All that can be seen of a convolution's block, with its images' gradient if it is asked for, and the steps of its plan.
fn behind([channels, filter]: [usize; 2], fuse: bool, images: bool, hold: bool) -> Result<(Seen, Vec<String>)> {
    set_fusion(fuse);
    let leaf = |seed, shape: &[usize]| stream(seed, shape, DType::F32, -1.0, 1.0)?.requires_grad();
    let mut x = stream(1, [64, channels, 24, 24], DType::F32, -1.0, 1.0)?;
    if images {
        x = x.requires_grad()?;
    }
    let named = [("dfilters", leaf(2, &[32, channels, filter, filter])?), ("dbias", leaf(3, &[32])?)];
    let norm = [("dscale", leaf(4, &[32])?), ("dshift", leaf(5, &[32])?)];
    let buffers = [Tensor::zeros([32], DType::F32)?, Tensor::ones([32], DType::F32)?, Tensor::scalar(4i64)];
    let buffers = buffers.iter().map(Buffer::new).collect::<Result<Vec<_>>>()?;
    let options = Conv2dOptions { padding: [filter / 2; 2], ..Default::default() };
    let y = x.conv2d(&named[0].1, Some(&named[1].1), options)?;
    // The sum's gradient is added to the one that passes between the two.
    let other = if hold { Some(y.sum()?) } else { None };
    let done = {
        let [mean, var, batches] = [buffers[0].get()?, buffers[1].get()?, buffers[2].get()?];
        let running = RunningStats { mean: &mean, var: &var, batches: &batches };
        y.batch_norm_train(Some((&norm[0].1, &norm[1].1)), Some(running), Some(0.1), 1e-3)?
    };
    drop(y);
    for (buffer, value) in buffers.iter().zip(done.stats.into_iter().flatten()) {
        buffer.cell().stage(value)?;
    }
    let pooled = done.output.relu()?.max_pool2d(PoolOptions::square(2))?;
    drop(done.output);
    let mut loss = pooled.mul(&stream(6, pooled.shape(), DType::F32, -1.0, 1.0)?)?.sum()?;
    drop(pooled);
    if let Some(other) = other {
        loss = loss.add(&other)?;
    }
    loss.backward()?;
    let mut seen = Seen::new();
    for (name, leaf) in named.iter().chain(&norm) {
        seen.push((name, leaf.grad().expect("a gradient").to_vec::<f64>()?));
    }
    let steps = latest_steps();
    for (name, buffer) in ["mean", "variance"].into_iter().zip(&buffers) {
        seen.push((name, buffer.get()?.to_vec::<f64>()?));
    }
    if let Some(dx) = x.grad() {
        seen.push(("dx", dx.to_vec::<f64>()?));
    }
    Ok((seen, steps))
}

/// On CPU cores, behind a convolution whose images need no gradient, the filters' gradient comes along: with the numbers of
/// the ops one by one, and only where nobody else needs what passes between them. Where windows are small, what is convolved
/// is not even stored.
#[test]
fn behind_the_first_convolution() -> Result<()> {
    const WINNERS: [&str; 2] = ["conv2d·statistics·max_pool2d", "conv2d·batch_norm·relu·max_pool2d_grad"];
    let _alone = alone();
    for (sizes, joined) in [([3, 3], &WINNERS[..]), ([3, 5], &[BOTH])] {
        let fused = as_one_by_one(sizes, false, joined)?;
        let statistics = |seen: &Seen| seen[4..6].to_vec();
        for (images, hold) in [(true, false), (false, true)] {
            let (seen, steps) = behind(sizes, true, images, hold)?;
            assert!(!joined.iter().any(|name| has(&steps, name)) && has(&steps, BACKWARD), "{steps:?}");
            // Statistics have the same bits, whatever else is asked for.
            assert_eq!(statistics(&seen), statistics(&fused));
        }
    }
    Ok(())
}

const BOTH: &str = "batch_norm·relu·max_pool2d_grad·conv2d_weight_grad";

/// Checks that a block whose plan has these steps gives what its ops give one by one, whatever the number of threads.
fn as_one_by_one(sizes: [usize; 2], images: bool, joined: &[&str]) -> Result<Seen> {
    let plain = behind(sizes, false, images, false);
    set_fusion(true);
    let (plain, fused) = (plain?, behind(sizes, true, images, false)?);
    assert!(joined.iter().all(|name| has(&fused.1, name)), "{:?}", fused.1);
    for ((name, want), (_, got)) in plain.0.iter().zip(&fused.0) {
        // Behind a normalisation a bias has the gradient 0.
        let least = if name.starts_with('d') { 100.0 } else { 1e-2 };
        let largest = want.iter().fold(least, |a: f64, b| a.max(b.abs()));
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= 1e-5 * largest, "{name}: {got} fused, {want} one by one");
        }
    }
    for threads in [1, 3] {
        set_num_threads(threads);
        assert_eq!(behind(sizes, true, images, false)?.0, fused.0, "{threads} threads");
    }
    Ok(fused.0)
}

/// Behind later convolutions the images' gradient is needed, too: what both are made of is made beside the filters', where
/// tasks have images of their own, and kept.
#[test]
fn behind_later_convolutions() -> Result<()> {
    let _alone = alone();
    as_one_by_one([16, 3], true, &[BOTH, "conv2d_input_grad"])?;
    Ok(())
}

/// In mixed precision the block stands between convolutions, whose images have 16 bits.
#[test]
fn mixed_precision() -> Result<()> {
    let _alone = alone();
    let Some(gpu) = common::gpu() else { return Ok(()) };
    set_autocast(Some(DType::BF16))?;
    let gradients = |fuse: bool| -> Result<(Vec<f32>, bool)> {
        set_fusion(fuse);
        let x = stream(1, [4, 3, 12, 12], DType::F32, -1.0, 1.0)?.to(gpu)?;
        let w = stream(2, [32, 3, 3, 3], DType::F32, -1.0, 1.0)?.to(gpu)?.requires_grad()?;
        let [scale, shift] =
            [(3, 0.5, 1.5), (4, -0.5, 0.5)].map(|(seed, low, high)| stream(seed, [32], DType::F32, low, high));
        let (scale, shift) = (scale?.to(gpu)?.requires_grad()?, shift?.to(gpu)?.requires_grad()?);
        let images = x.conv2d(&w, None, Default::default())?;
        let y = images.batch_norm_train(Some((&scale, &shift)), None, None, 1e-3)?.output.relu()?;
        drop(images);
        let last = stream(5, [8, 32, 3, 3], DType::F32, -0.2, 0.2)?.to(gpu)?.requires_grad()?;
        let loss = y.max_pool2d(PoolOptions::square(2))?.conv2d(&last, None, Default::default())?.square()?.sum()?;
        drop(y);
        loss.backward()?;
        let mut all = w.grad().expect("a gradient").to_vec::<f32>()?;
        let names = latest_steps();
        all.extend(scale.grad().expect("a gradient").to_vec::<f32>()?);
        Ok((all, has(&names, BACKWARD)))
    };
    let (plain, fused) = (gradients(false), gradients(true));
    set_autocast(None)?;
    set_fusion(true);
    let ((plain, without), (fused, with)) = (plain?, fused?);
    assert!(with && !without, "joined: {with} with fusion, {without} without");
    let largest = plain.iter().fold(0f32, |a, b| a.max(b.abs()));
    for (fused, plain) in fused.iter().zip(&plain) {
        assert!((fused - plain).abs() <= 1e-2 * largest, "{fused}, {plain}");
    }
    Ok(())
}

/// The course's network has three such blocks: all are joined, in f32 and in mixed precision, and it learns the same.
#[test]
fn the_course_network() -> Result<()> {
    let _alone = alone();
    let train = |device: Device, fuse: bool| -> Result<(Vec<f32>, [usize; 2])> {
        manual_seed(3);
        set_fusion(fuse);
        let net = course_cnn_with([3, 8, 8], 4)?;
        net.to(device)?;
        let x = stream(1, [6, 3, 8, 8], DType::F32, -1.0, 1.0)?.to(device)?;
        let y = Tensor::from_vec(vec![0i64, 1, 2, 3, 1, 2], [6])?.to(device)?;
        let mut optimizer = Sgd::new(net.parameters(), 0.05);
        let mut losses = Vec::new();
        for _ in 0..3 {
            let loss = net.forward(&x)?.cross_entropy(&y)?;
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item::<f32>()?);
        }
        let steps = latest_steps();
        Ok((losses, [FORWARD, BACKWARD].map(|name| steps.iter().filter(|step| *step == name).count())))
    };
    for device in devices() {
        for (mixed, near) in [(None, 1e-4), (Some(DType::BF16), 2e-2)] {
            set_autocast(mixed)?;
            let (plain, fused) = (train(device, false), train(device, true));
            set_autocast(None)?;
            set_fusion(true);
            let ((plain, without), (fused, with)) = (plain?, fused?);
            assert_eq!(without, [0, 0]);
            assert!(with == [3, 3] || device == Device::Cpu && with == [0, 0], "{device:?} {mixed:?}: {with:?}");
            for (plain, fused) in plain.iter().zip(&fused) {
                assert!((plain - fused).abs() <= near, "{device:?} {mixed:?}: {fused}, not {plain}");
            }
        }
    }
    Ok(())
}
