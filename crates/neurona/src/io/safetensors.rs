//! Safetensors files, which PyTorch, JAX and others read and write too.

use super::{Format, StateDict, atomic, inspect};
use crate::cpu::storage::Storage;
use crate::graph::engine;
use crate::tensor::Meta;
use crate::{DType, Error, Result, Tensor};
use ::safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes before the header: its length.
const PREFIX: u64 = 8;
/// Headers beyond this are refused before they are read, as the format's own library does.
pub(super) const LARGEST_HEADER: u64 = 100_000_000;

/// Writes tensors and notes to a file. It appears whole or not at all: it is written beside the target under
/// another name, brought to the disk, then renamed.
///
/// ```
/// use neurona::{Tensor, io::{StateDict, safetensors}};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-save-{}.safetensors", std::process::id()));
/// let state: StateDict = [("w", Tensor::from([1.0f32, 2.0]))].into_iter().collect();
/// safetensors::save(&path, &state, &[("epoch".to_string(), "3".to_string())].into())?;
/// let (state, notes) = safetensors::load_with_metadata(&path)?;
/// assert_eq!((state.len(), notes["epoch"].as_str()), (1, "3"));
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn save(path: impl AsRef<Path>, state: &StateDict, metadata: &BTreeMap<String, String>) -> Result<()> {
    let path = path.as_ref();
    if let Some(name) = state.names().find(|name| *name == "__metadata__") {
        return Err(Error::Argument(format!("a tensor cannot be named {name}: the file keeps its notes there")));
    }
    // Readers that map the file need every tensor aligned: wide elements go first.
    let mut entries: Vec<(&str, &Tensor)> = state.iter().collect();
    entries.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
    }
    let mut values = Vec::with_capacity(entries.len());
    let mut end = 0;
    for (name, tensor) in &entries {
        let meta = tensor.meta();
        let start = end;
        end += meta.bytes();
        let info = TensorInfo { dtype: to_file(meta.dtype), shape: meta.shape.to_vec(), data_offsets: (start, end) };
        let info = serde_json::to_value(info).map_err(|e| Error::Argument(format!("cannot describe {name}: {e}")))?;
        header.insert(name.to_string(), info);
        values.push((engine::value(tensor)?, meta.bytes()));
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(PREFIX as usize), b' ');
    atomic::write(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        values.iter().try_for_each(|(storage, bytes)| file.write_all(&storage.read::<u8>()[..*bytes]))
    })
}

/// Reads the tensors of a file.
///
/// ```
/// let error = neurona::io::safetensors::load("no/such/file.safetensors").unwrap_err().to_string();
/// assert!(error.starts_with("cannot read no/such/file.safetensors: "), "{error}");
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    load_with_metadata(path).map(|(state, _)| state)
}

/// Reads the tensors of a file, and its notes.
pub fn load_with_metadata(path: impl AsRef<Path>) -> Result<(StateDict, BTreeMap<String, String>)> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::File { action: "read", path: path.into(), source })?;
    read(file, path)
}

/// As [`load_with_metadata`], from anything that can be read; `name` is for error messages.
pub fn read(mut from: impl Read + Seek, name: &Path) -> Result<(StateDict, BTreeMap<String, String>)> {
    let wrong = |problem: String| Error::Format { path: name.into(), problem };
    let header = read_header(&mut from, name)?;
    let mut state = StateDict::new();
    for tensor in header.offset_keys() {
        let Some(info) = header.info(&tensor) else { continue };
        let dtype = from_file(info.dtype).ok_or_else(|| {
            wrong(format!(
                "tensor {tensor} has elements of type {}; known are F64 I64 F32 F16 BF16 U8 BOOL",
                info.dtype
            ))
        })?;
        let bytes = info.data_offsets.1 - info.data_offsets.0;
        // No elements say nothing about how large the other dimensions are: have them checked.
        let value = if bytes == 0 {
            Tensor::zeros(&info.shape[..], dtype).map_err(|e| wrong(format!("tensor {tensor}: {e}")))?
        } else {
            // From the file into the tensor's memory, without a stop between.
            let (storage, read) = Storage::filled(bytes, |room: &mut [u8]| {
                let read = from.read_exact(room);
                if dtype == DType::Bool {
                    room.iter_mut().for_each(|b| *b = (*b != 0) as u8);
                }
                read
            });
            read.map_err(|source| Error::File { action: "read", path: name.into(), source })?;
            Tensor::of_storage(Meta::new(&info.shape[..], dtype), storage)
        };
        state.insert(tensor, value);
    }
    let notes = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok((state, notes))
}

/// Describes a file's tensors without reading them.
pub(super) fn describe(mut from: impl Read + Seek, name: &Path) -> Result<inspect::Inspection> {
    let header = read_header(&mut from, name)?;
    let described = header.offset_keys().into_iter().filter_map(|tensor| {
        let info = header.info(&tensor)?;
        let dtype = from_file(info.dtype).map_or_else(|| info.dtype.to_string().to_lowercase(), |d| d.to_string());
        let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
        Some(inspect::TensorInfo { name: tensor, dtype, shape: info.shape.clone(), bytes })
    });
    let mut metadata: Vec<_> = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    metadata.sort();
    Ok(inspect::Inspection { format: Format::Safetensors, tensors: described.collect(), metadata, notes: Vec::new() })
}

/// Reads and checks a file's header; the tensors follow it in the order of their offsets.
fn read_header(from: &mut (impl Read + Seek), name: &Path) -> Result<Metadata> {
    let failed = |source| Error::File { action: "read", path: name.into(), source };
    let wrong = |problem: String| Error::Format { path: name.into(), problem };
    let size = from.seek(SeekFrom::End(0)).map_err(failed)?;
    from.seek(SeekFrom::Start(0)).map_err(failed)?;
    if size < PREFIX {
        return Err(wrong(format!("is not a safetensors file: it has only {size} bytes")));
    }
    let mut prefix = [0; PREFIX as usize];
    from.read_exact(&mut prefix).map_err(failed)?;
    let length = u64::from_le_bytes(prefix);
    if length > LARGEST_HEADER || length > size - PREFIX {
        return Err(wrong(format!(
            "is not a safetensors file, or was cut off: its header should have {length} bytes, the file has {size}"
        )));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header).map_err(failed)?;
    // The library's own reader adds up offsets without a check for overflow; its description of the file does not.
    let header: Metadata = serde_json::from_slice(&header).map_err(|e| wrong(format!("has a broken header: {e}")))?;
    let (want, have) = (header.data_len() as u64, size - PREFIX - length);
    if want != have {
        let what = if have < want { "was cut off" } else { "has bytes that belong to no tensor" };
        return Err(wrong(format!("{what}: its tensors take {want} bytes, the file has {have} for them")));
    }
    Ok(header)
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn from_file(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "safetensors_tests.rs"]
mod tests;
