//! Images and labels to train on.

mod batch;
mod dataset;
pub mod download;
mod draws;
pub mod embedded;
pub mod idx;
mod image;
mod image_set;
pub mod transforms;

pub use batch::{Batch, Batches};
pub use dataset::Dataset;
pub use draws::Draws;
pub use image::Image;
pub use image_set::{ImageSet, Split};
