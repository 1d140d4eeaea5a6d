//! A run in words and numbers: its settings, a line an epoch, the summary at the end.

use super::evaluate::Confusion;
use super::net::Net;
use super::{Args, MOMENTUM, WEIGHT_DECAY};
use neurona::data::Split;
use neurona::nn::Module;
use serde::Serialize;

/// Everything a run was started with.
#[derive(Serialize)]
pub struct Config {
    neurona: &'static str,
    data: &'static str,
    train_images: usize,
    test_images: usize,
    architecture: String,
    parameters: usize,
    epochs: usize,
    batch_size: usize,
    optimizer: &'static str,
    lr: f64,
    lr_schedule: &'static str,
    momentum: f64,
    weight_decay: f64,
    augmentation: &'static str,
    seed: u64,
    threads: usize,
}

impl Config {
    /// The settings of this run.
    pub fn new(args: &Args, set: &Split, net: &Net) -> Self {
        Config {
            neurona: env!("CARGO_PKG_VERSION"),
            data: "fashion-mnist (embedded)",
            train_images: set.train.len(),
            test_images: set.test.len(),
            architecture: net.architecture(),
            parameters: net.num_parameters(),
            epochs: args.epochs,
            batch_size: args.batch_size,
            optimizer: "sgd, nesterov",
            lr: args.lr,
            lr_schedule: "one cycle",
            momentum: MOMENTUM,
            weight_decay: WEIGHT_DECAY,
            augmentation: "random horizontal flip",
            seed: args.seed,
            threads: neurona::num_threads(),
        }
    }

    /// As text for a file.
    pub fn json(&self) -> String {
        // A struct of numbers and plain strings always has a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// What one epoch came to.
pub struct Epoch {
    /// Its number; the first is 1.
    pub epoch: usize,
    /// The learning rate of its last step.
    pub lr: f64,
    /// The mean loss of its steps.
    pub train_loss: f64,
    /// The share of training images recognised in its steps.
    pub train_accuracy: f64,
    /// The loss on the test images after it.
    pub test_loss: f64,
    /// The share of test images recognised after it.
    pub test_accuracy: f64,
    /// How fast it trained.
    pub images_per_s: f64,
    /// How long it trained.
    pub seconds: f64,
}

impl Epoch {
    /// As a line for the user.
    pub fn line(&self, epochs: usize) -> String {
        format!(
            "epoch {:>width$}/{epochs}  loss {:.4}  train {:>5.1} %  test {:>5.1} %  lr {:.4}  {:.0} images/s  {:.1} s",
            self.epoch,
            self.train_loss,
            100.0 * self.train_accuracy,
            100.0 * self.test_accuracy,
            self.lr,
            self.images_per_s,
            self.seconds,
            width = epochs.to_string().len(),
        )
    }
}

/// The epochs as a table.
pub fn csv(history: &[Epoch]) -> String {
    let head = "epoch,lr,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,seconds\n";
    history.iter().fold(head.to_string(), |text, e| {
        text + &format!(
            "{},{:.6},{:.6},{:.4},{:.6},{:.4},{:.1},{:.3}\n",
            e.epoch, e.lr, e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy, e.images_per_s, e.seconds
        )
    })
}

/// How well it went: over all, by class, and the worst mistakes.
pub fn summary(confusion: &Confusion, classes: &[String]) -> String {
    let (all, right) = confusion.totals();
    let width = classes.iter().map(String::len).max().unwrap_or(0);
    let mut text = format!("\nTest accuracy {:.1} % ({right} of {all})\n", 100.0 * confusion.accuracy());
    for (class, name) in classes.iter().enumerate() {
        text += &format!("  {name:<width$}  {:>5.1} %\n", 100.0 * confusion.class_accuracy(class));
    }
    let worst = confusion.worst(3);
    if !worst.is_empty() {
        text += "Most often confused\n";
    }
    for (n, class, guess) in worst {
        let of = confusion.total(class);
        text += &format!("  {} taken for {}: {n} of {of}\n", classes[class], classes[guess]);
    }
    text
}
