//! `neurona train`: trains a small network on the built-in images and says how well it went.

mod evaluate;
mod folder;
mod net;
mod picture;
mod progress;
mod report;
mod schedule;

use crate::failure::{Failure, Outcome, say};
use crate::flags;
use folder::Folder;
use net::Net;
use neurona::data::{ImageSet, embedded};
use neurona::nn::{Forward, Module};
use neurona::optim::{Optimizer, Sgd};
use neurona::tensor::random;
use progress::Progress;
use report::{Config, Epoch};
use schedule::one_cycle;
use std::path::PathBuf;
use std::time::Instant;

const MOMENTUM: f64 = 0.9;
const WEIGHT_DECAY: f64 = 5e-4;

/// Trains a small convolutional network on 5,000 images of Fashion-MNIST, which are built in, and tests it on
/// 1,000 others.
///
/// The results go to a new folder: config.json, metrics.csv (a line an epoch), model.safetensors and
/// result.png (loss, accuracy and confusion matrix). The same seed gives the same model, whatever the number
/// of threads.
#[derive(clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  neurona train --epochs 5 --lr 0.05 --seed 1 --output runs"
)]
pub struct Args {
    /// How often to go through all training images.
    #[arg(long, value_name = "N", default_value = "12", value_parser = flags::count)]
    epochs: usize,
    /// Images to a training step.
    #[arg(long, value_name = "N", default_value = "64", value_parser = flags::count)]
    batch_size: usize,
    /// The highest learning rate; it rises to it during the first quarter, then falls to zero.
    #[arg(long, value_name = "X", default_value = "0.1", value_parser = flags::positive)]
    lr: f64,
    /// Decides the first weights, the order of the images and which are mirrored.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Threads to run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = flags::threads)]
    threads: Option<usize>,
    /// The folder that gets a folder for this run.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if let Some(threads) = args.threads {
        neurona::set_num_threads(threads);
    }
    neurona::manual_seed(args.seed);
    // First of all: training for minutes and then not being able to save would be a pity.
    let folder = Folder::create(&args.output, "fashion-mnist")?;
    let set = embedded::fashion_mnist()?;
    let [channels, height, width] = set.train.size();
    let net = Net::new([channels, height, width], set.train.classes().len())?;
    let mut opt = Sgd::new(net.parameters(), args.lr).momentum(MOMENTUM).nesterov(true).weight_decay(WEIGHT_DECAY);
    folder.write("config.json", &Config::new(args, &set, &net).json())?;
    say(format!(
        "Fashion-MNIST: {} training and {} test images; {} parameters; {} threads",
        set.train.len(),
        set.test.len(),
        net.num_parameters(),
        neurona::num_threads()
    ))?;

    let mut history: Vec<Epoch> = Vec::new();
    let mut progress = Progress::new(args.epochs, set.train.len());
    let mut confusion = None;
    for epoch in 1..=args.epochs {
        let start = Instant::now();
        let (loss, right) = train_epoch(&net, &mut opt, &set.train, args, epoch, &mut progress)?;
        let seconds = start.elapsed().as_secs_f64();
        let (test_loss, test) = evaluate::confusion(&net, &set.test)?;
        let done = Epoch {
            epoch,
            lr: opt.lr(),
            train_loss: loss,
            train_accuracy: right,
            test_loss,
            test_accuracy: test.accuracy(),
            images_per_s: set.train.len() as f64 / seconds,
            seconds,
        };
        progress.epoch_line(&done.line(args.epochs))?;
        history.push(done);
        folder.write("metrics.csv", &report::csv(&history))?;
        confusion = Some(test);
    }
    progress.finish();

    folder.save_model("model.safetensors", &net, &set.train)?;
    let Some(confusion) = confusion else { return Ok(()) };
    folder.replace("result.png", |path| picture::draw(path, &history, &confusion, set.test.classes()))?;
    say(report::summary(&confusion, set.test.classes()))?;
    say(format!("Saved in {}: config.json, metrics.csv, model.safetensors, result.png", folder.path().display()))
}

/// Goes through all training images once; gives the mean loss and the share that was recognised.
fn train_epoch(
    net: &Net,
    opt: &mut Sgd,
    images: &ImageSet,
    args: &Args,
    epoch: usize,
    progress: &mut Progress,
) -> Outcome<(f64, f64)> {
    net.train();
    let steps = images.len().div_ceil(args.batch_size);
    let (mut loss_sum, mut right) = (0.0, 0);
    progress.start_epoch(epoch);
    let order = random::permutation(images.len());
    for step in 0..steps {
        // Shared out evenly: a last batch of a few images would pull batch norm's statistics off.
        let places = &order[step * order.len() / steps..(step + 1) * order.len() / steps];
        opt.set_lr(one_cycle((epoch - 1) * steps + step, args.epochs * steps, args.lr));
        let key = random::next_key();
        let (x, y) = images.batch_mirrored(places, |i| random::at(key, i as u64) & 1 == 1)?;

        opt.zero_grad();
        let out = net.forward(&x)?;
        let loss = out.cross_entropy(&y)?;
        let guesses = out.argmax(1)?;
        loss.backward()?;
        opt.step()?;

        let loss = loss.item::<f64>()?;
        if !loss.is_finite() {
            let advice = "try a smaller --lr";
            return Err(Failure::Told(format!("the loss became {loss} in epoch {epoch}, step {}; {advice}", step + 1)));
        }
        loss_sum += loss * places.len() as f64;
        let guesses = guesses.to_vec::<i64>()?;
        right += guesses.iter().zip(places).filter(|(guess, place)| **guess == images.labels()[**place]).count();
        progress.step(places.len(), loss, opt.lr());
    }
    Ok((loss_sum / images.len() as f64, right as f64 / images.len() as f64))
}
