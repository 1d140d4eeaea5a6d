//! Tensors of ONNX files.

use super::proto;
use crate::cpu::storage::Storage;
use crate::tensor::Meta;
use crate::{DType, Tensor};
use half::{bf16, f16};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

/// More dimensions than any network has.
const MOST_DIMS: usize = 16;

/// The element type that a number of the format stands for; whole numbers of all sizes become i64.
pub(super) fn dtype(number: i64) -> Option<DType> {
    Some(match number {
        1 => DType::F32,
        2 => DType::U8,
        3..=7 | 12 | 13 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        16 => DType::BF16,
        _ => return None,
    })
}

/// A tensor of the file, or of a file beside it.
pub(super) fn read(tensor: &proto::Tensor, folder: Option<&Path>) -> Result<Tensor, String> {
    let kind = tensor.data_type;
    let dtype = dtype(kind.into()).ok_or_else(|| format!("has elements of type {kind}, which is not known here"))?;
    if tensor.dims.len() > MOST_DIMS {
        return Err(format!("has {} dimensions; at most {MOST_DIMS} are taken", tensor.dims.len()));
    }
    let shape: Option<Vec<usize>> = tensor.dims.iter().map(|&n| usize::try_from(n).ok()).collect();
    let total = shape.as_ref().and_then(|s| s.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let (Some(shape), Some(total)) = (shape, total) else {
        return Err(format!("claims the shape {:?}", tensor.dims));
    };
    if tensor.data_location == 1 {
        let bytes = outside(tensor, folder, total, width(kind))?;
        return raw(&bytes, kind, dtype, shape);
    }
    // Some exporters leave an empty tensor's bytes out.
    let numbers =
        tensor.float_data.len() + tensor.int32_data.len() + tensor.int64_data.len() + tensor.double_data.len();
    if !tensor.raw_data.is_empty() || numbers == 0 {
        let have = tensor.raw_data.len();
        if total.checked_mul(width(kind)) != Some(have) {
            return Err(format!("has {have} bytes for the shape {shape:?}"));
        }
        return raw(&tensor.raw_data, kind, dtype, shape);
    }
    let halves = |make: fn(u16) -> f32| tensor.int32_data.iter().map(|&bits| make(bits as u16)).collect::<Vec<f32>>();
    let made = match kind {
        1 => Tensor::from_slice(&tensor.float_data, shape),
        7 => Tensor::from_slice(&tensor.int64_data, shape),
        10 => Tensor::from_vec(halves(|b| f16::from_bits(b).to_f32()), shape),
        16 => Tensor::from_vec(halves(|b| bf16::from_bits(b).to_f32()), shape),
        11 => Tensor::from_slice(&tensor.double_data, shape),
        _ => Tensor::from_vec(tensor.int32_data.iter().map(|&n| i64::from(n)).collect(), shape),
    };
    made.and_then(|made| made.to_dtype(dtype)).map_err(|e| e.to_string())
}

/// Bytes of one element in the file.
fn width(kind: i32) -> usize {
    match kind {
        2 | 3 | 9 => 1,
        4 | 5 | 10 | 16 => 2,
        1 | 6 | 12 => 4,
        _ => 8,
    }
}

fn raw(bytes: &[u8], kind: i32, dtype: DType, shape: Vec<usize>) -> Result<Tensor, String> {
    if bytes.is_empty() {
        return Tensor::zeros(shape, dtype).map_err(|e| e.to_string());
    }
    let whole: Vec<i64> = match kind {
        3 => bytes.iter().map(|&b| i64::from(b as i8)).collect(),
        4 => bytes.as_chunks::<2>().0.iter().map(|&b| i64::from(u16::from_le_bytes(b))).collect(),
        5 => bytes.as_chunks::<2>().0.iter().map(|&b| i64::from(i16::from_le_bytes(b))).collect(),
        6 => bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(i32::from_le_bytes(b))).collect(),
        12 => bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(u32::from_le_bytes(b))).collect(),
        9 => {
            let truth: Vec<u8> = bytes.iter().map(|&b| (b != 0) as u8).collect();
            return Ok(Tensor::of_storage(Meta::new(shape, dtype), Storage::copy_of(&truth)));
        }
        _ => return Ok(Tensor::of_storage(Meta::new(shape, dtype), Storage::copy_of(bytes))),
    };
    Tensor::from_vec(whole, shape).map_err(|e| e.to_string())
}

/// The bytes of a tensor that another file holds. Only files in the folder of the model, or below, are opened.
fn outside(tensor: &proto::Tensor, folder: Option<&Path>, total: usize, width: usize) -> Result<Vec<u8>, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let location = entry("location").ok_or("is in another file, whose name is missing")?;
    let folder = folder.ok_or_else(|| format!("is in the file {location}, which cannot be read from here"))?;
    let inside = Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if location.is_empty() || !inside {
        return Err(format!("is in the file {location}, which is not in the model's folder"));
    }
    let number = |key: &str| match entry(key) {
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("has the {key} '{text}' in {location}")),
        None => Ok(None),
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    let want = total.checked_mul(width).ok_or("is too large")? as u64;
    if length.is_some_and(|length| length != want) {
        return Err(format!("has {} bytes in {location}, but its shape takes {want}", length.unwrap_or(0)));
    }
    let failed = |e: std::io::Error| format!("cannot be read from {location}: {e}");
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Links may lead out of the folder as well.
    let path = folder.join(location).canonicalize().map_err(failed)?;
    if !path.starts_with(folder.canonicalize().map_err(failed)?) {
        return Err(format!("is in the file {location}, which is not in the model's folder"));
    }
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if offset.checked_add(want).is_none_or(|end| end > size) {
        return Err(format!("takes {want} bytes from {offset} on, but {location} has only {size}"));
    }
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = vec![0; want as usize];
    file.read_exact(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
