//! A network with its data and its optimizer, ready to be trained step by step.

use super::work::Network;
use neurona::nn::Forward;
use neurona::optim::{Optimizer, Sgd};
use neurona::{Device, Result, Tensor, no_grad};
use std::time::{Duration, Instant};

/// Calls before anything is timed.
pub const WARM_UP: u32 = 8;

/// A network on a device, with one batch there.
pub struct Training {
    net: Box<dyn Forward>,
    x: Tensor,
    y: Tensor,
    optimizer: Sgd,
    device: Device,
}

impl Training {
    /// The network with random images and classes.
    pub fn new(network: Network, batch: usize, device: Device) -> Result<Self> {
        neurona::manual_seed(0);
        let net = network.build()?;
        let x = Tensor::randn(network.input(batch))?.to(device)?;
        let labels: Vec<i64> = neurona::tensor::random::uniform(batch).iter().map(|u| (u * 10.0) as i64).collect();
        let y = Tensor::from_vec(labels, [batch])?.to(device)?;
        net.to_device(device)?;
        let optimizer = Sgd::new(net.parameters(), 1e-3).momentum(0.9);
        Ok(Training { net, x, y, optimizer, device })
    }

    /// One step; gives the loss, which nobody has waited for.
    pub fn step(&mut self) -> Result<Tensor> {
        self.optimizer.zero_grad();
        let loss = self.net.forward(&self.x)?.cross_entropy(&self.y)?;
        loss.backward()?;
        self.optimizer.step()?;
        Ok(loss)
    }

    /// From now on it only infers.
    pub fn eval(&self) {
        self.net.eval();
    }

    /// The outputs for the batch.
    pub fn infer(&self) -> Result<Vec<f32>> {
        no_grad(|| self.net.forward(&self.x))?.to_vec()
    }

    /// Seconds of a step by steps in a row with one wait at the end, as the peers' script for GPUs has it.
    pub fn in_a_row(&mut self, steps: u32) -> Result<f64> {
        for _ in 0..WARM_UP {
            self.step()?;
        }
        self.device.synchronize()?;
        let start = Instant::now();
        for _ in 0..steps {
            self.step()?;
        }
        self.device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(steps))
    }
}

/// Seconds of one call: the best mean of five windows, after some calls to warm up. The peers' scripts do the same.
pub fn best_mean(seconds: f64, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
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

/// Rounded, for people.
pub fn tenths(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}
