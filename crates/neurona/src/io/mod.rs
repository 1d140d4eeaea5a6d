//! What moves in and out: the tensors of a model by name, and the files that hold them.

pub(crate) mod atomic;
pub mod onnx;
pub mod pickle;
pub mod safetensors;
mod state_dict;

pub use state_dict::StateDict;
