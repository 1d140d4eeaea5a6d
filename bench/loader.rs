//! How many images a second the loader alone gives; `bench/loader.py` compares it with PyTorch's.
//!
//!     cargo run --release -p neurona --example bench_loader -- cifar10|folder PATH [--workers N] [--batch N]
//!
//! cifar10: RandomCrop(32, padding 4), flip, ToTensor, Normalize. folder: RandomResizedCrop(224), flip, ToTensor,
//! Normalize. Prints one JSON line with the best of three epochs.

use neurona::data::sets::{Cifar10, ImageFolder};
use neurona::data::transforms::{
    Compose, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToTensor, Transform,
};
use neurona::data::{Batches, DataLoader, Dataset};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, otherwise: usize| match arguments.iter().position(|a| a == name) {
        Some(at) => arguments.get(at + 1).ok_or(format!("{name} needs a number"))?.parse().map_err(|e| format!("{e}")),
        None => Ok(otherwise),
    };
    let (workers, batch) = (option("--workers", 2)?, option("--batch", 128)?);
    let [what, path, ..] = &arguments[..] else { return Err("usage: bench_loader cifar10|folder PATH".into()) };
    let random: Box<dyn Transform> = match &**what {
        "cifar10" => Box::new(RandomCrop::new(32)?.padding(4)),
        "folder" => Box::new(RandomResizedCrop::new(224)?),
        other => return Err(format!("{other} is neither cifar10 nor folder").into()),
    };
    let set: Arc<dyn Dataset> =
        if what == "cifar10" { Arc::new(Cifar10::train(path)?) } else { Arc::new(ImageFolder::open(path)?) };
    let transform = Compose::new()
        .add(random)
        .add(RandomHorizontalFlip::new(0.5)?)
        .add(ToTensor)
        .add(Normalize::new(&[0.4914, 0.4822, 0.4465], &[0.2470, 0.2435, 0.2616])?);
    let loader = DataLoader::new(set, batch)?.transform(transform).shuffle(true).workers(workers);

    let mut best = f64::INFINITY;
    for epoch in 0..3 {
        let start = Instant::now();
        let mut images = 0;
        for batch in loader.epoch(epoch, 0)? {
            images += batch?.indices.len();
        }
        assert_eq!(images, loader.images());
        best = best.min(start.elapsed().as_secs_f64());
    }
    let n = loader.images();
    println!("{{\"images\": {n}, \"seconds\": {best:.4}, \"images_per_s\": {:.0}}}", n as f64 / best);
    Ok(())
}
