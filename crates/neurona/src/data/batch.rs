//! What a training step is given.

use crate::{Result, Tensor};

/// Images that go through a network together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `[n, c, h, w]`.
    pub images: Tensor,
    /// `[n]` class numbers as i64; once images are mixed, `[n, classes]` probabilities as f32.
    pub labels: Tensor,
    /// Where in the set each image stands.
    pub indices: Vec<usize>,
    /// Its place in the epoch; the first is 0. A loader that leaves bad images out may leave a number out too.
    pub number: usize,
}

/// Something that gives the batches of an epoch: a loader, or tensors that are in memory already.
///
/// The batches of an epoch are a function of its number alone, so that a run that was interrupted goes on with the
/// very batches it would have seen.
pub trait Batches: Send + Sync {
    /// Images of an epoch.
    fn images(&self) -> usize;

    /// Batches of an epoch.
    fn batches(&self) -> usize;

    /// The batches of an epoch (the first is 0), beginning with the one at this place.
    fn epoch(&self, epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>>;
}

impl<B: Batches + ?Sized> Batches for &B {
    fn images(&self) -> usize {
        (**self).images()
    }
    fn batches(&self) -> usize {
        (**self).batches()
    }
    fn epoch(&self, epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>> {
        (**self).epoch(epoch, first)
    }
}
