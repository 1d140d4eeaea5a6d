//! Images and labels to train on.

pub mod embedded;
pub mod idx;
mod image_set;

pub use image_set::{ImageSet, Split};
