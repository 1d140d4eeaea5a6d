//! Seeds 000, 001 and 002 in Keras's way: define a sequential model, compile it with an optimizer and a loss, fit,
//! evaluate, predict.
//!
//!     cargo run --release -p neurona --example compile_fit

use neurona::data::embedded;
use neurona::loss::CrossEntropyLoss;
use neurona::metrics::TopK;
use neurona::nn::{BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential};
use neurona::optim::Adam;
use neurona::train::{Compile, EarlyStopping};
use neurona::{Result, manual_seed};

/// Trains a small network on some images for some epochs; gives the accuracy on the test images.
pub fn train(images: usize, epochs: usize) -> Result<f64> {
    manual_seed(0);
    let set = embedded::fashion_mnist()?;
    let (x, y) = set.train.batch(&(0..images).collect::<Vec<_>>())?;
    let (test_x, test_y) = set.test.batch(&(0..set.test.len()).collect::<Vec<_>>())?;

    let mut model = Sequential::new()
        .add(Conv2d::new(1, 16, 3)?.padding(1))
        .add(BatchNorm2d::new(16)?)
        .add(ReLU::new())
        .add(MaxPool2d::new(2))
        .add(Flatten::new())
        .add(Linear::new(16 * 14 * 14, 10)?)
        .compile(|parameters| Adam::new(parameters, 0.002), CrossEntropyLoss::new())
        .metric(TopK::new(3));

    let fit = model
        .fit((&x, &y))
        .batch_size(50)
        .epochs(epochs)
        .validation((&test_x, &test_y))
        .callback(EarlyStopping::new("val_accuracy").patience(2).restore_best())
        .run()?;
    print!("{}", fit.history.csv());

    let measures = model.evaluate((&test_x, &test_y))?;
    let first = model.predict(&test_x.narrow(0, 0, 1)?)?.argmax(1)?.item::<i64>()?;
    println!("loss {:.4}, the first image is taken for {}", measures.loss, set.test.classes()[first as usize]);
    Ok(measures.accuracy.unwrap_or(0.0))
}

#[allow(dead_code)] // a test runs `train` alone
fn main() -> Result<()> {
    println!("{:.1} % of the test images are right", 100.0 * train(5000, 5)?);
    Ok(())
}
