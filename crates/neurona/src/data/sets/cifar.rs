//! CIFAR-10 and CIFAR-100.

use super::cifar_files::Files;
use super::{missing, names};
use crate::Result;
use crate::data::ImageSet;
use std::path::Path;

/// CIFAR-10: 50,000 training and 10,000 test images of ten classes, 32 by 32 pixels in colour.
///
/// The folder is that of its files, or one above it; binary (`data_batch_1.bin`) or pickled (`data_batch_1`), as
/// they were published or as torchvision leaves them.
///
/// ```no_run
/// let train = neurona::data::sets::Cifar10::train("./data")?;
/// assert_eq!((train.len(), train.size()), (50_000, [3, 32, 32]));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cifar10;

/// CIFAR-100: as many images as CIFAR-10 has, of a hundred classes, which also form twenty coarse ones.
#[derive(Clone, Copy, Debug)]
pub struct Cifar100;

/// Which of CIFAR-100's two labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CifarLabels {
    /// A hundred classes.
    #[default]
    Fine,
    /// Twenty classes of five fine ones each.
    Coarse,
}

impl Cifar10 {
    /// Mean of all training images by channel, from 0 to 1.
    pub const MEAN: [f32; 3] = [0.4914, 0.4822, 0.4465];
    /// Their deviation.
    pub const STD: [f32; 3] = [0.2470, 0.2435, 0.2616];

    /// The training images.
    pub fn train(folder: impl AsRef<Path>) -> Result<ImageSet> {
        CIFAR10.read(folder.as_ref(), CIFAR10_TRAIN)
    }

    /// The test images.
    pub fn test(folder: impl AsRef<Path>) -> Result<ImageSet> {
        CIFAR10.read(folder.as_ref(), &["test_batch"])
    }
}

impl Cifar100 {
    /// Mean of all training images by channel, from 0 to 1.
    pub const MEAN: [f32; 3] = [0.5071, 0.4865, 0.4409];
    /// Their deviation.
    pub const STD: [f32; 3] = [0.2673, 0.2564, 0.2762];

    /// The training images.
    pub fn train(folder: impl AsRef<Path>, labels: CifarLabels) -> Result<ImageSet> {
        cifar100(labels).read(folder.as_ref(), &["train"])
    }

    /// The test images.
    pub fn test(folder: impl AsRef<Path>, labels: CifarLabels) -> Result<ImageSet> {
        cifar100(labels).read(folder.as_ref(), &["test"])
    }
}

impl Files {
    fn read(&self, root: &Path, parts: &[&str]) -> Result<ImageSet> {
        let places = [format!("{}.bin", parts[0]), parts[0].to_string()];
        let folder = super::find(root, self.folders, &places).ok_or_else(|| missing(self.title, self.name, root))?;
        let classes = self.classes(&folder)?.unwrap_or_else(|| names(self.known_classes));
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for part in parts {
            self.part(&folder, part, classes.len(), &mut images, &mut labels)?;
        }
        ImageSet::new(images, labels, classes, [3, 32, 32])
    }
}

const CIFAR10_TRAIN: &[&str] = &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"];

pub(super) const CIFAR10: Files = Files {
    name: "cifar10",
    title: "CIFAR-10",
    folders: &["cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"],
    label: 0,
    label_bytes: 1,
    label_key: "labels",
    names_text: "batches.meta.txt",
    names_pickle: ("batches.meta", "label_names"),
    known_classes: &["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
};

pub(super) const fn cifar100(labels: CifarLabels) -> Files {
    let fine = matches!(labels, CifarLabels::Fine);
    Files {
        name: "cifar100",
        title: "CIFAR-100",
        folders: &["cifar-100-binary", "cifar-100-python", "cifar100"],
        // The coarse label stands first.
        label: if fine { 1 } else { 0 },
        label_bytes: 2,
        label_key: if fine { "fine_labels" } else { "coarse_labels" },
        names_text: if fine { "fine_label_names.txt" } else { "coarse_label_names.txt" },
        names_pickle: ("meta", if fine { "fine_label_names" } else { "coarse_label_names" }),
        known_classes: if fine { FINE } else { COARSE },
    }
}

#[rustfmt::skip]
const FINE: &[&str] = &[
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
];

#[rustfmt::skip]
const COARSE: &[&str] = &[
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
];
