//! Whole runs on a GPU: the trainer and Keras's way find the device by themselves, follow the CPU's curve, and go on
//! from checkpoints with the same bits. Without a GPU every test here skips itself.

mod common;

use neurona::data::{Batch, Batches, TensorBatches};
use neurona::loss::CrossEntropyLoss;
use neurona::metrics::TopK;
use neurona::nn::{BatchNorm1d, Forward, Linear, Module, ReLU, Sequential};
use neurona::optim::{Adam, Sgd};
use neurona::train::{BatchEnd, Callback, Checkpoint, Checkpoints, Compile, Context, Fit, StopFlag, Trainer, evaluate};
use neurona::{DType, Device, Result, Tensor, manual_seed};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Random numbers and settings belong to the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

fn on_gpu(test: impl FnOnce(Device) -> Result<()>) -> Result<()> {
    let _alone = alone();
    common::gpu().map_or(Ok(()), test)
}

fn network() -> Result<Sequential> {
    Ok(Sequential::new().add(Linear::new(6, 16)?).add(BatchNorm1d::new(16)?).add(ReLU::new()).add(Linear::new(16, 3)?))
}

fn points(n: usize) -> Result<(Tensor, Tensor)> {
    let x = Tensor::randn([n, 6])?;
    let sums = x.sum_dims(&[1], false)?.to_vec::<f32>()?;
    let y = sums.iter().map(|s| 1 + (s.abs() > 1.0) as i64 * s.signum() as i64).collect();
    Ok((x, Tensor::from_vec(y, [n])?))
}

/// Raises a flag after so many batches.
struct After(usize, StopFlag);

impl Callback for After {
    fn on_batch_end(&mut self, _at: &mut Context<'_>, batch: &BatchEnd) -> Result<()> {
        assert!(batch.loss()?.is_finite() && batch.epoch_loss()? > 0.0);
        assert!(batch.epoch_accuracy()?.is_some_and(|a| (0.0..=1.0).contains(&a)));
        self.0 = self.0.wrapping_sub(1);
        if self.0 == 0 {
            self.1.raise();
        }
        Ok(())
    }
}

/// Trains on a device, from a folder's last checkpoint when there is one, and is stopped after so many batches.
fn train(device: Device, folder: Option<&Path>, stop_after: usize) -> Result<(Sequential, Fit)> {
    manual_seed(5);
    let (x, y) = points(96)?;
    let (vx, vy) = points(40)?;
    let batches = TensorBatches::new(&x, &y)?.batch_size(16).shuffle(1);
    let validation = TensorBatches::new(&vx, &vy)?.batch_size(16);
    let net = network()?;
    let flag = StopFlag::new();
    let mut trainer = Trainer::new(&net, Adam::new(net.parameters(), 0.02))
        .device(device)
        .epochs(3)
        .accumulate(2)
        .clip_norm(1.0)
        .ema(0.9)
        .validation(&validation)
        .metric(TopK::new(2))
        .callback(After(stop_after, flag.clone()))
        .stop_flag(&flag);
    if let Some(folder) = folder {
        let checkpoints = Checkpoints::new(folder).best("val_loss");
        let last = checkpoints.last();
        trainer = trainer.checkpoints(checkpoints);
        if last.exists() {
            trainer = trainer.resume(last)?;
        }
    }
    let fit = trainer.run(&batches)?;
    Ok((net, fit))
}

fn bits(net: &impl Module) -> Result<Vec<u32>> {
    let values = net.parameters().iter().map(|p| p.get()?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
    Ok(values.concat().iter().map(|v| v.to_bits()).collect())
}

#[test]
fn a_run_follows_the_cpus_curve() -> Result<()> {
    on_gpu(|gpu| {
        let (cpu, there) = (train(Device::Cpu, None, 0)?, train(gpu, None, 0)?);
        assert_eq!(there.0.parameters()[0].get()?.device(), gpu);
        for (a, b) in cpu.1.history.rows.iter().zip(&there.1.history.rows) {
            assert!((a.train_loss - b.train_loss).abs() < 1e-3, "{a:?} {b:?}");
            assert!((a.val_loss.unwrap() - b.val_loss.unwrap()).abs() < 1e-3, "{a:?} {b:?}");
            assert!((a.val_accuracy.unwrap() - b.val_accuracy.unwrap()).abs() < 0.06, "{a:?} {b:?}");
        }
        Ok(())
    })
}

#[test]
fn interrupted_it_goes_on_with_the_same_bits_and_its_checkpoint_opens_anywhere() -> Result<()> {
    on_gpu(|gpu| {
        let folder = std::env::temp_dir().join(format!("neurona-cuda-resume-{}", std::process::id()));
        let whole = train(gpu, None, 0)?;
        for stop_after in [2, 7] {
            let _ = std::fs::remove_dir_all(&folder);
            train(gpu, Some(&folder), stop_after)?;
            let parts = train(gpu, Some(&folder), 0)?;
            assert_eq!(bits(&whole.0)?, bits(&parts.0)?, "stopped after {stop_after}");
            let losses = |fit: &Fit| fit.history.rows.iter().map(|row| row.train_loss).collect::<Vec<_>>();
            assert_eq!(losses(&whole.1), losses(&parts.1), "stopped after {stop_after}");
        }
        let checkpoint = Checkpoint::open(folder.join("last.safetensors"))?;
        let net = network()?;
        net.load_state_dict(&checkpoint.weights(), true)?;
        assert_eq!(bits(&net)?, bits(&parts_of(&whole.0)?)?);
        std::fs::remove_dir_all(folder).ok();
        Ok(())
    })
}

/// The same weights on the CPU.
fn parts_of(net: &Sequential) -> Result<Sequential> {
    let copy = network()?;
    copy.load_state_dict(&net.state_dict()?, true)?;
    Ok(copy)
}

#[test]
fn keras_and_evaluation_go_where_the_network_is() -> Result<()> {
    on_gpu(|gpu| {
        manual_seed(2);
        let (x, y) = points(128)?;
        let net = network()?;
        net.to(gpu)?;
        let mut model = net.compile(|parameters| Sgd::new(parameters, 0.1).momentum(0.9), CrossEntropyLoss::new());
        let fit = model.fit((&x, &y)).epochs(8).run()?;
        assert_eq!(fit.history.rows.len(), 8);
        let accuracy = model.evaluate((&x, &y))?.accuracy.unwrap();
        assert!(accuracy > 0.7, "{accuracy}");
        assert_eq!(model.predict(&x)?.shape().to_string(), "[128, 3]");
        let batches = TensorBatches::new(&x, &y)?;
        assert!((evaluate(model.net(), &batches)?.accuracy() - accuracy).abs() < 1e-9);
        // Data that lies there already does as well.
        let (x, y) = (x.to(gpu)?, y.to(gpu)?);
        assert!((model.evaluate((&x, &y))?.accuracy.unwrap() - accuracy).abs() < 1e-9);
        model.fit((&x, &y)).epochs(1).run()?;
        Ok(())
    })
}

/// Bytes as a loader without `ToTensor` would give them.
struct Bytes(Tensor, Tensor);

impl Batches for Bytes {
    fn images(&self) -> usize {
        self.0.shape()[0]
    }
    fn batches(&self) -> usize {
        1
    }
    fn epoch(&self, _epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>> {
        let indices = (0..self.images()).collect();
        let batch = Batch { images: self.0.clone(), labels: self.1.clone(), indices, number: 0 };
        Ok(Box::new(std::iter::once(Ok(batch)).skip(first)))
    }
}

#[derive(Module)]
struct Scaled {
    layer: Linear,
}

impl Forward for Scaled {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(&x.to_dtype(DType::F32)?.mul_scalar(1.0 / 255.0)?)
    }
}

#[test]
fn images_of_bytes_travel_as_bytes() -> Result<()> {
    on_gpu(|gpu| {
        let bytes: Vec<u8> = (0..=255).step_by(4).collect();
        let batches =
            Bytes(Tensor::from_vec(bytes, [16, 4])?, Tensor::from_vec((0..16i64).map(|i| i % 2).collect(), [16])?);
        let run = |device| -> Result<f64> {
            manual_seed(9);
            let net = Scaled { layer: Linear::new(4, 2)? };
            let fit = Trainer::new(&net, Sgd::new(net.parameters(), 0.1)).device(device).epochs(5).run(&batches)?;
            Ok(fit.history.last().unwrap().train_loss)
        };
        assert!((run(gpu)? - run(Device::Cpu)?).abs() < 1e-4);
        Ok(())
    })
}
