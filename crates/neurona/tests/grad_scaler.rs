//! Losses scaled up: steps left out and scales changed as `torch.amp.GradScaler` does, and runs that go on with both.

use neurona::data::TensorBatches;
use neurona::nn::{Linear, Module, Parameter, ReLU, Sequential};
use neurona::optim::{Adam, GradScaler, Optimizer, Sgd, clip_grad_norm};
use neurona::train::{Checkpoints, Fit, Trainer};
use neurona::{DType, Result, Tensor, manual_seed};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Random numbers belong to the process: one test at a time draws them.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

/// One step whose gradient is this number.
fn step(scaler: &mut GradScaler, optimizer: &mut dyn Optimizer, w: &Parameter, gradient: f64) -> Result<bool> {
    optimizer.zero_grad();
    scaler.scale(&w.get()?.mul_scalar(gradient)?.sum()?)?.backward()?;
    let stepped = scaler.step(optimizer)?;
    scaler.update()?;
    Ok(stepped)
}

#[test]
fn bad_steps_are_left_out_and_the_scale_follows() -> Result<()> {
    let w = Parameter::new(&Tensor::from([0.0f32, 0.0]))?;
    let mut adam = Adam::new(vec![w.clone()], 0.125);
    let mut scaler = GradScaler::new().init_scale(8.0).growth_interval(2);
    let mut scales = Vec::new();
    for gradient in [1.0, f64::NAN, 1.0, 1.0, 1.0, f64::INFINITY, 1.0] {
        assert_eq!(step(&mut scaler, &mut adam, &w, gradient)?, gradient.is_finite());
        scales.push(scaler.factor());
    }
    assert_eq!(scales, [8.0, 4.0, 4.0, 8.0, 8.0, 4.0, 4.0]);
    // Steps that were left out do not count in Adam's own corrections either.
    let plain = Parameter::new(&Tensor::from([0.0f32, 0.0]))?;
    let mut without = Adam::new(vec![plain.clone()], 0.125);
    for _ in 0..5 {
        without.zero_grad();
        plain.get()?.sum()?.backward()?;
        without.step()?;
    }
    assert_eq!(w.get()?.to_vec::<f32>()?, plain.get()?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn the_scale_stays_finite_in_f32() -> Result<()> {
    let w = Parameter::new(&Tensor::from([0.0f32]))?;
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    let mut scaler = GradScaler::new().init_scale(2f64.powi(127)).growth_interval(1);
    assert!(step(&mut scaler, &mut sgd, &w, 0.5)?);
    assert_eq!(scaler.factor(), 2f64.powi(127));
    Ok(())
}

#[test]
fn gradients_are_clipped_between_unscaling_and_the_step() -> Result<()> {
    let w = Parameter::new(&Tensor::from([0.0f32, 0.0]))?;
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    let mut scaler = GradScaler::new();
    scaler.scale(&(&w.get()? * &Tensor::from([3.0f32, 4.0]))?.sum()?)?.backward()?;
    scaler.unscale(&mut sgd)?;
    assert!(scaler.unscale(&mut sgd).is_err(), "twice would divide twice");
    let norm = clip_grad_norm(sgd.parameters(), 1.0)?;
    assert!(scaler.step(&mut sgd)?);
    assert!(scaler.step(&mut sgd).is_err(), "without an update in between");
    scaler.update()?;
    assert!(scaler.update().is_err(), "there was no step");
    assert_eq!(norm.item::<f32>()?, 5.0);
    assert!((w.get()?.to_vec::<f32>()?[1] + 0.8).abs() < 1e-5);
    Ok(())
}

#[test]
fn its_state_goes_out_and_in() -> Result<()> {
    let w = Parameter::new(&Tensor::from([0.0f32]))?;
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    let mut scaler = GradScaler::new().growth_interval(3);
    step(&mut scaler, &mut sgd, &w, f64::NAN)?;
    step(&mut scaler, &mut sgd, &w, 1.0)?;
    let state = scaler.state_dict();
    let names: Vec<&str> = state.names().collect();
    assert_eq!(names, ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"]);
    let mut other = GradScaler::new();
    other.load_state_dict(&state)?;
    for scaler in [&mut scaler, &mut other] {
        step(scaler, &mut sgd, &w, 1.0)?;
        step(scaler, &mut sgd, &w, 1.0)?;
        assert_eq!(scaler.factor(), 65536.0);
    }
    assert!(other.load_state_dict(&neurona::io::StateDict::new()).is_err());
    Ok(())
}

fn train(scaler: Option<GradScaler>, epochs: usize, folder: Option<&Path>) -> Result<(Sequential, Fit)> {
    manual_seed(3);
    let x = Tensor::randn([96, 4])?;
    let y = x.sum_dims(&[1], false)?.gt_scalar(0.0)?.to_dtype(DType::I64)?;
    let batches = TensorBatches::new(&x, &y)?.batch_size(16).shuffle(1);
    let net = Sequential::new().add(Linear::new(4, 8)?).add(ReLU::new()).add(Linear::new(8, 2)?);
    let mut trainer = Trainer::new(&net, Sgd::new(net.parameters(), 0.1).momentum(0.9)).clip_norm(1.0).epochs(epochs);
    if let Some(scaler) = scaler {
        trainer = trainer.grad_scaler(scaler);
    }
    if let Some(folder) = folder {
        let checkpoints = Checkpoints::new(folder);
        let last = checkpoints.last();
        trainer = trainer.checkpoints(checkpoints);
        if last.exists() {
            trainer = trainer.resume(last)?;
        }
    }
    let fit = trainer.run(&batches)?;
    Ok((net, fit))
}

fn bits(net: &Sequential) -> Result<Vec<u32>> {
    let values = net.parameters().iter().map(|p| p.get()?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
    Ok(values.concat().iter().map(|v| v.to_bits()).collect())
}

#[test]
fn a_run_with_powers_of_two_has_the_bits_of_one_without() -> Result<()> {
    let _alone = alone();
    let (plain, scaled) = (train(None, 3, None)?, train(Some(GradScaler::new()), 3, None)?);
    assert_eq!(bits(&plain.0)?, bits(&scaled.0)?);
    let losses = |fit: &Fit| fit.history.rows.iter().map(|row| row.train_loss).collect::<Vec<_>>();
    assert_eq!(losses(&plain.1), losses(&scaled.1));
    Ok(())
}

#[test]
fn a_run_goes_on_with_its_scale() -> Result<()> {
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("neurona-scaler-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    // Grows in the third epoch of six batches each: only a run that remembers the first two gets there in time.
    let scaler = || Some(GradScaler::new().growth_factor(3.0).growth_interval(14));
    let whole = train(scaler(), 3, None)?;
    train(scaler(), 2, Some(&folder))?;
    let parts = train(scaler(), 3, Some(&folder))?;
    assert_eq!(bits(&whole.0)?, bits(&parts.0)?);
    let never = train(Some(GradScaler::new()), 3, None)?;
    assert_ne!(bits(&whole.0)?, bits(&never.0)?, "a scale that is no power of two rounds");
    std::fs::remove_dir_all(folder).ok();
    Ok(())
}
