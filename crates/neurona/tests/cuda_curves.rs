//! The seeds' networks on real CIFAR-10, from the same weights on CPU cores and on a GPU: the same loss, to a
//! thousandth, in each of a hundred steps. `NEURONA_CIFAR10` names the folder that has the data; without it, or without
//! a GPU, the tests skip themselves.

mod common;

use neurona::data::sets::Cifar10;
use neurona::data::transforms::{Compose, Normalize, ToTensor};
use neurona::data::{Batch, Batches, DataLoader};
use neurona::models::{Lab, course_cnn};
use neurona::nn::{Flatten, Forward, Linear, ReLU, Sequential};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Device, Result, manual_seed};
use std::sync::Mutex;

const STEPS: usize = 100;

/// The losses of a hundred steps of SGD.
fn losses(net: &dyn Forward, batches: &[Batch], rate: f64, device: Device) -> Result<Vec<f64>> {
    net.to_device(device)?;
    let mut optimizer = Sgd::new(net.parameters(), rate).momentum(0.9);
    let mut losses = Vec::new();
    for batch in batches {
        optimizer.zero_grad();
        let loss = net.forward(&batch.images.to(device)?)?.cross_entropy(&batch.labels.to(device)?)?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item::<f64>()?);
    }
    Ok(losses)
}

fn agree(name: &str, make: impl Fn() -> Result<Box<dyn Forward>>, batch: usize, rate: f64) -> Result<()> {
    // Random numbers are the process's.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let Some(folder) = std::env::var_os("NEURONA_CIFAR10") else {
        eprintln!("skipped: NEURONA_CIFAR10 does not name a folder with CIFAR-10");
        return Ok(());
    };
    let transform = Compose::new().add(ToTensor).add(Normalize::new(&Cifar10::MEAN, &Cifar10::STD)?);
    let loader = DataLoader::new(Cifar10::train(folder)?, batch)?.transform(transform).shuffle(true).seed(1);
    let batches: Vec<Batch> = loader.epoch(0, 0)?.take(STEPS).collect::<Result<_>>()?;
    assert_eq!(batches.len(), STEPS);
    let curve = |device: Device| {
        manual_seed(0);
        losses(&*make()?, &batches, rate, device)
    };
    let (cpu, cuda) = (curve(Device::Cpu)?, curve(gpu)?);
    let worst = cpu.iter().zip(&cuda).map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max);
    let (first, last) = (cpu[0], cpu[STEPS - 1]);
    eprintln!("{name}, batch {batch}: loss {first:.4} to {last:.4}, at most {worst:.1e} apart in {STEPS} steps");
    assert!(worst <= 1e-3, "{name}: {cpu:?}\n{cuda:?}");
    assert!(cpu[STEPS - 10..].iter().sum::<f64>() < cpu[..10].iter().sum::<f64>(), "{name} learns nothing: {cpu:?}");
    Ok(())
}

#[test]
fn lab() -> Result<()> {
    agree("lab", || Ok(Box::new(Lab::new()?)), 4, 0.001)?;
    agree("lab", || Ok(Box::new(Lab::new()?)), 128, 0.001)
}

#[test]
fn the_course_network() -> Result<()> {
    // With batch-norm, rounding grows from step to step: at batch 64 and a rate of 0.001, images changed by half of their
    // last bit end up 3e-3 away on the CPU itself. Here that is 1e-4.
    agree("course CNN", || Ok(Box::new(course_cnn()?)), 128, 0.0002)
}

#[test]
fn fully_connected() -> Result<()> {
    let net = || -> Result<Box<dyn Forward>> {
        let net = Sequential::new().add(Flatten::new()).add(Linear::new(3072, 500)?).add(ReLU::new());
        Ok(Box::new(net.add(Linear::new(500, 256)?).add(ReLU::new()).add(Linear::new(256, 10)?)))
    };
    agree("500-256-10", net, 32, 0.001)
}
