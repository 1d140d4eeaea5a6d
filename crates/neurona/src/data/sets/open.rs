//! A set by its name, or by the folder it is in.

use super::cifar::{CIFAR10, Cifar10, Cifar100, CifarLabels, cifar100};
use super::image_folder::class_folders;
use super::mnist::{FashionMnist, Mnist, spellings};
use super::{ImageFolder, embedded};
use crate::data::{Dataset, ImageSet, stratified_split};
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// Which set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CIFAR-10.
    Cifar10,
    /// CIFAR-100 with its fine labels.
    Cifar100,
    /// MNIST.
    Mnist,
    /// Fashion-MNIST.
    FashionMnist,
    /// The part of Fashion-MNIST that is compiled in.
    Embedded,
    /// A folder of images.
    Folder,
}

/// The names that [`open`] knows.
const KNOWN: [(&str, Kind); 5] = [
    ("cifar10", Kind::Cifar10),
    ("cifar100", Kind::Cifar100),
    ("mnist", Kind::Mnist),
    ("fashion-mnist", Kind::FashionMnist),
    ("embedded", Kind::Embedded),
];

/// The names of the folder with images to validate with.
const VALIDATION: [&str; 3] = ["val", "valid", "validation"];

/// A set with its parts.
#[derive(Clone)]
pub struct Opened {
    /// `cifar10`, or the folder's own name.
    pub name: String,
    /// Which set.
    pub kind: Kind,
    /// To learn from.
    pub train: Arc<dyn Dataset>,
    /// To choose by, where the set has such a part.
    pub val: Option<Arc<dyn Dataset>>,
    /// To be judged by, where the set has such a part.
    pub test: Option<Arc<dyn Dataset>>,
    /// What to take off each channel (of pixels from 0 to 1): the set's own mean, ImageNet's for a folder.
    pub mean: Vec<f32>,
    /// What to divide each channel by.
    pub std: Vec<f32>,
    /// Channels, height and width, where all images have the same.
    pub size: Option<[usize; 3]>,
    /// Files in the folders that are not images by their ending.
    pub ignored: usize,
}

/// Opens a known set (cifar10, cifar100, mnist, fashion-mnist), which is looked for in `folder` (`./data` when there
/// is none); `embedded`; or the folder that this is the path of, with images in a folder for each class, in
/// train/val/test or not, or with the files of a known set.
///
/// ```
/// use neurona::data::{Dataset, sets};
/// let set = sets::open("embedded", None)?;
/// assert_eq!((set.train.len(), set.size), (5000, Some([1, 28, 28])));
/// let error = sets::open("cifer10", None).err().unwrap().to_string();
/// assert!(error.contains("did you mean cifar10?"));
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn open(what: impl AsRef<Path>, folder: Option<&Path>) -> Result<Opened> {
    let what = what.as_ref();
    let data = folder.unwrap_or(Path::new("data"));
    let name = what.to_string_lossy().to_lowercase().replace('_', "-");
    if let Some((name, kind)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return known(name, *kind, data);
    }
    if !what.is_dir() {
        return Err(unknown(what, &name));
    }
    let name = what.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let name = name.unwrap_or_else(|| "images".to_string());
    match recognised(what, &name) {
        Some(kind) => known(&name, kind, what),
        None => images(name, what),
    }
}

impl Opened {
    /// The same set; when it has nothing to be judged by, this share of every class is taken from the training images
    /// to validate with. Which ones depends on the seed alone.
    pub fn with_validation(mut self, share: f64, seed: u64) -> Result<Self> {
        if self.val.is_some() || self.test.is_some() {
            return Ok(self);
        }
        let mut parts = stratified_split(self.train.clone(), &[1.0 - share, share], seed)?.into_iter();
        if let (Some(train), Some(val)) = (parts.next(), parts.next()) {
            if val.is_empty() {
                let n = train.len();
                return Err(Error::Argument(format!("{n} images are too few to take {share} of them apart")));
            }
            self.train = Arc::new(train);
            self.val = Some(Arc::new(val));
        }
        Ok(self)
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |part: &Option<Arc<dyn Dataset>>| part.as_ref().map_or(0, |part| part.len());
        let (train, val, test) = (self.train.len(), count(&self.val), count(&self.test));
        write!(f, "{} ({:?}): {train} images to train, {val} to validate, {test} to test", self.name, self.kind)
    }
}

fn known(name: &str, kind: Kind, folder: &Path) -> Result<Opened> {
    type Constants<'a> = (&'a [f32], &'a [f32]);
    let of = |train: ImageSet, test: ImageSet, (mean, std): Constants<'_>| Opened {
        name: name.to_string(),
        kind,
        size: Some(train.size()),
        train: Arc::new(train),
        val: None,
        test: Some(Arc::new(test)),
        mean: mean.to_vec(),
        std: std.to_vec(),
        ignored: 0,
    };
    let fine = CifarLabels::Fine;
    let fashion: Constants<'_> = (&FashionMnist::MEAN, &FashionMnist::STD);
    Ok(match kind {
        Kind::Cifar10 => of(Cifar10::train(folder)?, Cifar10::test(folder)?, (&Cifar10::MEAN, &Cifar10::STD)),
        Kind::Cifar100 => {
            of(Cifar100::train(folder, fine)?, Cifar100::test(folder, fine)?, (&Cifar100::MEAN, &Cifar100::STD))
        }
        Kind::Mnist => of(Mnist::train(folder)?, Mnist::test(folder)?, (&Mnist::MEAN, &Mnist::STD)),
        Kind::FashionMnist => of(FashionMnist::train(folder)?, FashionMnist::test(folder)?, fashion),
        Kind::Embedded => {
            let set = embedded::fashion_mnist()?;
            of(set.train, set.test, fashion)
        }
        Kind::Folder => images(name.to_string(), folder)?,
    })
}

/// The known set whose files are in this very folder.
fn recognised(folder: &Path, name: &str) -> Option<Kind> {
    let idx = || spellings("train", "images", 3).iter().any(|file| folder.join(file).is_file());
    if CIFAR10.has(folder, "data_batch_1") {
        Some(Kind::Cifar10)
    } else if cifar100(CifarLabels::Fine).has(folder, "train") {
        Some(Kind::Cifar100)
    } else if idx() {
        let fashion = name.to_lowercase().contains("fashion");
        Some(if fashion { Kind::FashionMnist } else { Kind::Mnist })
    } else {
        None
    }
}

/// A folder of images, in train/val/test or not.
fn images(name: String, root: &Path) -> Result<Opened> {
    let folders = class_folders(root)?;
    let is_part = |name: &str| name == "train" || name == "test" || VALIDATION.contains(&name);
    // Every folder must be a part: "train" among cars and ships is a class.
    let parted = folders.iter().any(|f| f == "train") && folders.iter().all(|f| is_part(&f.to_string_lossy()));
    let train = ImageFolder::open(if parted { root.join("train") } else { root.to_path_buf() })?;
    let mut ignored = train.ignored();
    let mut part = |names: &[&str]| -> Result<Option<Arc<dyn Dataset>>> {
        let Some(name) = names.iter().find(|name| parted && root.join(name).is_dir()) else { return Ok(None) };
        let part = ImageFolder::with_classes(root.join(name), train.classes())?;
        ignored += part.ignored();
        Ok(Some(Arc::new(part)))
    };
    let (val, test) = (part(&VALIDATION)?, part(&["test"])?);
    Ok(Opened {
        name,
        kind: Kind::Folder,
        train: Arc::new(train),
        val,
        test,
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
        size: None,
        ignored,
    })
}

fn unknown(what: &Path, name: &str) -> Error {
    let near = KNOWN.iter().map(|(known, _)| (distance(name, known), *known)).min();
    let hint = near.filter(|(far, _)| *far <= 2).map(|(_, known)| format!("; did you mean {known}?"));
    let names = KNOWN.map(|(name, _)| name).join(", ");
    let what = what.display();
    Error::Argument(format!("'{what}' is no folder and no known set ({names}){}", hint.unwrap_or_default()))
}

/// How many letters must be changed, put in or taken out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}
