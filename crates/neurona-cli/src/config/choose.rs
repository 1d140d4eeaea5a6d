//! What nobody said is chosen from what the data is like. Every choice has a reason, which is printed.

use super::names::{Augment, ClassWeights, Opt, Scheduler};
use super::{Config, Settings};
use crate::device::{self, Amp, DeviceName, KernelsName};
use crate::failure::{Failure, Outcome};
use neurona::Device;
use neurona::models::Spec;

/// Images up to this size are small: networks for them keep their resolution.
const SMALL: usize = 64;

/// What the choices are made from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What the run is called after.
    pub name: String,
    /// Images that are trained on: those for validation are not counted.
    pub images: usize,
    /// Whether the data has a part for validation.
    pub has_val: bool,
    /// Channels, height and width of a typical image.
    pub size: [usize; 3],
    /// Whether all images have that size.
    pub one_size: bool,
    /// Images of the commonest class for one of the rarest.
    pub imbalance: f64,
    /// Whether a mirrored image may be something else, as digits and letters are.
    pub has_sides: bool,
}

/// A setting that was chosen, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The setting.
    pub key: &'static str,
    /// What it was set to.
    pub value: String,
    /// Why.
    pub reason: String,
}

/// Notes what is chosen on the way.
struct Chooser(Vec<Choice>);

impl Chooser {
    fn pick<T: ToString>(&mut self, key: &'static str, asked: Option<T>, choice: (T, String)) -> T {
        let (value, reason) = choice;
        asked.unwrap_or_else(|| {
            self.0.push(Choice { key, value: value.to_string(), reason });
            value
        })
    }
}

/// The settings of the run, and what was chosen.
pub fn choose(asked: Settings, facts: &Facts) -> Outcome<(Config, Vec<Choice>)> {
    if asked.freeze == Some(true) && asked.weights.is_none() {
        return Err(Failure::Usage("--freeze needs --weights: without them there is nothing worth keeping".into()));
    }
    let mut chooser = Chooser(Vec::new());
    let (amp, kernels) = (asked.amp.unwrap_or(Amp::Off), asked.kernels.unwrap_or(KernelsName::Auto));
    let device = device(&mut chooser, asked.device)?;
    device::check(device, amp, kernels)?;
    let image_size = chooser.pick("image-size", asked.image_size, image_size(facts));
    let tuning = asked.weights.is_some();
    let model = model(&mut chooser, asked.model, tuning, facts, image_size);
    let batch_size = chooser.pick("batch-size", asked.batch_size, batch_size(facts));
    let opt = asked.opt.unwrap_or(if model.starts_with("vit") { Opt::Adamw } else { Opt::Sgd });
    let epochs = chooser.pick("epochs", asked.epochs, epochs(facts, tuning));
    let lr = chooser.pick("lr", asked.lr, learning_rate(opt, batch_size * asked.accumulate.unwrap_or(1), tuning));
    let schedule = (Scheduler::OneCycle, "up, then down to nothing: good in any number of epochs".to_string());
    let config = Config {
        data: asked.data.unwrap_or_else(|| "embedded".to_string()),
        image_size,
        val_split: match facts.has_val {
            true => asked.val_split.unwrap_or(Settings::VAL_SPLIT),
            false => {
                let reason = "the data has no part for validation".to_string();
                chooser.pick("val-split", asked.val_split, (Settings::VAL_SPLIT, reason))
            }
        },
        augment: chooser.pick("augment", asked.augment, augment(facts)),
        mixup: asked.mixup.unwrap_or(0.0),
        cutmix: asked.cutmix.unwrap_or(0.0),
        skip_bad_images: asked.skip_bad_images.unwrap_or(false),
        workers: asked.workers.unwrap_or(2),
        weights: asked.weights,
        freeze: asked.freeze.unwrap_or(false),
        head_lr: asked.head_lr,
        epochs,
        batch_size,
        accumulate: asked.accumulate.unwrap_or(1),
        opt,
        lr,
        momentum: asked.momentum.unwrap_or(0.9),
        weight_decay: asked.weight_decay.unwrap_or(match opt {
            Opt::Adamw | Opt::Muon => 0.01,
            Opt::Sgd | Opt::Adam | Opt::Rmsprop => 5e-4,
        }),
        lr_scheduler: chooser.pick("lr-scheduler", asked.lr_scheduler, schedule),
        warmup_epochs: asked.warmup_epochs.unwrap_or(0.0),
        label_smoothing: asked.label_smoothing.unwrap_or(0.0),
        class_weights: class_weights(&mut chooser, asked.class_weights, facts),
        clip_grad: asked.clip_grad.unwrap_or(0.0),
        model_ema: asked.model_ema.unwrap_or(0.0),
        early_stopping: asked.early_stopping.unwrap_or(0),
        amp,
        seed: asked.seed.unwrap_or(0),
        device: DeviceName::Is(device),
        kernels,
        threads: asked.threads.unwrap_or_else(neurona::num_threads),
        output: asked.output.unwrap_or_else(|| "runs".to_string()),
        name: asked.name.unwrap_or_else(|| facts.name.clone()),
        checkpoint_every: asked.checkpoint_every.unwrap_or(0),
        save_steps: asked.save_steps.unwrap_or(0),
        model,
    };
    Ok((config, chooser.0))
}

fn device(chooser: &mut Chooser, asked: Option<DeviceName>) -> Outcome<Device> {
    let (device, reason) = device::find(asked.unwrap_or(DeviceName::Auto))?;
    Ok(match reason {
        Some(reason) => chooser.pick("device", None, (device, reason)),
        None => device,
    })
}

fn image_size(facts: &Facts) -> (usize, String) {
    let [_, height, width] = facts.size;
    let side = height.min(width);
    if facts.one_size && height == width && side <= SMALL {
        return (side, "the images' own size".to_string());
    }
    let fitting = [32, 64, 96, 128].into_iter().rev().find(|size| *size <= side).unwrap_or(32);
    let typical = format!("images have about {width} x {height} pixels");
    match side > 160 {
        true => (fitting, format!("{typical}; more detail costs time: 224 takes three times as long")),
        false => (fitting, typical),
    }
}

fn model(chooser: &mut Chooser, asked: Option<String>, tuning: bool, facts: &Facts, image_size: usize) -> String {
    match asked {
        // Weights fit the network that they were made for.
        Some(name) if tuning => name,
        // The network for photographs throws away three quarters of the pixels at each of its first two layers.
        Some(name) if image_size <= SMALL && Spec::NAMES.contains(&format!("{name}_cifar").as_str()) => {
            let reason = format!("{name} as it is built for images of {image_size} x {image_size} pixels");
            chooser.pick("model", None, (format!("{name}_cifar"), reason))
        }
        Some(name) => name,
        None if image_size <= SMALL => {
            let reason = format!("{} images of {image_size} x {image_size} pixels", facts.images);
            chooser.pick("model", None, ("small_cnn".to_string(), reason))
        }
        None => {
            let reason = format!("images of {image_size} x {image_size} pixels");
            chooser.pick("model", None, ("resnet18".to_string(), reason))
        }
    }
}

fn batch_size(facts: &Facts) -> (usize, String) {
    let size = match facts.images {
        0..=1_000 => 16,
        1_001..=3_000 => 32,
        3_001..=20_000 => 64,
        _ => 128,
    };
    (size, format!("{} training images", facts.images))
}

fn epochs(facts: &Facts, tuning: bool) -> (usize, String) {
    let epochs = match facts.images {
        0..=1_000 => 40,
        1_001..=3_000 => 25,
        3_001..=20_000 => 12,
        _ => 10,
    };
    match tuning {
        true => ((epochs / 2).max(5), format!("{} training images, and weights to start from", facts.images)),
        false => (epochs, format!("{} training images", facts.images)),
    }
}

/// Starting values. For SGD, 0.02, 0.05 and 0.1 came to 87.6, 87.4 and 87.3 % of the embedded set's validation images
/// (two seeds), and 0.05 does better than 0.1 when there is a single epoch. The rate grows with the batch, with its
/// root for the optimizers that divide by the gradient's size.
fn learning_rate(opt: Opt, batch: usize, tuning: bool) -> (f64, String) {
    let part = batch as f64 / 64.0;
    let (rate, part) = match opt {
        Opt::Sgd => (0.05, part.min(4.0)),
        Opt::Adam | Opt::Adamw | Opt::Rmsprop => (2e-3, part.sqrt().min(2.0)),
        Opt::Muon => (0.02, part.sqrt().min(2.0)),
    };
    let reason = format!("{opt} with {batch} images to a step");
    // Two digits are as much as is known about it.
    let rounded = |x: f64| format!("{x:.1e}").parse().unwrap_or(x);
    match tuning {
        true => (rounded(rate * part * 0.1), reason + ", gently, as there are weights to start from"),
        false => (rounded(rate * part), reason),
    }
}

fn augment(facts: &Facts) -> (Augment, String) {
    let images = format!("{} training images", facts.images);
    match (facts.has_sides, facts.images) {
        (true, _) => (Augment::Crop, "not mirrored: these images have a left and a right".to_string()),
        (false, 0..=2_000) => (Augment::Trivial, format!("{images} are few")),
        (false, _) => (Augment::Basic, images),
    }
}

fn class_weights(chooser: &mut Chooser, asked: Option<ClassWeights>, facts: &Facts) -> ClassWeights {
    if facts.imbalance < 3.0 {
        return asked.unwrap_or(ClassWeights::None);
    }
    let reason = format!("the commonest class has {:.0} times the images of the rarest", facts.imbalance);
    chooser.pick("class-weights", asked, (ClassWeights::Balanced, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{read, write};

    fn facts(images: usize, size: [usize; 3]) -> Facts {
        Facts { name: "pets".into(), images, has_val: false, size, one_size: false, imbalance: 1.0, has_sides: false }
    }

    fn chosen(settings: Settings, facts: &Facts) -> (Config, Vec<Choice>) {
        choose(settings, facts).unwrap()
    }

    #[test]
    fn the_resolved_file_gives_the_same_settings_and_leaves_nothing_to_choose() {
        let (config, choices) = chosen(Settings::default(), &facts(800, [3, 375, 500]));
        assert!(choices.iter().any(|c| c.key == "image-size" && c.value == "128"), "{choices:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, write(&config).unwrap()).unwrap();
        let (again, choices) = chosen(read(&path).unwrap(), &facts(50_000, [1, 28, 28]));
        assert_eq!((again, choices), (config, vec![]));
    }

    #[test]
    fn choices_follow_the_data_and_flags_go_first() {
        let (config, _) = chosen(Settings::default(), &facts(50_000, [3, 32, 32]));
        assert_eq!((config.model.as_str(), config.image_size, config.batch_size), ("small_cnn", 32, 128));
        let resnet = Settings { model: Some("resnet18".into()), epochs: Some(7), ..Settings::default() };
        let (config, choices) = chosen(resnet.clone(), &facts(50_000, [3, 32, 32]));
        assert_eq!((config.model.as_str(), config.epochs), ("resnet18_cifar", 7));
        assert!(choices.iter().any(|c| c.key == "model") && !choices.iter().any(|c| c.key == "epochs"));
        let tuned = Settings { weights: Some("r18.pth".into()), ..resnet.clone() };
        assert_eq!(chosen(tuned, &facts(50_000, [3, 32, 32])).0.model, "resnet18", "as its weights need it");
        assert_eq!(chosen(resnet, &facts(5_000, [3, 300, 300])).0.model, "resnet18");
        let digits = Facts { has_sides: true, ..facts(60_000, [1, 28, 28]) };
        assert_eq!(chosen(Settings::default(), &digits).0.augment, Augment::Crop);
        let uneven = Facts { imbalance: 9.0, ..facts(5_000, [3, 32, 32]) };
        assert_eq!(chosen(Settings::default(), &uneven).0.class_weights, ClassWeights::Balanced);
    }

    #[test]
    fn what_needs_a_gpu_is_refused() {
        let on_cpu = Settings { device: Some(DeviceName::Is(Device::Cpu)), ..Settings::default() };
        for settings in [
            Settings { device: Some(DeviceName::Is(Device::cuda(60))), ..Settings::default() },
            Settings { amp: Some(Amp::F16), ..on_cpu.clone() },
            Settings { kernels: Some(KernelsName::Own), ..on_cpu.clone() },
            Settings { freeze: Some(true), ..Settings::default() },
        ] {
            assert!(matches!(choose(settings, &facts(10, [3, 8, 8])), Err(Failure::Usage(_))));
        }
        let (config, choices) = chosen(Settings::default(), &facts(10, [3, 8, 8]));
        let choice = choices.iter().find(|c| c.key == "device").unwrap();
        assert_eq!(choice.value, config.device.to_string());
        assert!(!choice.reason.is_empty());
        assert!(chosen(on_cpu, &facts(10, [3, 8, 8])).1.iter().all(|c| c.key != "device"));
    }
}
