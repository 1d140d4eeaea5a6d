//! How one batch is made.

use crate::data::split::shuffle;
use crate::data::transforms::Transform;
use crate::data::{Batch, Dataset, Draws, Image, Mix};
use crate::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// An image that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage {
    /// Its file, or its place in the set.
    pub name: String,
    /// What is wrong.
    pub problem: String,
}

/// All that decides what is in a batch; cheap to copy.
#[derive(Clone)]
pub(super) struct Source {
    pub dataset: Arc<dyn Dataset>,
    pub transform: Option<Arc<dyn Transform>>,
    pub mix: Option<Mix>,
    /// Whether images stay bytes.
    pub bytes: bool,
    pub batch_size: usize,
    pub shuffle: bool,
    pub drop_last: bool,
    pub skip: bool,
    pub seed: u64,
    skipped: Arc<Mutex<BTreeMap<usize, BadImage>>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Source { transform, mix, batch_size, shuffle, drop_last, skip, seed, .. } = self;
        write!(f, "{} images by {batch_size}, shuffle {shuffle}, drop_last {drop_last}, ", self.dataset.len())?;
        write!(f, "skip {skip}, seed {seed}, transform {transform:?}, mix {mix:?}")
    }
}

/// Draws that belong to no image: their keys are apart from those of images, which come from the seed itself.
const ORDER: u64 = 0x6f72_6465_7221;
const MIX: u64 = 0x006d_6978_696e_6721;

/// Why an image could not be had: whoever wrote the code, or whoever made the image.
enum Failure {
    Panic(Error),
    Bad(Error),
}

impl Source {
    pub fn new(dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::Argument("a batch needs at least one image".to_string()));
        }
        let (n, labels, classes) = (dataset.len(), dataset.labels(), dataset.classes().len());
        if n == 0 {
            return Err(Error::Argument("the set has no images".to_string()));
        }
        if labels.len() != n {
            return Err(Error::Argument(format!("the set has {n} images but {} labels", labels.len())));
        }
        if let Some(i) = labels.iter().position(|l| !(0..classes as i64).contains(l)) {
            let (name, label) = (dataset.describe(i), labels[i]);
            return Err(Error::Argument(format!("{name}: label {label} is not one of {classes} classes from 0 on")));
        }
        Ok(Source {
            dataset,
            transform: None,
            mix: None,
            bytes: false,
            batch_size,
            shuffle: false,
            drop_last: false,
            skip: false,
            seed: 0,
            skipped: Arc::default(),
        })
    }

    pub fn batches(&self) -> usize {
        let n = self.dataset.len();
        if self.drop_last { n / self.batch_size } else { n.div_ceil(self.batch_size) }
    }

    pub fn images(&self) -> usize {
        let n = self.dataset.len();
        if self.drop_last { n / self.batch_size * self.batch_size } else { n }
    }

    pub fn bad(&self) -> MutexGuard<'_, BTreeMap<usize, BadImage>> {
        self.skipped.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// All images in the order of an epoch.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.dataset.len()).collect();
        if self.shuffle {
            shuffle(&mut order, &mut Draws::new(self.seed ^ ORDER, epoch, 0));
        }
        order
    }

    /// The batch of these images. None when all were bad, or when `stop` says that nobody wants it any more.
    pub fn batch(
        &self,
        epoch: u64,
        number: usize,
        places: &[usize],
        image: &mut Image,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Batch>> {
        if self.bytes && self.mix.is_some() {
            let problem = "bytes are not mixed by the loader; data::Augment mixes them on the device";
            return Err(Error::Argument(problem.into()));
        }
        let mut rest = places.iter().copied();
        let Some(first) = self.next(&mut rest, epoch, image, stop)? else { return Ok(None) };
        // The first image tells the size of all: room for the batch is taken once, and written where it stays.
        let size = [image.channels(), image.height(), image.width()];
        let (len, [channels, height, width]) = (size.iter().product::<usize>(), size);
        let mut indices = vec![first];
        let mut more = |image: &mut Image| -> Result<Option<usize>> {
            let Some(index) = self.next(&mut rest, epoch, image, stop)? else { return Ok(None) };
            let own = [image.channels(), image.height(), image.width()];
            match own == size {
                true => Ok(Some(index)),
                false => Err(self.unequal([(first, size), (index, own)])),
            }
        };
        let shape = [places.len(), channels, height, width];
        let (images, probabilities) = if self.bytes {
            let fill = |room: &mut [u8]| fill(room, len, image, &mut indices, Image::write_bytes_to, &mut more);
            (Tensor::filled(shape, fill)?.0, None)
        } else {
            Tensor::filled(shape, |room: &mut [f32]| {
                fill(room, len, image, &mut indices, Image::write_to, &mut more)?;
                self.mixed(&mut room[..indices.len() * len], [height, width], &indices, epoch, number)
            })?
        };
        if stop() {
            return Ok(None);
        }
        let n = indices.len();
        let images = if n == places.len() { images } else { shortened(&images, [n, channels, height, width])? };
        let labels = match probabilities {
            Some(labels) => labels,
            None => Tensor::from_vec(self.labels(&indices), [n])?,
        };
        Ok(Some(Batch { images, labels, indices, number }))
    }

    fn labels(&self, indices: &[usize]) -> Vec<i64> {
        indices.iter().map(|&i| self.dataset.labels()[i]).collect()
    }

    /// The labels as probabilities, when images are to be mixed.
    fn mixed(
        &self,
        pixels: &mut [f32],
        size: [usize; 2],
        indices: &[usize],
        epoch: u64,
        number: usize,
    ) -> Result<Option<Tensor>> {
        let Some(mix) = &self.mix else { return Ok(None) };
        let mut draws = Draws::new(self.seed ^ MIX, epoch, number as u64);
        let shape = [indices.len(), self.dataset.classes().len()];
        let labels = self.labels(indices);
        let fill = |room: &mut [f32]| {
            mix.apply(pixels, size, &labels, room, &mut draws);
            Ok(())
        };
        Ok(Some(Tensor::filled(shape, fill)?.0))
    }

    /// The next image that can be read.
    fn next(
        &self,
        rest: &mut impl Iterator<Item = usize>,
        epoch: u64,
        image: &mut Image,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<usize>> {
        for index in rest {
            if stop() {
                break;
            }
            match self.read(index, epoch, image) {
                Ok(()) => return Ok(Some(index)),
                Err(Failure::Bad(e)) if self.skip => {
                    let bad = BadImage { name: self.dataset.describe(index), problem: e.to_string() };
                    tracing::warn!(image = bad.name, problem = bad.problem, "left out an image that cannot be read");
                    self.bad().insert(index, bad);
                }
                Err(Failure::Bad(e) | Failure::Panic(e)) => return Err(e),
            }
        }
        Ok(None)
    }

    /// Reads and transforms an image. A panic of somebody's set or transform is an error of its own, which is never
    /// skipped: it says that code is wrong, not an image.
    fn read(&self, index: usize, epoch: u64, image: &mut Image) -> Result<(), Failure> {
        let attempt = || {
            self.dataset.read(index, image)?;
            match &self.transform {
                Some(transform) => transform.apply(image, &mut Draws::new(self.seed, epoch, index as u64)),
                None => Ok(()),
            }
        };
        // What is half-written after a panic is the image alone, and the next read overwrites it.
        match catch_unwind(AssertUnwindSafe(attempt)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e @ (Error::File { .. } | Error::Format { .. }))) => Err(Failure::Bad(e)),
            Ok(Err(e)) => Err(Failure::Bad(Error::Argument(format!("{}: {e}", self.dataset.describe(index))))),
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().map(|s| s.to_string());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                let name = self.dataset.describe(index);
                Err(Failure::Panic(Error::Argument(format!("{name}: the code that reads it panicked: {said}"))))
            }
        }
    }

    fn unequal(&self, images: [(usize, [usize; 3]); 2]) -> Error {
        let [a, b] = images.map(|(index, [channels, height, width])| {
            let colour = if channels == 1 { "grey" } else { "in colour" };
            format!("{} is {width} x {height} pixels {colour}", self.dataset.describe(index))
        });
        Error::Argument(format!(
            "{a}, but {b}: the images of a batch need one size; add a Resize or a crop to the transforms \
             (and Grayscale where grey and colour meet)"
        ))
    }
}

/// Writes the image at hand and all that follow, and notes their places; the first is noted already.
fn fill<T>(
    room: &mut [T],
    len: usize,
    image: &mut Image,
    indices: &mut Vec<usize>,
    write: fn(&Image, &mut [T]) -> Result<()>,
    more: &mut dyn FnMut(&mut Image) -> Result<Option<usize>>,
) -> Result<()> {
    write(image, &mut room[..len])?;
    while let Some(index) = more(image)? {
        write(image, &mut room[indices.len() * len..][..len])?;
        indices.push(index);
    }
    Ok(())
}

/// The first images of a batch that was not filled.
fn shortened(images: &Tensor, shape: [usize; 4]) -> Result<Tensor> {
    let count = shape.iter().product();
    match images.dtype() {
        DType::U8 => Tensor::from_slice(&images.to_vec::<u8>()?[..count], shape),
        _ => Tensor::from_slice(&images.to_vec::<f32>()?[..count], shape),
    }
}
