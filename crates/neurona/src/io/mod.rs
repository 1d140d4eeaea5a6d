//! What moves in and out: the tensors of a model by name, and the files that hold them.

pub(crate) mod atomic;
mod format;
pub mod inspect;
pub mod onnx;
pub mod pickle;
pub mod pth;
pub mod safetensors;
mod state_dict;
mod zip;

pub use format::{Format, load};
pub use state_dict::StateDict;
