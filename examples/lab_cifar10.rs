//! Seed 003: PyTorch's lab on training a classifier, line by line, on real CIFAR-10. Transforms, a loader with two
//! workers, the network, SGD, two epochs at batch 4; save, load into a fresh network, accuracy overall and by class.
//!
//!     cargo run --release -p neurona --example lab_cifar10 [FOLDER [SEED]]
//!
//! FOLDER (./data unless given) holds CIFAR-10; `neurona data get cifar10` downloads it.

use neurona::data::sets::Cifar10;
use neurona::data::transforms::{Compose, Normalize, ToTensor};
use neurona::data::{Batches, DataLoader, Dataset};
use neurona::nn::{Conv2d, Forward, Linear, MaxPool2d, Module};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Result, Tensor, manual_seed, no_grad};

const CLASSES: [&str; 10] = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Two convolutions and three fully connected layers.
#[derive(Module)]
pub struct Net {
    conv1: Conv2d,
    pool: MaxPool2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Net {
    /// With fresh parameters.
    pub fn new() -> Result<Net> {
        Ok(Net {
            conv1: Conv2d::new(3, 6, 5)?,
            pool: MaxPool2d::new(2),
            conv2: Conv2d::new(6, 16, 5)?,
            fc1: Linear::new(16 * 5 * 5, 120)?,
            fc2: Linear::new(120, 84)?,
            fc3: Linear::new(84, 10)?,
        })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = self.pool.forward(&self.conv2.forward(&x)?.relu()?)?;
        let x = x.flatten(1, -1)?;
        let x = self.fc1.forward(&x)?.relu()?;
        let x = self.fc2.forward(&x)?.relu()?;
        self.fc3.forward(&x)
    }
}

/// The lab's loader: pixels from -1 to 1, batches of 4, two workers.
pub fn loader(images: impl Dataset + 'static, shuffle: bool, seed: u64) -> Result<DataLoader> {
    let transform = Compose::new().add(ToTensor).add(Normalize::new(&[0.5, 0.5, 0.5], &[0.5, 0.5, 0.5])?);
    Ok(DataLoader::new(images, 4)?.transform(transform).shuffle(shuffle).seed(seed).workers(2))
}

/// Trains for some epochs and prints the running loss every so many batches, which it also gives.
pub fn train(net: &Net, batches: &DataLoader, epochs: u64, every: usize) -> Result<Vec<f64>> {
    let mut optimizer = Sgd::new(net.parameters(), 0.001).momentum(0.9);
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        let mut running_loss = 0.0;
        for (i, batch) in batches.epoch(epoch, 0)?.enumerate() {
            let batch = batch?;
            optimizer.zero_grad();
            let outputs = net.forward(&batch.images)?;
            let loss = outputs.cross_entropy(&batch.labels)?;
            loss.backward()?;
            optimizer.step()?;
            running_loss += loss.item::<f64>()?;
            if i % every == every - 1 {
                println!("[{}, {:5}] loss: {:.3}", epoch + 1, i + 1, running_loss / every as f64);
                losses.push(running_loss / every as f64);
                running_loss = 0.0;
            }
        }
    }
    println!("Finished Training");
    Ok(losses)
}

/// How many images of each class the network puts in the right class, and how many there are.
pub fn test(net: &Net, batches: &DataLoader) -> Result<[(usize, usize); 10]> {
    let mut classes = [(0, 0); 10];
    for batch in batches {
        let batch = batch?;
        let predicted = no_grad(|| net.forward(&batch.images)?.argmax(1))?.to_vec::<i64>()?;
        for (predicted, label) in predicted.into_iter().zip(batch.labels.to_vec::<i64>()?) {
            let (correct, total) = &mut classes[label as usize];
            *correct += usize::from(predicted == label);
            *total += 1;
        }
    }
    Ok(classes)
}

#[allow(dead_code)] // a test calls the rest with images of its own
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or("./data".to_string());
    let seed: u64 = arguments.next().map_or(Ok(0), |seed| seed.parse())?;
    manual_seed(seed);
    let net = Net::new()?;
    train(&net, &loader(Cifar10::train(&folder)?, true, seed)?, 2, 2000)?;

    let path = "./cifar_net.safetensors";
    net.save(path)?;
    let net = Net::new()?;
    net.load(path)?;
    let classes = test(&net, &loader(Cifar10::test(&folder)?, false, seed)?)?;
    let (correct, total) = classes.iter().fold((0, 0), |sum, class| (sum.0 + class.0, sum.1 + class.1));
    println!("Accuracy of the network on the {total} test images: {} %", 100 * correct / total.max(1));
    for (name, (correct, total)) in CLASSES.iter().zip(classes) {
        println!("Accuracy of {name:>5} : {:2} %", 100 * correct / total.max(1));
    }
    Ok(())
}
