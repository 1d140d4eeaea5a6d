//! ONNX files as modules: networks that PyTorch or others exported, to predict with and to train further.

mod attributes;
mod limits;
mod load;
mod module;
mod ops;
mod tensor;

pub use module::OnnxModule;

use super::proto;
use crate::{Error, Result};
use prost::Message;
use prost::bytes::Bytes;
use std::path::Path;

/// Reads a network from an ONNX file, and from the files beside it that hold its tensors when it names such.
///
/// Its weights are parameters under the names they have in the file: those of PyTorch, where the exporter kept them.
///
/// ```
/// let error = neurona::io::onnx::import("no/such/net.onnx").unwrap_err().to_string();
/// assert!(error.starts_with("cannot read no/such/net.onnx: "), "{error}");
/// ```
pub fn import(path: impl AsRef<Path>) -> Result<OnnxModule> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::File { action: "read", path: path.into(), source })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    read(bytes.into(), Some(folder)).map_err(|problem| Error::Format { path: path.into(), problem })
}

/// Reads a network from the bytes of an ONNX file, which must hold all of its tensors.
///
/// ```
/// use neurona::{io::onnx, models::mlp, nn::Module};
/// let bytes = onnx::export_bytes(&mlp(&[4, 3, 2])?, &onnx::Export::new([4]))?;
/// assert_eq!(onnx::import_bytes(&bytes)?.named_parameters()[0].0, "0.weight");
/// assert!(onnx::import_bytes(&bytes[..bytes.len() / 2]).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn import_bytes(bytes: &[u8]) -> Result<OnnxModule> {
    read(Bytes::copy_from_slice(bytes), None).map_err(|problem| Error::Format { path: "ONNX model".into(), problem })
}

fn read(bytes: Bytes, folder: Option<&Path>) -> Result<OnnxModule, String> {
    limits::check(&bytes)?;
    let model = proto::Model::decode(bytes).map_err(|e| format!("is not an ONNX file, or was damaged: {e}"))?;
    load::load(model, folder)
}

#[cfg(test)]
mod tests;
