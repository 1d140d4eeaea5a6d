//! Images and labels to train on.

mod batch;
mod dataset;
mod decode;
mod draws;
pub mod embedded;
pub mod idx;
mod image;
mod image_set;
pub mod transforms;
mod values;

pub use batch::{Batch, Batches};
pub use dataset::Dataset;
pub use decode::MAX_PIXELS;
pub use draws::Draws;
pub use image::Image;
pub use image_set::{ImageSet, Split};
