//! What a weights file holds, without loading it.

mod onnx;

use super::{Format, format, pth, safetensors};
use crate::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// What a weights file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Its kind.
    pub format: Format,
    /// Its tensors, in the file's order.
    pub tensors: Vec<TensorInfo>,
    /// Notes that travel with the tensors, by key.
    pub metadata: Vec<(String, String)>,
    /// What else is worth knowing, in words.
    pub notes: Vec<String>,
}

/// A tensor as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// The type of its elements in the file, as in `f32` and `i32`.
    pub dtype: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: u64,
}

/// Tells which kind of file it is, by its contents.
pub fn format(path: impl AsRef<Path>) -> Result<Format> {
    let path = path.as_ref();
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    Ok(format::of(&mut File::open(path).map_err(failed)?).map_err(failed)?.0)
}

/// Describes a weights file; only its header is read.
///
/// ```
/// use neurona::{Tensor, io::{self, StateDict}};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-inspect-{}.pth", std::process::id()));
/// let state: StateDict = [("w", Tensor::from([[1.0f32, 2.0]]))].into_iter().collect();
/// io::pth::save(&path, &state)?;
/// let found = io::inspect::inspect(&path)?;
/// assert_eq!((found.tensors[0].name.as_str(), &found.tensors[0].shape[..]), ("w", &[1, 2][..]));
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let path = path.as_ref();
    read(File::open(path).map_err(|source| Error::File { action: "read", path: path.into(), source })?, path)
}

/// As [`inspect()`], from anything that can be read; `name` is for error messages.
pub fn read(mut from: impl Read + Seek, name: &Path) -> Result<Inspection> {
    let failed = |source| Error::File { action: "read", path: name.into(), source };
    match format::of(&mut from).map_err(failed)?.0 {
        Format::Safetensors => safetensors::describe(from, name),
        Format::Pth | Format::OldPth => pth::describe(from, name),
        Format::Onnx => onnx::describe(from, name),
        other @ Format::Unknown => Err(format::unknown(other, name)),
    }
}
