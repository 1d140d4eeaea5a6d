//! Seed 002: a simple convolutional network for vision, written as a module with its own `forward`: convolution,
//! batch normalisation, ReLU, max-pooling, and a fully connected layer. The shape and the type of every tensor are
//! printed on the way, and SGD, Adam and RMSprop train it side by side.
//!
//!     cargo run --release -p neurona --example course_cnn

use neurona::data::embedded;
use neurona::nn::{BatchNorm2d, Conv2d, Forward, Linear, MaxPool2d, Module};
use neurona::optim::{Adam, Optimizer, RmsProp, Sgd};
use neurona::tensor::random;
use neurona::{Result, Tensor, manual_seed};

#[derive(Module)]
struct CourseCnn {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    pool: MaxPool2d,
    fc: Linear,
}

impl CourseCnn {
    fn new() -> Result<Self> {
        Ok(CourseCnn {
            conv1: Conv2d::new(1, 8, 3)?.padding(1),
            bn1: BatchNorm2d::new(8)?,
            conv2: Conv2d::new(8, 16, 3)?.padding(1),
            bn2: BatchNorm2d::new(16)?,
            pool: MaxPool2d::new(2),
            fc: Linear::new(16 * 7 * 7, 10)?,
        })
    }

    /// What `forward` computes, step by step, with a name for each.
    fn steps(&self, x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let mut steps = vec![("input", x.clone())];
        for (names, conv, bn) in [
            (["conv1", "bn1", "relu", "pool"], &self.conv1, &self.bn1),
            (["conv2", "bn2", "relu", "pool"], &self.conv2, &self.bn2),
        ] {
            let x = &steps[steps.len() - 1].1;
            let a = conv.forward(x)?;
            let b = bn.forward(&a)?;
            let c = b.relu()?;
            let d = self.pool.forward(&c)?;
            steps.extend(names.into_iter().zip([a, b, c, d]));
        }
        let flat = steps[steps.len() - 1].1.flatten(1, -1)?;
        let y = self.fc.forward(&flat)?;
        steps.extend([("flatten", flat), ("fc", y)]);
        Ok(steps)
    }
}

impl Forward for CourseCnn {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut steps = self.steps(x)?;
        Ok(steps.swap_remove(steps.len() - 1).1)
    }
}

/// The shape and type of every tensor on the way through the network, as text.
pub fn shapes() -> Result<Vec<String>> {
    let steps = CourseCnn::new()?.steps(&Tensor::zeros([4, 1, 28, 28], neurona::DType::F32)?)?;
    Ok(steps.iter().map(|(name, x)| format!("{name:8} {:16} {}", x.shape().to_string(), x.dtype())).collect())
}

/// Trains three networks that start alike, each with its own optimizer, and gives the loss of every step for each.
pub fn train(steps: usize) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let images = embedded::fashion_mnist()?.train;
    let mut results = Vec::new();
    for name in ["SGD", "Adam", "RMSprop"] {
        manual_seed(2);
        let net = CourseCnn::new()?;
        let mut optimizer: Box<dyn Optimizer> = match name {
            "SGD" => Box::new(Sgd::new(net.parameters(), 0.05).momentum(0.9)),
            "Adam" => Box::new(Adam::new(net.parameters(), 0.005)),
            _ => Box::new(RmsProp::new(net.parameters(), 0.001)),
        };
        let order = random::permutation(images.len());
        let mut losses = Vec::new();
        for places in order.chunks(32).cycle().take(steps) {
            let (x, y) = images.batch(places)?;
            optimizer.zero_grad();
            let loss = net.forward(&x)?.cross_entropy(&y)?;
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item::<f64>()?);
        }
        results.push((name, losses));
    }
    Ok(results)
}

#[allow(dead_code)] // a test runs the functions above
fn main() -> Result<()> {
    shapes()?.iter().for_each(|line| println!("{line}"));
    let results = train(150)?;
    println!("{}", results.iter().map(|(name, _)| format!("{name:>9}")).collect::<String>());
    for step in (0..150).step_by(10) {
        println!("{}", results.iter().map(|(_, losses)| format!("{:9.4}", losses[step])).collect::<String>());
    }
    Ok(())
}
