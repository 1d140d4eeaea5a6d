//! Packed, folded and transformed parameters are kept from one inference to the next, and never outlive the values
//! they were made of.

use neurona::nn::{BatchNorm2d, Conv2d, Flatten, Forward, Linear, MaxPool2d, Module, ReLU, Sequential, StateDict};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Conv2dOptions, DType, Device, Result, Tensor, manual_seed, no_grad, stats};
use std::sync::{Mutex, MutexGuard};

/// What is kept is counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Every way that packs: a plain convolution, Winograd's, one filter a channel, batch norm folded into each of them,
/// and a matrix product.
fn network() -> Result<Sequential> {
    let net = Sequential::new()
        .add(Conv2d::new(3, 16, 5)?.padding(2))
        .add(BatchNorm2d::new(16)?)
        .add(ReLU::new())
        .add(Conv2d::new(16, 32, 3)?.padding(1).without_bias())
        .add(BatchNorm2d::new(32)?)
        .add(MaxPool2d::new(2))
        .add(Conv2d::new(32, 32, 3)?.padding(1).groups(32)?)
        .add(BatchNorm2d::new(32)?)
        .add(MaxPool2d::new(2))
        .add(Flatten::new())
        .add(Linear::new(32 * 6 * 6, 40)?);
    net.eval();
    Ok(net)
}

fn images(n: usize) -> Result<Tensor> {
    Tensor::randn([n, 3, 24, 24])
}

fn infer(net: &impl Forward, x: &Tensor) -> Result<Vec<u32>> {
    let y: Vec<f32> = no_grad(|| net.forward(x))?.to_vec()?;
    Ok(y.into_iter().map(f32::to_bits).collect())
}

/// Inferences in a row give the bits of a network that has never run, with the same parameters.
fn check(net: &Sequential, x: &Tensor, what: &str) -> Result<()> {
    let fresh = network()?;
    fresh.load_state_dict(&net.state_dict()?, true)?;
    let expected = infer(&fresh, x)?;
    for run in 0..3 {
        assert!(infer(net, x)? == expected, "{what}, inference {run}");
    }
    assert!(stats().prepared > 0, "{what}: nothing was kept");
    Ok(())
}

#[test]
fn what_follows_from_the_batch_is_computed_every_time() -> Result<()> {
    let _alone = alone();
    manual_seed(8);
    // Filters of every size: those that caches hold, and those that they do not.
    for (channels, size) in [(16, 24), (64, 16), (320, 8)] {
        let layer = Conv2d::new(channels, channels, 3)?.padding(1);
        let (mut seen, mut expected) = (Vec::new(), Vec::new());
        for round in 0..4 {
            let x = Tensor::randn([16, channels, size, size])?;
            let again = Conv2d::new(channels, channels, 3)?.padding(1);
            again.load_state_dict(&layer.state_dict()?, true)?;
            expected.push(infer(&again, &x)?);
            seen.push(infer(&layer, &x)?);
            assert!(seen[round] == expected[round], "{channels} channels, batch {round}");
        }
        assert!(seen[2] != seen[3], "the batches differ");
    }
    Ok(())
}

fn step(net: &Sequential, optimizer: &mut Sgd, x: &Tensor) -> Result<()> {
    optimizer.zero_grad();
    let classes = Tensor::zeros([x.shape()[0]], DType::I64)?;
    net.forward(x)?.cross_entropy(&classes)?.backward()?;
    optimizer.step()
}

#[test]
fn every_kind_of_change_shows() -> Result<()> {
    let _alone = alone();
    manual_seed(1);
    let (net, x) = (network()?, images(33)?);
    check(&net, &x, "at first")?;

    for (name, parameter) in net.named_parameters() {
        parameter.set(&parameter.get()?.mul_scalar(0.5)?.add_scalar(0.1)?)?;
        check(&net, &x, &format!("{name} set"))?;
    }
    for (name, buffer) in net.named_buffers().into_iter().filter(|(name, _)| name.contains("running")) {
        buffer.set(&buffer.get()?.mul_scalar(0.5)?.add_scalar(0.3)?)?;
        check(&net, &x, &format!("{name} set"))?;
    }

    let path = std::env::temp_dir().join(format!("neurona-prepared-{}.safetensors", std::process::id()));
    network()?.save(&path)?;
    net.load(&path)?;
    std::fs::remove_file(&path).ok();
    check(&net, &x, "loaded from a file")?;

    let other = network()?;
    net.load_state_dict(&other.state_dict()?, true)?;
    check(&net, &x, "copied from another")?;
    check(&other, &x, "the other")?;

    let mut optimizer = Sgd::new(net.parameters(), 0.05).momentum(0.9);
    for round in 0..3 {
        step(&net, &mut optimizer, &x)?;
        check(&net, &x, &format!("optimizer step {round} in evaluation"))?;
    }
    net.train();
    for round in 0..3 {
        step(&net, &mut optimizer, &x)?;
        net.eval();
        check(&net, &x, &format!("training step {round}"))?;
        net.train();
    }
    // Only batch norm's statistics change.
    no_grad(|| net.forward(&x))?.to_vec::<f32>()?;
    net.eval();
    check(&net, &x, "statistics alone")?;

    net.to_device(Device::Cpu)?;
    net.parameters().iter().for_each(|p| p.set_requires_grad(false));
    check(&net, &x, "frozen")
}

#[test]
fn models_that_come_and_go_are_not_mistaken_for_each_other() -> Result<()> {
    let _alone = alone();
    manual_seed(2);
    let x = images(9)?;
    for round in 0..12 {
        check(&network()?, &x, &format!("model {round}"))?;
        assert_eq!(stats().prepared, 0, "what a model left behind");
    }
    Ok(())
}

#[test]
fn an_older_value_that_somebody_holds_stays_true() -> Result<()> {
    let _alone = alone();
    manual_seed(3);
    let layer = Conv2d::new(16, 32, 3)?.padding(1).without_bias();
    let x = Tensor::randn([5, 16, 24, 24])?;
    let options = Conv2dOptions { padding: [1, 1], ..Default::default() };
    let by = |weight: &Tensor| no_grad(|| x.conv2d(weight, None, options))?.to_vec::<f32>();
    let mut optimizer = Sgd::new(layer.parameters(), 0.1);
    let (mut versions, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        versions.push(layer.weight.get()?);
        expected.push(by(&layer.weight.get()?)?);
        layer.forward(&x)?.square()?.mean()?.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
    }
    for _ in 0..3 {
        for (version, expected) in versions.iter().zip(&expected) {
            // Twice each, so that what one left would be found by the next.
            assert!(by(version)? == *expected && by(version)? == *expected);
        }
    }
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "the steps changed it");
    Ok(())
}

#[test]
fn memory_is_shared_between_batch_sizes_and_goes_with_the_values() -> Result<()> {
    let _alone = alone();
    manual_seed(4);
    assert_eq!(stats().prepared, 0);
    let net = network()?;
    let (x, fewer) = (images(33)?, images(32)?);
    infer(&net, &x)?;
    assert_eq!(stats().prepared, 0, "parameters that were seen once may change before the next run");
    infer(&net, &x)?;
    let kept = stats().prepared;
    assert!(kept > 0);
    (0..3).try_for_each(|_| infer(&net, &x).map(drop))?;
    (0..3).try_for_each(|_| infer(&net, &fewer).map(drop))?;
    assert_eq!(stats().prepared, kept, "another batch takes what is there");

    let mut optimizer = Sgd::new(net.parameters(), 0.05);
    net.train();
    step(&net, &mut optimizer, &x)?;
    assert_eq!(stats().prepared, 0, "a step of training leaves nothing stale");
    // The loss is read before `backward`: forward runs by itself, with other parameters every time.
    for _ in 0..4 {
        let loss = net.forward(&x)?.square()?.mean()?;
        loss.item::<f32>()?;
        loss.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
        assert_eq!(stats().prepared, 0, "training keeps nothing");
    }
    net.eval();
    (0..3).try_for_each(|_| infer(&net, &x).map(drop))?;
    assert_eq!(stats().prepared, kept);
    drop((net, optimizer));
    assert_eq!(stats().prepared, 0, "gone with the model");
    Ok(())
}

#[test]
fn frozen_layers_are_prepared_once_while_others_train() -> Result<()> {
    let _alone = alone();
    manual_seed(5);
    let run = |keep: bool| -> Result<(StateDict, usize)> {
        manual_seed(6);
        let net = network()?;
        let x = images(7)?;
        let parameters = net.named_parameters();
        parameters[..parameters.len() - 2].iter().for_each(|(_, p)| p.set_requires_grad(false));
        let mut optimizer = Sgd::new(net.parameters(), 0.05);
        for _ in 0..5 {
            step(&net, &mut optimizer, &x)?;
            if !keep {
                parameters.iter().try_for_each(|(_, p)| p.set(&p.get()?.mul_scalar(1.0)?))?;
            }
        }
        Ok((net.state_dict()?, stats().prepared))
    };
    let ((kept, some), (anew, none)) = (run(true)?, run(false)?);
    assert!(some > 0 && none == 0, "{some} {none}");
    for (name, value) in kept.iter() {
        assert!(value.to_vec::<f64>()? == anew.get(name).expect("the same names").to_vec::<f64>()?, "{name}");
    }
    Ok(())
}

#[test]
fn narrow_parameters_are_widened_and_packed_once() -> Result<()> {
    let _alone = alone();
    manual_seed(7);
    for dtype in [DType::F16, DType::BF16] {
        let layer = Linear::new(96, 64)?;
        let narrow = |t: &Tensor| t.to_dtype(dtype);
        let weight = neurona::nn::Parameter::new(&narrow(&layer.weight.get()?)?)?;
        let x = narrow(&Tensor::randn([200, 96])?)?;
        let run = || no_grad(|| x.matmul(&weight.get()?.t()?))?.to_vec::<f32>();
        let expected = run()?;
        for _ in 0..3 {
            assert!(run()? == expected);
        }
        assert_eq!(stats().prepared, 64 * 96 * 4, "packed, and no widened copy beside it");
        weight.set(&weight.get()?.neg()?)?;
        let expected: Vec<f32> = expected.iter().map(|x| -x).collect();
        for _ in 0..3 {
            assert!(run()? == expected, "the new value");
        }
    }
    Ok(())
}
