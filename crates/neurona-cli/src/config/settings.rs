//! The settings as asked.

use super::names::{Augment, ClassWeights, Opt, Scheduler};
use crate::device::{Amp, DeviceName, KernelsName};
use crate::flags;
use serde::{Deserialize, Serialize};

/// Every setting of a training run, as far as somebody said it: flags of `neurona train`, and keys of its file.
#[derive(clap::Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// What to learn from: a folder with a folder of images for each class, or cifar10, cifar100, mnist,
    /// fashion-mnist, embedded.
    #[arg(long, value_name = "DATA", help_heading = "Data")]
    pub data: Option<String>,
    /// Pixels to a side that images are brought to.
    #[arg(long, value_name = "N", value_parser = flags::image_size, help_heading = "Data")]
    pub image_size: Option<usize>,
    /// Share of the training images that is kept for validation, when the data has no such part.
    #[arg(long, value_name = "SHARE", value_parser = flags::part, help_heading = "Data")]
    pub val_split: Option<f64>,
    /// How training images are varied.
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub augment: Option<Augment>,
    /// Mix pairs of images; the strength of it, such as 0.2 (0: not).
    #[arg(long, value_name = "ALPHA", value_parser = flags::not_negative, help_heading = "Data")]
    pub mixup: Option<f64>,
    /// Paste a part of one image into another; the strength of it, such as 1 (0: not).
    #[arg(long, value_name = "ALPHA", value_parser = flags::not_negative, help_heading = "Data")]
    pub cutmix: Option<f64>,
    /// Leave out images that cannot be read, and count them, instead of stopping.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Data")]
    pub skip_bad_images: Option<bool>,
    /// Threads that read and vary images (0: the thread that trains does it).
    #[arg(long, value_name = "N", value_parser = flags::workers, help_heading = "Data")]
    pub workers: Option<usize>,

    /// The network; `neurona summary` lists them.
    #[arg(long, value_name = "NAME", help_heading = "Network")]
    pub model: Option<String>,
    /// Start from the weights of this file; a head of another size is made new.
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub weights: Option<String>,
    /// Train the new head only.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Network")]
    pub freeze: Option<bool>,
    /// The head's learning rate, when it is to learn faster than the rest.
    #[arg(long, value_name = "X", value_parser = flags::positive, help_heading = "Network")]
    pub head_lr: Option<f64>,

    /// How often to go through all training images.
    #[arg(long, value_name = "N", value_parser = flags::count, help_heading = "Training")]
    pub epochs: Option<usize>,
    /// Images to a training step.
    #[arg(long, value_name = "N", value_parser = flags::count, help_heading = "Training")]
    pub batch_size: Option<usize>,
    /// Batches whose gradients are added up before the weights change.
    #[arg(long, value_name = "N", value_parser = flags::count, help_heading = "Training")]
    pub accumulate: Option<usize>,
    /// How the weights are changed.
    #[arg(long, value_name = "NAME", help_heading = "Training")]
    pub opt: Option<Opt>,
    /// The learning rate; the highest one, where it changes.
    #[arg(long, value_name = "X", value_parser = flags::positive, help_heading = "Training")]
    pub lr: Option<f64>,
    /// The momentum of sgd, rmsprop and muon.
    #[arg(long, value_name = "X", value_parser = flags::below_one, help_heading = "Training")]
    pub momentum: Option<f64>,
    /// Pulls weights towards zero.
    #[arg(long, value_name = "X", value_parser = flags::not_negative, help_heading = "Training")]
    pub weight_decay: Option<f64>,
    /// How the learning rate changes over the run.
    #[arg(long, value_name = "NAME", help_heading = "Training")]
    pub lr_scheduler: Option<Scheduler>,
    /// Epochs over which the learning rate rises from nothing.
    #[arg(long, value_name = "N", value_parser = flags::not_negative, help_heading = "Training")]
    pub warmup_epochs: Option<f64>,
    /// Share of the target that is spread over all classes, such as 0.1 (0: none).
    #[arg(long, value_name = "X", value_parser = flags::below_one, help_heading = "Training")]
    pub label_smoothing: Option<f64>,
    /// Whether rare classes count for more.
    #[arg(long, value_name = "NAME", help_heading = "Training")]
    pub class_weights: Option<ClassWeights>,
    /// The longest gradient allowed (0: any).
    #[arg(long, value_name = "NORM", value_parser = flags::not_negative, help_heading = "Training")]
    pub clip_grad: Option<f64>,
    /// Keep a moving average of the weights with this decay, such as 0.999, and use it (0: not).
    #[arg(long, value_name = "DECAY", value_parser = flags::below_one, help_heading = "Training")]
    pub model_ema: Option<f64>,
    /// Stop when validation has not improved for this many epochs (0: never).
    #[arg(long, value_name = "N", value_parser = flags::count_or_zero, help_heading = "Training")]
    pub early_stopping: Option<usize>,
    /// Numbers to compute with; bf16 and f16 are for GPUs [default: off].
    #[arg(long, value_name = "NAME", help_heading = "Training")]
    pub amp: Option<Amp>,
    /// Decides the first weights, the order of the images and how they are varied.
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub seed: Option<u64>,

    /// Where to train [default: auto].
    #[arg(long, value_name = "NAME", help_heading = "Machine and files")]
    pub device: Option<DeviceName>,
    /// Whose matrix products and convolutions a GPU runs [default: auto].
    #[arg(long, value_name = "NAME", help_heading = "Machine and files")]
    pub kernels: Option<KernelsName>,
    /// Threads to compute on [default: all cores].
    #[arg(long, value_name = "N", value_parser = flags::threads, help_heading = "Machine and files")]
    pub threads: Option<usize>,
    /// The folder that gets a folder for this run [default: runs].
    #[arg(long, value_name = "FOLDER", help_heading = "Machine and files")]
    pub output: Option<String>,
    /// What the run's folder is called, before its number [default: the data's name].
    #[arg(long, value_name = "NAME", value_parser = flags::name, help_heading = "Machine and files")]
    pub name: Option<String>,
    /// Keep a checkpoint of every n-th epoch too (0: only the best and the last).
    #[arg(long, value_name = "N", value_parser = flags::count_or_zero, help_heading = "Machine and files")]
    pub checkpoint_every: Option<usize>,
    /// Save where the run stands after this many steps too, not only after every epoch (0: not).
    #[arg(long, value_name = "N", value_parser = flags::count_or_zero, help_heading = "Machine and files")]
    pub save_steps: Option<usize>,
}

impl Settings {
    /// The share that is kept for validation when nobody says another.
    pub const VAL_SPLIT: f64 = 0.2;
}
