//! Images and labels to train on.

mod augment;
mod batch;
mod dataset;
mod decode;
pub mod download;
mod draws;
mod image;
mod image_set;
mod loader;
mod mix;
pub mod sets;
mod split;
mod tensor_batches;
pub mod transforms;
mod values;

pub use augment::Augment;
pub use batch::{Batch, Batches};
pub use dataset::Dataset;
pub use decode::MAX_PIXELS;
pub use draws::Draws;
pub use image::Image;
pub use image_set::{ImageSet, Split};
pub use loader::{BadImage, DataLoader, Epoch};
pub use mix::{CutMix, Mix, MixUp};
pub use sets::{embedded, idx};
pub use split::{Subset, stratified_split};
pub use tensor_batches::TensorBatches;
