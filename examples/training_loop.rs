//! Seed 000: the training loop that a PyTorch user writes by hand. For every epoch and every batch: load the batch,
//! set the gradients to zero, forward, loss, backward, update; and watch the accumulated loss.
//!
//!     cargo run --release -p neurona --example training_loop

use neurona::data::{ImageSet, embedded};
use neurona::nn::{Flatten, Forward, Linear, Module, ReLU, Sequential};
use neurona::optim::{Optimizer, Sgd};
use neurona::tensor::random;
use neurona::{Result, Tensor, manual_seed, no_grad};

/// Trains for some epochs on the first `images` images of the training set, in batches of 50. Gives the mean loss of
/// every epoch and the accuracy on the test set.
pub fn train(epochs: usize, images: usize) -> Result<(Vec<f64>, f64)> {
    manual_seed(0);
    let set = embedded::fashion_mnist()?;
    let net = Sequential::new()
        .add(Flatten::new())
        .add(Linear::new(28 * 28, 128)?)
        .add(ReLU::new())
        .add(Linear::new(128, 10)?);
    let mut optimizer = Sgd::new(net.parameters(), 0.05).momentum(0.9);

    let mut losses = Vec::new();
    for epoch in 1..=epochs {
        net.train();
        let mut running = Tensor::scalar(0.0f32);
        let order = random::permutation(images.min(set.train.len()));
        for places in order.chunks(50) {
            let (x, y) = set.train.batch(places)?; // load a batch
            optimizer.zero_grad(); // set the gradients to zero
            let prediction = net.forward(&x)?; // forward propagation
            let loss = prediction.cross_entropy(&y)?; // loss
            loss.backward()?; // backward propagation
            optimizer.step()?; // update the weights
            running = (&running + &loss)?; // the loss so far, which stays a tensor until it is printed
        }
        let loss = running.item::<f64>()? / order.chunks(50).len() as f64;
        println!("epoch {epoch}: loss {loss:.4}");
        losses.push(loss);
    }
    let accuracy = accuracy(&net, &set.test)?;
    println!("{:.1} % of the test images are right", 100.0 * accuracy);
    Ok((losses, accuracy))
}

/// The share of images that the network puts in the right class.
fn accuracy(net: &Sequential, images: &ImageSet) -> Result<f64> {
    net.eval();
    let places: Vec<usize> = (0..images.len()).collect();
    let mut right = 0;
    for places in places.chunks(250) {
        let (x, y) = images.batch(places)?;
        let guess = no_grad(|| net.forward(&x)?.argmax(1))?;
        right += guess.to_vec::<i64>()?.iter().zip(y.to_vec::<i64>()?).filter(|(a, b)| *a == b).count();
    }
    Ok(right as f64 / images.len() as f64)
}

#[allow(dead_code)] // a test runs `train` alone
fn main() -> Result<()> {
    train(5, 5000).map(|_| ())
}
