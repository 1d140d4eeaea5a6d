//! MNIST and Fashion-MNIST.

use super::{idx, missing, names};
use crate::Result;
use crate::data::ImageSet;
use std::path::Path;

/// MNIST: 60,000 training and 10,000 test images of handwritten digits, 28 by 28 pixels, grey.
///
/// The folder is that of its four idx files, gzipped or not, or one above it.
///
/// ```no_run
/// let test = neurona::data::sets::Mnist::test("./data")?;
/// assert_eq!((test.len(), test.size()), (10_000, [1, 28, 28]));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Mnist;

/// Fashion-MNIST: MNIST's sizes with ten kinds of clothes.
#[derive(Clone, Copy, Debug)]
pub struct FashionMnist;

impl Mnist {
    /// Mean of all training images, from 0 to 1.
    pub const MEAN: [f32; 1] = [0.1307];
    /// Their deviation.
    pub const STD: [f32; 1] = [0.3081];

    /// The training images.
    pub fn train(folder: impl AsRef<Path>) -> Result<ImageSet> {
        DIGITS.read(folder.as_ref(), "train")
    }

    /// The test images.
    pub fn test(folder: impl AsRef<Path>) -> Result<ImageSet> {
        DIGITS.read(folder.as_ref(), "t10k")
    }
}

impl FashionMnist {
    /// Mean of all training images, from 0 to 1.
    pub const MEAN: [f32; 1] = [0.2860];
    /// Their deviation.
    pub const STD: [f32; 1] = [0.3530];

    /// The training images.
    pub fn train(folder: impl AsRef<Path>) -> Result<ImageSet> {
        FASHION.read(folder.as_ref(), "train")
    }

    /// The test images.
    pub fn test(folder: impl AsRef<Path>) -> Result<ImageSet> {
        FASHION.read(folder.as_ref(), "t10k")
    }
}

struct Files {
    name: &'static str,
    title: &'static str,
    folders: &'static [&'static str],
    classes: [&'static str; 10],
}

const DIGITS: Files = Files {
    name: "mnist",
    title: "MNIST",
    folders: &["mnist", "MNIST/raw", "MNIST", "raw"],
    classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
};

const FASHION: Files = Files {
    name: "fashion-mnist",
    title: "Fashion-MNIST",
    folders: &["fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "raw"],
    classes: super::embedded::CLASSES,
};

/// The ways people write `train-images-idx3-ubyte`, the plain file first: it is read faster.
pub(super) fn spellings(part: &str, what: &str, dims: u8) -> [String; 4] {
    let (dash, dot) = (format!("{part}-{what}-idx{dims}-ubyte"), format!("{part}-{what}.idx{dims}-ubyte"));
    [dash.clone(), format!("{dash}.gz"), dot.clone(), format!("{dot}.gz")]
}

impl Files {
    fn read(&self, root: &Path, part: &str) -> Result<ImageSet> {
        let (images, labels) = (spellings(part, "images", 3), spellings(part, "labels", 1));
        let folder = super::find(root, self.folders, &images).ok_or_else(|| missing(self.title, self.name, root))?;
        // The first spelling is named when there is none.
        let choose = |all: &[String; 4]| all.iter().map(|f| folder.join(f)).find(|f| f.is_file());
        let path = |all: &[String; 4]| choose(all).unwrap_or_else(|| folder.join(&all[1]));
        idx::image_set(path(&images), path(&labels), names(&self.classes))
    }
}
