//! Seed 001: a sequential model that takes 500 numbers, has one hidden layer of 256, and gives 10 classes.
//!
//!     cargo run --release -p neurona --example sequential_500_256

use neurona::nn::{Forward, Linear, Module, ReLU, Sequential};
use neurona::optim::{Adam, Optimizer};
use neurona::{Result, Tensor, manual_seed, no_grad};

/// The model: 500 inputs, 256 hidden neurons, 10 outputs.
pub fn model() -> Result<Sequential> {
    Ok(Sequential::new()
        .add_named("hidden", Linear::new(500, 256)?)
        .add_named("relu", ReLU::new())
        .add_named("output", Linear::new(256, 10)?))
}

/// Trains it to tell ten clouds of points apart, and gives the share of new points it puts in the right cloud.
pub fn train(steps: usize) -> Result<f64> {
    manual_seed(1);
    let net = model()?;
    for (name, parameter) in net.named_parameters() {
        println!("{name:14} {}", parameter.shape());
    }
    println!("{} parameters", net.num_parameters());

    let centres = Tensor::randn([10, 500])?;
    let mut optimizer = Adam::new(net.parameters(), 0.001);
    for step in 0..steps {
        let (x, y) = cloud(&centres, 64)?;
        optimizer.zero_grad();
        let loss = net.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        optimizer.step()?;
        if step % 20 == 0 {
            println!("step {step:3}: loss {:.4}", loss.item::<f32>()?);
        }
    }
    let (x, y) = cloud(&centres, 1000)?;
    let right = no_grad(|| net.forward(&x)?.argmax(1)?.eq(&y))?;
    let share = right.to_vec::<f64>()?.iter().sum::<f64>() / 1000.0;
    println!("{:.1} % of new points are right", 100.0 * share);
    Ok(share)
}

/// Points around the centres, and which centre each belongs to.
fn cloud(centres: &Tensor, points: usize) -> Result<(Tensor, Tensor)> {
    let classes: Vec<i64> = Tensor::rand([points])?.to_vec::<f64>()?.iter().map(|u| (u * 10.0) as i64).collect();
    let choose: Vec<f32> = classes.iter().flat_map(|c| (0..10).map(move |k| (k == *c) as u8 as f32)).collect();
    let near = Tensor::from_vec(choose, [points, 10])?.matmul(centres)?;
    let x = (near + Tensor::randn([points, 500])?.mul_scalar(3.0)?)?;
    Ok((x, Tensor::from_vec(classes, [points])?))
}

#[allow(dead_code)] // a test runs `train` alone
fn main() -> Result<()> {
    train(200).map(|_| ())
}
