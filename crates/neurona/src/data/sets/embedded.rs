//! Images that are part of the library, so that training can be tried without a download.

use super::idx;
use crate::Result;
use crate::data::{ImageSet, Split};
use std::path::Path;

/// What Fashion-MNIST's labels mean.
pub(super) const CLASSES: [&str; 10] =
    ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];

/// Mean and deviation of all 60,000 training images, which people normalise with.
const MEAN: f32 = 0.2860;
const DEVIATION: f32 = 0.3530;

macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../assets/fashion-mnist/", $name)).as_slice())
    };
}

/// A part of Fashion-MNIST: the first 500 training and 100 test images of each of its ten classes, grey,
/// 28 by 28 pixels. The images are Zalando's, under the MIT licence.
///
/// ```
/// let set = neurona::data::embedded::fashion_mnist()?;
/// assert_eq!((set.train.len(), set.test.len()), (5000, 1000));
/// assert_eq!(set.train.size(), [1, 28, 28]);
/// assert_eq!(set.train.classes()[9], "ankle boot");
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn fashion_mnist() -> Result<Split> {
    Ok(Split {
        train: part(asset!("train-images.idx3.gz"), asset!("train-labels.idx1.gz"))?,
        test: part(asset!("test-images.idx3.gz"), asset!("test-labels.idx1.gz"))?,
    })
}

fn part(images: (&str, &[u8]), labels: (&str, &[u8])) -> Result<ImageSet> {
    let (images_name, labels_name) = (Path::new(images.0), Path::new(labels.0));
    let classes = CLASSES.iter().map(|c| c.to_string()).collect();
    let (images, labels) = (idx::parse(images.1, images_name)?, idx::parse(labels.1, labels_name)?);
    idx::assemble(images, labels, classes, images_name, labels_name)?.normalised(&[MEAN], &[DEVIATION])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum that `tools/embed_fashion_mnist.py` prints covers the header too.
    fn crc(header: &[u32], body: &[u8]) -> u32 {
        let mut sum = flate2::Crc::new();
        header.iter().for_each(|word| sum.update(&word.to_be_bytes()));
        sum.update(body);
        sum.sum()
    }

    #[test]
    fn is_whole_and_balanced() {
        let set = fashion_mnist().unwrap();
        for (part, each, images, labels) in
            [(&set.train, 500, 0x48f9408e, 0xa96faff5), (&set.test, 100, 0x311412f5, 0x5b6c38ef)]
        {
            let n = 10 * each as u32;
            assert_eq!(part.len(), 10 * each);
            for class in 0..10 {
                assert_eq!(part.labels().iter().filter(|l| **l == class).count(), each);
            }
            let bytes: Vec<u8> = part.labels().iter().map(|l| *l as u8).collect();
            assert_eq!(crc(&[0x803, n, 28, 28], part.images()), images);
            assert_eq!(crc(&[0x801, n], &bytes), labels);
        }
    }

    #[test]
    fn batches_are_normalised() {
        let set = fashion_mnist().unwrap();
        let all: Vec<usize> = (0..set.train.len()).collect();
        let pixels = set.train.batch(&all).unwrap().0.to_vec::<f32>().unwrap();
        let n = pixels.len() as f64;
        let mean = pixels.iter().map(|p| *p as f64).sum::<f64>() / n;
        let variance = pixels.iter().map(|p| (*p as f64 - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
