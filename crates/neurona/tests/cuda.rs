//! What is particular to GPUs: moving, capture and replay, mixed precision, determinism, memory. Every op's values and
//! gradients are checked on GPUs by the tests of the op, in `oracle.rs`, `gradients.rs` and `networks.rs`.
//!
//! Without a GPU every test here skips itself.

mod common;

use common::stream;
use neurona::models::{Lab, course_cnn};
use neurona::nn::{Forward, Linear, Module};
use neurona::optim::{Adam, Optimizer, Sgd};
use neurona::{DType, Device, Error, Result, Tensor, set_autocast};
use std::sync::{Mutex, MutexGuard};

/// Settings and counters are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Runs a test on the GPU, if there is one.
fn on_gpu(test: impl FnOnce(Device) -> Result<()>) -> Result<()> {
    let _alone = alone();
    common::gpu().map_or(Ok(()), test)
}

fn batch(k: u64, n: usize, device: Device) -> Result<(Tensor, Tensor)> {
    let x = stream(100 + k, [n, 3, 32, 32], DType::F32, -1.0, 1.0)?.to(device)?;
    let labels = Tensor::from_vec((0..n as i64).map(|i| (i * 7 + k as i64) % 10).collect(), [n])?;
    Ok((x, labels.to(device)?))
}

/// The losses of some steps from fixed weights.
fn train(net: &dyn Forward, device: Device, n: usize, steps: u64) -> Result<Vec<f32>> {
    for (i, (_, p)) in net.named_parameters().iter().enumerate() {
        let scale = 1.0 / (p.shape().numel() as f64 / p.shape()[0] as f64).max(1.0).sqrt();
        p.set(&stream(i as u64, p.shape(), DType::F32, -scale, scale)?)?;
    }
    net.to_device(device)?;
    let mut optimizer = Sgd::new(net.parameters(), 0.01).momentum(0.9);
    let mut losses = Vec::new();
    for step in 0..steps {
        // A fresh tensor every time: addresses differ from step to step.
        let (x, labels) = batch(step % 3, n, device)?;
        optimizer.zero_grad();
        let loss = net.forward(&x)?.cross_entropy(&labels)?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss);
    }
    losses.iter().map(|loss| loss.item::<f32>()).collect()
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn there_and_back() -> Result<()> {
    on_gpu(|gpu| {
        let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let y = x.to(gpu)?;
        assert_eq!((y.device(), y.to("cpu")?.device()), (gpu, Device::Cpu));
        assert_eq!(y.to_vec::<f32>()?, x.to_vec::<f32>()?);
        let error = y.add(&x).unwrap_err().to_string();
        assert!(error.contains("operands are on cuda:0 and on cpu; move one with `to`"), "{error}");
        // Plain numbers and what is made of them go anywhere.
        let z = ((&y * 2.0)? + &Tensor::ones([3], DType::F32)?)?;
        assert_eq!(z.to_vec::<f32>()?, [3.0, 5.0, 7.0, 9.0, 11.0, 13.0]);
        Ok(())
    })
}

#[test]
fn a_step_becomes_one_launch() -> Result<()> {
    on_gpu(|gpu| {
        let net = Lab::new()?;
        let before = neurona::stats();
        let losses = train(&net, gpu, 4, 8)?;
        let after = neurona::stats();
        // The first step is launched op by op; inputs and losses come at new addresses and get fixed places in the
        // next two at most.
        assert!(after.replayed - before.replayed >= 7, "{after:?}");
        assert!(after.captured - before.captured <= 3, "{after:?}");
        assert!(losses.iter().all(|l| l.is_finite()));
        Ok(())
    })
}

#[test]
fn curves_are_those_of_the_cpu() -> Result<()> {
    on_gpu(|gpu| {
        let (a, b) = (train(&Lab::new()?, Device::Cpu, 4, 12)?, train(&Lab::new()?, gpu, 4, 12)?);
        assert!(far(&a, &b) < 1e-4, "{a:?} {b:?}");
        Ok(())
    })
}

#[test]
fn same_bits_every_time() -> Result<()> {
    on_gpu(|gpu| {
        let (a, b) = (train(&course_cnn()?, gpu, 6, 4)?, train(&course_cnn()?, gpu, 6, 4)?);
        assert_eq!(
            a.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            b.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
        Ok(())
    })
}

#[test]
fn mixed_precision_stays_close() -> Result<()> {
    fn close<N: Forward>(gpu: Device, make: impl Fn() -> Result<N>) -> Result<()> {
        let wide = train(&make()?, gpu, 8, 4)?;
        for (dtype, allowed) in [(DType::BF16, 0.05), (DType::F16, 0.01)] {
            set_autocast(Some(dtype))?;
            let net = make()?;
            let mixed = train(&net, gpu, 8, 4);
            set_autocast(None)?;
            let mixed = mixed?;
            assert!(far(&wide, &mixed) < allowed && wide != mixed, "{dtype}: {wide:?} {mixed:?}");
            // Users see the types they asked for.
            assert!(net.named_parameters().iter().all(|(_, p)| p.get().unwrap().dtype() == DType::F32));
        }
        Ok(())
    }
    on_gpu(|gpu| close(gpu, course_cnn).and_then(|()| close(gpu, Lab::new)))
}

#[test]
fn a_label_that_is_no_class_is_an_error_when_something_is_read() -> Result<()> {
    on_gpu(|gpu| {
        let net = Linear::new(3, 4)?;
        net.to(gpu)?;
        let x = Tensor::ones([5, 3], DType::F32)?.to(gpu)?;
        let mut optimizer = Sgd::new(net.parameters(), 0.0);
        let mut step = |labels: [i64; 5]| -> Result<Tensor> {
            optimizer.zero_grad();
            let loss = net.forward(&x)?.cross_entropy(&Tensor::from(labels).to(gpu)?)?;
            loss.backward()?;
            optimizer.step()?;
            Ok(loss)
        };
        assert!(step([0, 1, 2, 3, -100])?.item::<f32>()?.is_finite());
        // Launched kernel by kernel, captured, replayed; some steps later, too.
        for label in [4, -1, i64::MAX, i64::MIN, 4, 4] {
            step([0, label, 2, 3, 1])?;
            let error = step([0, 1, 2, 3, 0])?.item::<f32>().unwrap_err().to_string();
            let told = ["of image 1 of a batch is not between 0 and 3", "cross_entropy", file!()];
            assert!(told.iter().all(|text| error.contains(text)), "{error}");
            assert!(error.contains(&label.to_string()) || error.contains("or beyond"), "{error}");
            // It is told once.
            assert!(step([0, 1, 2, 3, -100])?.item::<f32>().is_ok());
        }
        // The loss alone finds it as well.
        let loss = net.forward(&x)?.cross_entropy(&Tensor::from([0i64, 9, 2, 3, 1]).to(gpu)?)?;
        assert!(loss.item::<f32>().unwrap_err().to_string().contains("label 9 of image 1"));
        assert!(net.weight.get()?.to_vec::<f32>().is_ok());
        Ok(())
    })
}

#[test]
fn old_values_stay_true() -> Result<()> {
    on_gpu(|gpu| {
        let net = Linear::new(3, 2)?;
        net.to(gpu)?;
        let x = Tensor::ones([4, 3], DType::F32)?.to(gpu)?;
        let mut adam = Adam::new(net.parameters(), 0.1);
        for _ in 0..4 {
            let before = net.weight.get()?;
            let held = before.to_vec::<f32>()?;
            let y = net.forward(&x)?;
            adam.zero_grad();
            y.square()?.sum()?.backward()?;
            adam.step()?;
            assert_eq!(before.to_vec::<f32>()?, held);
            assert_ne!(net.weight.get()?.to_vec::<f32>()?, held);
            assert_eq!(y.shape().to_string(), "[4, 2]");
        }
        Ok(())
    })
}

#[test]
fn a_model_moves_in_the_middle_of_training() -> Result<()> {
    on_gpu(|gpu| {
        let run = |places: [Device; 3]| -> Result<Vec<f32>> {
            let net = Linear::new(3, 2)?;
            net.weight.set(&stream(1, [2, 3], DType::F32, -1.0, 1.0)?)?;
            net.bias.as_ref().expect("a bias").set(&Tensor::zeros([2], DType::F32)?)?;
            let mut adam = Adam::new(net.parameters(), 0.1);
            for device in places {
                net.to(device)?;
                let x = stream(2, [4, 3], DType::F32, -1.0, 1.0)?.to(device)?;
                adam.zero_grad();
                net.forward(&x)?.square()?.mean()?.backward()?;
                adam.step()?;
            }
            net.weight.get()?.to_vec::<f32>()
        };
        let (stays, moves) = (run([Device::Cpu; 3])?, run([Device::Cpu, gpu, Device::Cpu])?);
        assert!(far(&stays, &moves) < 1e-6, "{stays:?} {moves:?}");
        Ok(())
    })
}

#[test]
fn memory_stays_flat() -> Result<()> {
    on_gpu(|gpu| {
        let net = Lab::new()?;
        train(&net, gpu, 4, 6)?;
        let free = gpu.gpu()?.expect("a GPU").free;
        train(&net, gpu, 4, 30)?;
        let now = gpu.gpu()?.expect("a GPU").free;
        // Other processes may use the GPU too, but ours asks for nothing new.
        assert!(free.saturating_sub(now) < 4 << 20, "{} bytes more are in use", free - now);
        Ok(())
    })
}

#[test]
fn lack_of_memory_is_an_error_that_helps() -> Result<()> {
    on_gpu(|gpu| {
        let total = gpu.gpu()?.expect("a GPU").total;
        let side = 1 << 12;
        let x = Tensor::zeros([4, side], DType::F32)?.to(gpu)?;
        // Half as much again as the GPU has, in doubles.
        let rows = total / side / 16 * 3;
        let line = x.narrow(0, 0, 1)?.to_dtype(DType::F64)?;
        let error = line.broadcast_to([rows, side])?.exp()?.matmul(&x.to_dtype(DType::F64)?.t()?)?;
        let error = error.to_vec::<f32>().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{text}");
        assert!(text.contains("are free") && text.contains("the largest tensors"), "{text}");
        // And the next plan runs.
        assert_eq!(x.sum()?.item::<f32>()?, 0.0);
        Ok(())
    })
}
