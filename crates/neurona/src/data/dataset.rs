//! What a loader reads from.

use super::Image;
use crate::Result;
use std::sync::Arc;

/// Images with a class each, in a fixed order. Several threads read at once.
pub trait Dataset: Send + Sync {
    /// How many images.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the classes; a label is a place in this list.
    fn classes(&self) -> &[String];

    /// Every image's label, known without reading the images: splits and class weights need them all.
    fn labels(&self) -> &[i64];

    /// Reads an image into memory that is used again.
    fn read(&self, index: usize, image: &mut Image) -> Result<()>;

    /// What to call an image in a message: its file, or its place in the set.
    fn describe(&self, index: usize) -> String {
        format!("image {index}")
    }
}

/// A set behind a pointer is a set.
macro_rules! pointers { ($($pointer:ident),*) => { $(
impl<D: Dataset + ?Sized> Dataset for $pointer<D> {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn classes(&self) -> &[String] {
        (**self).classes()
    }
    fn labels(&self) -> &[i64] {
        (**self).labels()
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        (**self).read(index, image)
    }
    fn describe(&self, index: usize) -> String {
        (**self).describe(index)
    }
}
)* } }
pointers!(Arc, Box);
