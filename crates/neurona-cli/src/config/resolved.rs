//! The settings as the run goes.

use super::names::{Augment, ClassWeights, Opt, Scheduler};
use crate::device::{Amp, DeviceName, KernelsName};
use serde::{Deserialize, Serialize};

/// Every setting of a run, with nothing left open: what config.toml holds. The keys are those of
/// [`Settings`](super::Settings), which say what they mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub struct Config {
    pub data: String,
    pub image_size: usize,
    pub val_split: f64,
    pub augment: Augment,
    pub mixup: f64,
    pub cutmix: f64,
    pub skip_bad_images: bool,
    pub workers: usize,

    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    pub freeze: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_lr: Option<f64>,

    pub epochs: usize,
    pub batch_size: usize,
    pub accumulate: usize,
    pub opt: Opt,
    pub lr: f64,
    pub momentum: f64,
    pub weight_decay: f64,
    pub lr_scheduler: Scheduler,
    pub warmup_epochs: f64,
    pub label_smoothing: f64,
    pub class_weights: ClassWeights,
    pub clip_grad: f64,
    pub model_ema: f64,
    pub early_stopping: usize,
    pub amp: Amp,
    pub seed: u64,

    pub device: DeviceName,
    pub kernels: KernelsName,
    pub threads: usize,
    pub output: String,
    pub name: String,
    pub checkpoint_every: usize,
    pub save_steps: usize,
}
