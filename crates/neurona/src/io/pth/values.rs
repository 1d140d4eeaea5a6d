//! The values of tensors, out of the entries of an archive.

use super::Failure;
use super::view::{Kind, View};
use crate::cpu::storage::Storage;
use crate::io::zip::{Archive, Entry};
use crate::tensor::Meta;
use crate::{DType, Tensor};
use std::collections::HashMap;
use std::io::{Read, Seek};
use std::sync::Arc;

/// Reads every tensor, storage by storage in the order they are needed; each storage is read once.
pub fn read<R: Read + Seek>(
    archive: &mut Archive<R>,
    folder: &str,
    big_endian: bool,
    tensors: &[(String, View)],
) -> Result<Vec<Tensor>, Failure> {
    let mut users: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, (_, view)) in tensors.iter().enumerate() {
        users.entry(&view.key).or_default().push(place);
    }
    let mut loaded: Vec<Option<Tensor>> = tensors.iter().map(|_| None).collect();
    for (first, (name, view)) in tensors.iter().enumerate() {
        if loaded[first].is_some() {
            continue;
        }
        let entry = entry(archive, folder, name, view)?;
        let places = users.remove(view.key.as_str()).unwrap_or_default();
        let whole = view.contiguous() && view.offset == 0 && view.numel() == view.elements && view.elements > 0;
        if whole && !big_endian && matches!(view.kind, Kind::Own(_)) && places.len() == 1 {
            loaded[first] = Some(straight(archive, &entry, view)?);
            continue;
        }
        let mut bytes = archive.read(&entry)?;
        if big_endian {
            bytes.chunks_exact_mut(view.kind.size()).for_each(<[u8]>::reverse);
        }
        let mut made: HashMap<&View, Tensor> = HashMap::new();
        for place in places {
            let (name, other) = &tensors[place];
            if (other.elements, other.kind) != (view.elements, view.kind) {
                return Err(
                    format!("its tensors {} and {name} say different things of one storage", tensors[first].0).into()
                );
            }
            // Tied weights stay one value.
            let tensor = match made.get(other) {
                Some(tensor) => tensor.clone(),
                None => made.entry(other).or_insert(cut(&bytes, other, name)?).clone(),
            };
            loaded[place] = Some(tensor);
        }
    }
    Ok(loaded.into_iter().flatten().collect())
}

/// The entry that holds a view's storage, which must have the length that the pickle says.
pub fn entry<R: Read + Seek>(archive: &Archive<R>, folder: &str, name: &str, view: &View) -> Result<Entry, Failure> {
    let path = format!("{folder}data/{}", view.key);
    let entry = archive.get(&path).ok_or_else(|| format!("the entry {path} of its tensor {name} is missing"))?;
    let want = view.elements * view.kind.size();
    if entry.bytes != want as u64 {
        return Err(format!("its entry {path} has {} bytes; tensor {name} needs {want}", entry.bytes).into());
    }
    Ok(entry.clone())
}

/// A whole storage, from the file into the tensor's memory without a stop between.
fn straight<R: Read + Seek>(archive: &mut Archive<R>, entry: &Entry, view: &View) -> Result<Tensor, Failure> {
    let dtype = view.kind.dtype();
    let (storage, read) = Storage::filled(view.bytes(), |room: &mut [u8]| {
        let read = archive.read_into(entry, room);
        if dtype == DType::Bool {
            room.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        read
    });
    read?;
    Ok(Tensor::of_storage(Meta::new(&view.shape[..], dtype), storage))
}

/// A tensor's elements, picked from a storage and in row-major order.
fn cut(bytes: &[u8], view: &View, name: &str) -> Result<Tensor, Failure> {
    let shape = &view.shape[..];
    // No elements say nothing about how large the other dimensions are: have them checked.
    if view.numel() == 0 {
        return Tensor::zeros(shape, view.kind.dtype()).map_err(|e| format!("its tensor {name}: {e}").into());
    }
    let pick = |size| elements(bytes, view, size);
    let storage: Arc<Storage> = match view.kind {
        Kind::Own(DType::Bool) => Storage::copy_of(&pick(1).map(|b| u8::from(b[0] != 0)).collect::<Vec<_>>()),
        Kind::Own(dtype) => {
            let size = dtype.size();
            let fill = |room: &mut [u8]| {
                room.chunks_exact_mut(size).zip(pick(size)).for_each(|(to, from)| to.copy_from_slice(from));
            };
            Storage::filled(view.bytes(), fill).0
        }
        Kind::Integer(_, size, signed) => {
            Storage::copy_of(&pick(size).map(|bytes| widened(bytes, signed)).collect::<Vec<_>>())
        }
    };
    Ok(Tensor::of_storage(Meta::new(shape, view.kind.dtype()), storage))
}

/// The bytes of each element of a view, in row-major order.
fn elements<'a>(bytes: &'a [u8], view: &'a View, size: usize) -> impl Iterator<Item = &'a [u8]> {
    let mut index = vec![0; view.shape.len()];
    let mut at = view.offset;
    (0..view.numel()).map(move |_| {
        // The view lies within the storage, and the storage has its length: both were checked.
        let element = &bytes[at * size..(at + 1) * size];
        for d in (0..index.len()).rev() {
            index[d] += 1;
            at += view.strides[d];
            if index[d] < view.shape[d] {
                break;
            }
            at -= index[d] * view.strides[d];
            index[d] = 0;
        }
        element
    })
}

fn widened(bytes: &[u8], signed: bool) -> i64 {
    let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}
