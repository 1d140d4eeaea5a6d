//! One run: data, network and settings put together.

use super::optimizer::{optimizer, peak, schedule};
use super::progress::Progress;
use super::{finish, told};
use crate::config::{self, ClassWeights, Config};
use crate::device;
use crate::failure::{Failure, Outcome, say};
use crate::pipeline::{self, Parts, Variation};
use neurona::data::sets::Opened;
use neurona::data::{Augment, Batches, CutMix, DataLoader, Mix, MixUp};
use neurona::io;
use neurona::loss::CrossEntropyLoss;
use neurona::models::{Card, Spec, transfer};
use neurona::nn::{Forward, Module};
use neurona::schedule::Plateau;
use neurona::train::{
    Checkpoints, CsvLog, EarlyStopping, JsonLines, Outcome as Ended, RunDir, StopFlag, TensorBoard, Trainer,
    class_weights,
};
use neurona::{Device, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// `last` is saved at least this often, so that little is lost when the machine goes down.
const SAVE_EVERY: Duration = Duration::from_secs(120);
/// Settings that change who computes and what is kept, but not what is computed: a run may go on with others.
const FREE: [&str; 10] = [
    "threads",
    "workers",
    "device",
    "kernels",
    "output",
    "name",
    "checkpoint-every",
    "save-steps",
    "early-stopping",
    "epochs",
];

/// A run that is ready to start.
pub struct Session {
    /// Its settings.
    pub config: Config,
    /// Its images.
    pub parts: Parts,
    /// What its model file will say.
    pub card: Card,
    /// Where it runs.
    pub device: Device,
    net: Box<dyn Forward>,
}

impl Session {
    /// Builds the network; the seed decides its weights.
    pub fn new(opened: &Opened, parts: Parts, config: Config) -> Outcome<Self> {
        let classes = opened.train.classes();
        let (device, _) = device::find(config.device)?;
        device::apply(device, config.amp, config.kernels)?;
        let size = [opened.mean.len(), config.image_size, config.image_size];
        let spec = Spec::new(&config.model, classes.len()).map_err(|e| Failure::Usage(e.to_string()))?.images(size);
        spec.check().map_err(|e| Failure::Usage(e.to_string()))?;
        neurona::manual_seed(config.seed);
        let net = spec.build()?;
        if config.freeze {
            transfer::freeze_backbone(&spec, &net, true)?;
        }
        let doubles = |values: &[f32]| values.iter().map(|v| *v as f64).collect::<Vec<_>>();
        let card = Card::new(spec, classes.iter().cloned())
            .normalize(doubles(&opened.mean), doubles(&opened.std))
            .resize(pipeline::fit(opened, config.image_size))
            .note("data", &opened.name);
        Ok(Session { parts, card, device, net, config })
    }

    /// Starts from the weights of a file, when the settings name one.
    pub fn take_weights(&self) -> Outcome {
        let Some(file) = &self.config.weights else { return Ok(()) };
        let report = transfer::load(&self.card.spec, &self.net, &io::load(file)?, transfer::Stem::Average)
            .map_err(|e| Failure::Told(format!("{file}: {e}")))?;
        say(format!("{file}: {} tensors taken, {} made new", report.taken.len(), report.fresh.len()))
    }

    /// The network's parameters.
    pub fn parameters(&self) -> usize {
        self.net.num_parameters()
    }

    /// Trains to the end, from a checkpoint if there is one, and writes everything.
    pub fn train(&self, folder: &RunDir, from: Option<&Path>) -> Outcome {
        let config = &self.config;
        let stop = stop_flag();
        let (train, val, in_step) = self.batches()?;
        let steps = train.batches().div_ceil(config.accumulate) as u64;
        let mut progress = Progress::new(config.epochs, train.images());
        let mut checkpoints = Checkpoints::new(folder.file("checkpoints")?).best("val_accuracy").every(SAVE_EVERY);
        if config.checkpoint_every > 0 {
            checkpoints = checkpoints.every_epochs(config.checkpoint_every);
        }
        if config.save_steps > 0 {
            checkpoints = checkpoints.every_steps(config.save_steps as u64);
        }
        let mut trainer = Trainer::new(&self.net, optimizer(config, &self.card.spec, &self.net)?)
            .epochs(config.epochs)
            .loss(self.loss()?)
            .validation_loss(CrossEntropyLoss::new())
            .validation(&val)
            .accumulate(config.accumulate)
            .device(self.device)
            .checkpoints(checkpoints)
            .stop_flag(&stop)
            .callback(CsvLog::new(folder.file("metrics.csv")?))
            .callback(JsonLines::new(folder.file("metrics.jsonl")?))
            .callback(TensorBoard::new(folder.file("tensorboard")?))
            .callback(&mut progress);
        trainer = match schedule(config, steps) {
            Some(schedule) => trainer.schedule(schedule),
            None => trainer.plateau(Plateau::new(peak(config)).factor(0.1).patience(5), "val_loss"),
        };
        if let Some(augment) = in_step {
            trainer = trainer.augment(augment);
        }
        if config.clip_grad > 0.0 {
            trainer = trainer.clip_norm(config.clip_grad);
        }
        if config.model_ema > 0.0 {
            trainer = trainer.ema_warm_up(config.model_ema);
        }
        if config.early_stopping > 0 {
            trainer = trainer.callback(EarlyStopping::new("val_accuracy").patience(config.early_stopping));
        }
        for (key, value) in config::pairs(config).into_iter().filter(|(key, _)| !FREE.contains(&key.as_str())) {
            trainer = trainer.setting(&key, value);
        }
        if let Some(checkpoint) = from {
            trainer = trainer.resume(checkpoint)?;
        }
        let fit = trainer.run(&train);
        progress.finish()?;
        let fit = fit.map_err(told)?;
        for bad in train.skipped().iter().chain(&val.skipped()) {
            say(format!("left out: {}", bad.problem))?;
        }
        match &fit.outcome {
            Ended::Interrupted => return interrupted(folder),
            Ended::Stopped(reason) => say(format!("Stopped early: {reason}"))?,
            Ended::Finished => {}
        }
        finish::finish(self, &self.net, folder, &stop)
    }

    /// Batches for training and validation, and what the training step does to them: where it runs, bytes become
    /// numbers and are varied; only CutMix has no place there.
    fn batches(&self) -> Outcome<(DataLoader, DataLoader, Option<Augment>)> {
        let (config, parts, card) = (&self.config, &self.parts, &self.card);
        let loader = DataLoader::new(parts.train.clone(), config.batch_size)?
            .shuffle(true)
            // A last batch of a few images would pull batch norm's statistics off.
            .drop_last(parts.train.len() >= 2 * config.batch_size)
            .workers(config.workers)
            .seed(config.seed);
        let loader = if config.skip_bad_images { loader.skip_bad_images() } else { loader };
        let variation = Variation::new(card, config.augment)?;
        if config.cutmix > 0.0 {
            let cut = Mix::from(CutMix::new(config.cutmix)?);
            let mix = if config.mixup > 0.0 { Mix::from(MixUp::new(config.mixup)?).or(cut) } else { cut };
            let val = pipeline::plain_loader(&parts.val, card, config.workers, config.skip_bad_images)?;
            return Ok((loader.transform(variation.in_workers(card)?).mix(mix), val, None));
        }
        let (bytes, in_step) = variation.in_step(card, config.mixup)?;
        let val = pipeline::bytes_loader(&parts.val, card, config.workers, config.skip_bad_images)?;
        Ok((loader.transform(bytes).bytes(), val, Some(in_step)))
    }

    fn loss(&self) -> Outcome<CrossEntropyLoss> {
        let loss = CrossEntropyLoss::new().label_smoothing(self.config.label_smoothing);
        if self.config.class_weights == ClassWeights::None {
            return Ok(loss);
        }
        let weights: Tensor = class_weights(self.parts.train.labels(), self.card.classes.len())?;
        Ok(loss.weight(&weights))
    }
}

/// Raised by Control-C or a request to end; a second one ends the process at once.
fn stop_flag() -> StopFlag {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without a handler the process ends at once, as it would have; the last checkpoint is whole all the same.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone());
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    StopFlag::from(flag)
}

/// Says how to go on.
pub fn interrupted(folder: &RunDir) -> Outcome {
    let path = folder.path().display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./\\:".contains(c);
    let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) };
    say(format!("Interrupted and saved. To go on:\n  neurona train --resume {path}"))?;
    Err(Failure::Interrupted)
}
