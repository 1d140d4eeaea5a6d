//! From a data set to batches: what training and using a model have in common.

use crate::config::{Augment, Facts, Settings};
use crate::failure::{Failure, Outcome};
use crate::together::Together;
use neurona::data::sets::{self, Kind, Opened};
use neurona::data::transforms::{
    CenterCrop, Compose, Grayscale, Normalize, RandAugment, RandomCrop, RandomHorizontalFlip, RandomResizedCrop,
    Resize, ToTensor, TrivialAugmentWide,
};
use neurona::data::{Augment as Prepare, DataLoader, Dataset, Image, download, stratified_split};
use neurona::models::{Card, Resize as Fit};
use std::path::Path;
use std::sync::Arc;

/// Images that are looked at to learn how large they are.
const LOOKED_AT: usize = 24;
/// From this size on images are photographs: the middle of a slightly larger one is used.
const PHOTOGRAPHS: usize = 96;
/// Images to a batch when nothing is learned.
pub const EVAL_BATCH: usize = 128;

/// Data by its name or folder.
pub fn open(data: &str) -> Outcome<Opened> {
    let folder = download::data_folder().ok();
    let opened = sets::open(Path::new(data), folder.as_deref())?;
    let classes = opened.train.classes().len();
    match classes {
        0 | 1 => Err(Failure::Told(format!(
            "{data}: has {classes} class; a classifier needs two or more: one folder of images for each class"
        ))),
        _ => Ok(opened),
    }
}

/// Data as a run's settings name it: by a path that holds in any working folder.
pub fn lasting_name(data: &str) -> String {
    let is_known = |name: &str| name == data.to_lowercase().replace('_', "-");
    let known = download::sets().iter().any(|set| is_known(set.name)) || is_known("embedded");
    if known { data.to_string() } else { absolute(data) }
}

/// A path from the root; itself, where the system does not know the working folder.
pub fn absolute(path: &str) -> String {
    let absolute = std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_string())
}

/// What the automatic choices are made from.
pub fn facts(opened: &Opened, parts: &Parts) -> Outcome<Facts> {
    let labels = opened.train.labels();
    let mut counts = vec![0usize; opened.train.classes().len()];
    for label in labels {
        if let Some(count) = usize::try_from(*label).ok().and_then(|class| counts.get_mut(class)) {
            *count += 1;
        }
    }
    let present = || counts.iter().filter(|count| **count > 0);
    let (most, fewest) = (present().max().copied().unwrap_or(1), present().min().copied().unwrap_or(1));
    let size = match opened.size {
        Some(size) => size,
        None => typical_size(opened)?,
    };
    Ok(Facts {
        name: opened.name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect(),
        images: parts.train.len(),
        has_val: opened.val.is_some(),
        size,
        one_size: opened.size.is_some(),
        imbalance: most as f64 / fewest.max(1) as f64,
        has_sides: opened.kind == Kind::Mnist,
    })
}

/// The size in the middle of some images'. Those that cannot be read are for the loader to report.
fn typical_size(opened: &Opened) -> Outcome<[usize; 3]> {
    let n = opened.train.len();
    let mut image = Image::default();
    let (mut sizes, mut problem) = (Vec::new(), None);
    for i in 0..n.min(LOOKED_AT) {
        match opened.train.read(i * n / n.min(LOOKED_AT), &mut image) {
            Ok(()) => sizes.push((image.height().min(image.width()), image.height(), image.width())),
            Err(e) => problem = problem.or(Some(e)),
        }
    }
    sizes.sort_unstable();
    match (sizes.get(sizes.len() / 2), problem) {
        (Some((_, height, width)), _) => Ok([opened.mean.len(), *height, *width]),
        (None, Some(e)) => Err(e.into()),
        (None, None) => Err(Failure::Told("the data has no images".to_string())),
    }
}

/// Training, validation and test images of a run.
pub struct Parts {
    /// To learn from.
    pub train: Arc<dyn Dataset>,
    /// To choose by.
    pub val: Arc<dyn Dataset>,
    /// To be judged by, once, at the end.
    pub test: Option<Arc<dyn Dataset>>,
}

impl Parts {
    /// The parts that the data has; validation is taken from training where there is none.
    pub fn new(opened: &Opened, asked: &Settings) -> Outcome<Self> {
        let (train, test) = (opened.train.clone(), opened.test.clone());
        if let Some(val) = &opened.val {
            return Ok(Parts { train, val: val.clone(), test });
        }
        let share = asked.val_split.unwrap_or(Settings::VAL_SPLIT);
        let mut parts = stratified_split(train, &[1.0 - share, share], asked.seed.unwrap_or(0))?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(train), Some(val)) if !train.is_empty() && !val.is_empty() => {
                Ok(Parts { train: Arc::new(train), val: Arc::new(val), test })
            }
            _ => Err(Failure::Told(format!(
                "{} images are too few to keep {share} of them for validation: add images, or give the data a folder 'val'",
                opened.train.len()
            ))),
        }
    }

    /// The images that the final figures are measured on, and what they are called.
    pub fn judged_by(&self) -> (&'static str, &Arc<dyn Dataset>) {
        match &self.test {
            Some(test) => ("test", test),
            None => ("val", &self.val),
        }
    }
}

/// All images there are.
pub fn everything(opened: &Opened) -> Arc<dyn Dataset> {
    let parts: Vec<_> =
        [Some(&opened.train), opened.val.as_ref(), opened.test.as_ref()].into_iter().flatten().collect();
    match parts[..] {
        [only] => only.clone(),
        _ => Arc::new(Together::new(parts.into_iter().cloned().collect())),
    }
}

/// How images of this data are brought to this size.
pub fn fit(opened: &Opened, size: usize) -> Fit {
    match opened.size {
        Some(_) => Fit::Exact,
        None if size >= PHOTOGRAPHS => Fit::ShorterSide(size * 8 / 7),
        None => Fit::ShorterSide(size),
    }
}

/// What every image goes through before the network sees it.
pub fn prepare(card: &Card) -> Outcome<Compose> {
    normalized(sized(card)?, card)
}

/// Brings images to the network's size and colours; they are still bytes.
fn sized(card: &Card) -> Outcome<Compose> {
    let (height, width) = (card.spec.height, card.spec.width);
    let steps = match card.resize {
        Fit::Exact => Compose::new().add(Resize::new((height, width))?),
        Fit::ShorterSide(side) => Compose::new().add(Resize::new(side)?).add(CenterCrop::new((height, width))?),
    };
    // Files are read in colour, whatever they hold.
    Ok(if card.spec.channels == 1 { steps.add(Grayscale::new(1)?) } else { steps })
}

fn normalized(steps: Compose, card: &Card) -> Outcome<Compose> {
    let (mean, std) = statistics(card);
    Ok(steps.add(ToTensor).add(Normalize::new(&mean, &std)?))
}

fn statistics(card: &Card) -> (Vec<f32>, Vec<f32>) {
    let floats = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
    (floats(&card.mean), floats(&card.std))
}

/// How training images are varied: first bytes, in the loader's workers, then by what a device does as well.
pub struct Variation {
    steps: Compose,
    padding: usize,
    mirrored: bool,
}

impl Variation {
    /// As the settings ask.
    pub fn new(card: &Card, augment: Augment) -> Outcome<Self> {
        let side = card.spec.height;
        let crops = matches!(augment, Augment::Crop | Augment::Basic | Augment::Trivial | Augment::Randaugment);
        let mirrored = matches!(augment, Augment::Flip | Augment::Basic | Augment::Trivial | Augment::Randaugment);
        let photographs = matches!(card.resize, Fit::ShorterSide(_)) && side >= PHOTOGRAPHS;
        let steps = match crops && photographs {
            // A part of at least a third: smaller ones often miss what the image is of.
            true => Compose::new().add(RandomResizedCrop::new(side)?.scale(0.35, 1.0)?),
            false => sized(card)?,
        };
        let padding = if crops && !photographs { (side / 14).max(1) } else { 0 };
        let variation = Variation { steps, padding, mirrored };
        // These come after crop and mirror, so the workers do all three.
        Ok(match augment {
            Augment::Trivial => Self::only(variation.moved(card)?.add(TrivialAugmentWide::default())),
            Augment::Randaugment => Self::only(variation.moved(card)?.add(RandAugment::default())),
            Augment::None | Augment::Flip | Augment::Crop | Augment::Basic => variation,
        })
    }

    fn only(steps: Compose) -> Self {
        Variation { steps, padding: 0, mirrored: false }
    }

    /// Everything up to the last byte.
    fn moved(self, card: &Card) -> Outcome<Compose> {
        let mut steps = self.steps;
        if self.padding > 0 {
            steps = steps.add(RandomCrop::new((card.spec.height, card.spec.width))?.padding(self.padding));
        }
        Ok(if self.mirrored { steps.add(RandomHorizontalFlip::new(0.5)?) } else { steps })
    }

    /// All of it in the loader's workers.
    pub fn in_workers(self, card: &Card) -> Outcome<Compose> {
        normalized(self.moved(card)?, card)
    }

    /// What the workers do to bytes, and what is then part of the training step, wherever it runs.
    pub fn in_step(self, card: &Card, mixup: f64) -> Outcome<(Compose, Prepare)> {
        let (mean, std) = statistics(card);
        let mut rest = Prepare::new().normalize(&mean, &std)?.random_crop(self.padding);
        if self.mirrored {
            rest = rest.horizontal_flip(0.5)?;
        }
        if mixup > 0.0 {
            rest = rest.mixup(mixup, card.classes.len())?;
        }
        Ok((self.steps, rest))
    }
}

/// Batches of images that are only looked at.
pub fn plain_loader(data: &Arc<dyn Dataset>, card: &Card, workers: usize, skip: bool) -> Outcome<DataLoader> {
    let loader = DataLoader::new(data.clone(), EVAL_BATCH)?.transform(prepare(card)?).workers(workers);
    Ok(if skip { loader.skip_bad_images() } else { loader })
}

/// The same for a network that is given bytes.
pub fn bytes_loader(data: &Arc<dyn Dataset>, card: &Card, workers: usize, skip: bool) -> Outcome<DataLoader> {
    Ok(plain_loader(data, card, workers, skip)?.transform(sized(card)?).bytes())
}
