//! Batches of a set, made ahead of time by worker threads.

mod crew;
mod epoch;
mod source;
#[cfg(test)]
mod tests;

pub use epoch::Epoch;
pub use source::BadImage;

use super::transforms::Transform;
use super::{Batch, Batches, Dataset, Mix};
use crate::{Error, Result};
use epoch::Job;
use source::Source;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a set in batches, as PyTorch's `DataLoader` does, with threads for workers.
///
/// Which images a batch holds and what random transforms make of them depends on the seed and the epoch's number
/// alone, never on the number of workers; so the batches of any epoch can be had again, from any one on.
///
/// ```
/// use neurona::data::{DataLoader, embedded};
/// let loader = DataLoader::new(embedded::fashion_mnist()?.train, 64)?.shuffle(true).workers(2).seed(7);
/// for batch in &loader {
///     let batch = batch?;
///     assert_eq!(batch.images.shape().to_string(), "[64, 1, 28, 28]");
///     break; // the workers end here
/// }
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug)]
pub struct DataLoader {
    source: Source,
    workers: usize,
    prefetch: usize,
    epochs: AtomicU64,
}

impl DataLoader {
    /// In order, without transforms, read in the caller's thread, until said otherwise below.
    pub fn new(dataset: impl Dataset + 'static, batch_size: usize) -> Result<Self> {
        let source = Source::new(Arc::new(dataset), batch_size)?;
        Ok(DataLoader { source, workers: 0, prefetch: 2, epochs: AtomicU64::new(0) })
    }

    /// What is done to every image.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.source.transform = Some(Arc::new(transform));
        self
    }

    /// Whether every epoch has an order of its own.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.source.shuffle = shuffle;
        self
    }

    /// Whether the images that do not fill a batch at the end are left out.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.source.drop_last = drop_last;
        self
    }

    /// How many threads make batches; with 0 the caller's thread makes each when it is asked for.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many batches each worker may be ahead. Small batches are made several at a time, and then it is more.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Where the order and the random transforms come from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.source.seed = seed;
        self
    }

    /// Leaves out images that cannot be read, instead of stopping; [`skipped`](DataLoader::skipped) names them. Their
    /// batches are smaller, and one without any image is left out.
    pub fn skip_bad_images(mut self) -> Self {
        self.source.skip = true;
        self
    }

    /// Mixes the images of a batch with each other; labels become probabilities.
    pub fn mix(mut self, mix: impl Into<Mix>) -> Self {
        self.source.mix = Some(mix.into());
        self
    }

    /// Gives images as bytes (u8, not normalised): a quarter of the memory to move to a GPU, where
    /// [`Trainer::augment`](crate::train::Trainer::augment) makes numbers of them. Transforms must leave bytes, and
    /// nothing is mixed here.
    ///
    /// ```
    /// use neurona::{DType, data::{DataLoader, embedded}};
    /// let loader = DataLoader::new(embedded::fashion_mnist()?.train, 64)?.bytes();
    /// assert_eq!(loader.iter().next().unwrap()?.images.dtype(), DType::U8);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn bytes(mut self) -> Self {
        self.source.bytes = true;
        self
    }

    /// The set it reads.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.source.dataset
    }

    /// The images that were left out so far, each once, by their place in the set.
    pub fn skipped(&self) -> Vec<BadImage> {
        self.source.bad().values().cloned().collect()
    }

    /// The next epoch: the first call gives epoch 0. `for batch in &loader` calls it.
    pub fn iter(&self) -> Epoch {
        self.start(self.epochs.fetch_add(1, Ordering::Relaxed), 0)
    }

    fn start(&self, epoch: u64, first: usize) -> Epoch {
        Epoch::start(Job::new(self.source.clone(), epoch), first, self.workers, self.prefetch)
    }
}

impl Batches for DataLoader {
    fn images(&self) -> usize {
        self.source.images()
    }

    fn batches(&self) -> usize {
        self.source.batches()
    }

    fn epoch(&self, epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>> {
        let batches = self.batches();
        if first > batches {
            return Err(Error::Argument(format!("there is no batch {first}; an epoch has {batches}")));
        }
        Ok(Box::new(self.start(epoch, first)))
    }
}

impl IntoIterator for &DataLoader {
    type Item = Result<Batch>;
    type IntoIter = Epoch;

    fn into_iter(self) -> Epoch {
        self.iter()
    }
}
