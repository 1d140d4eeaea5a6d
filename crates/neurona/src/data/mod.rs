//! Images and labels to train on.

mod batch;
mod dataset;
mod draws;
pub mod embedded;
pub mod idx;
mod image;
mod image_set;
mod tensor_batches;
pub mod transforms;

pub use batch::{Batch, Batches};
pub use dataset::Dataset;
pub use draws::Draws;
pub use image::Image;
pub use image_set::{ImageSet, Split};
pub use tensor_batches::TensorBatches;
