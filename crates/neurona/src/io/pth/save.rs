//! Writing a checkpoint as `torch.save(state_dict, path)` does.

use crate::cpu::storage::Storage;
use crate::graph::engine;
use crate::io::{StateDict, atomic, zip};
use crate::tensor::Meta;
use crate::{DType, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The folder of all entries; PyTorch takes the file's name, and reads any.
const FOLDER: &str = "archive";

/// Writes tensors to a `.pth` file that `torch.load(path, weights_only=True)` reads, as an ordered dict. It appears
/// whole or not at all. Notes have no place in such a file.
pub fn save(path: impl AsRef<Path>, state: &StateDict) -> Result<()> {
    let mut storages: Vec<(Arc<Storage>, usize)> = Vec::new();
    let mut places = HashMap::new();
    let mut pickle = Pickle::new();
    for (name, tensor) in state.iter() {
        let (meta, storage) = (tensor.meta(), engine::value(tensor)?);
        // Tied weights are written once, and stay tied in PyTorch.
        let place = *places.entry((Arc::as_ptr(&storage), meta.dtype, meta.bytes())).or_insert_with(|| {
            storages.push((storage, meta.bytes()));
            storages.len() - 1
        });
        pickle.tensor(name, meta, place);
    }
    let pickle = pickle.finish();
    atomic::write(path.as_ref(), |file| {
        let mut archive = zip::Writer::new(file);
        let at = |name: &str| format!("{FOLDER}/{name}");
        archive.entry(&at("data.pkl"), &pickle)?;
        archive.entry(&at("byteorder"), if cfg!(target_endian = "big") { b"big" } else { b"little" })?;
        for (place, (storage, bytes)) in storages.iter().enumerate() {
            archive.entry(&at(&format!("data/{place}")), &storage.read::<u8>()[..*bytes])?;
        }
        archive.entry(&at("version"), b"3\n")?;
        archive.finish()
    })
}

/// A pickle of protocol 2 being written.
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        // PROTO 2, an empty ordered dict, a mark before its entries.
        Pickle(b"\x80\x02ccollections\nOrderedDict\n)R(".to_vec())
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        // Names beyond 4 GiB are in no memory.
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn number(&mut self, n: usize) {
        match n {
            0..=0xff => self.0.extend([b'K', n as u8]),
            0x100..=0xffff => {
                self.0.push(b'M');
                self.0.extend((n as u16).to_le_bytes());
            }
            0x1_0000..=0x7fff_ffff => {
                self.0.push(b'J');
                self.0.extend((n as u32).to_le_bytes());
            }
            _ => {
                self.0.extend([0x8a, 8]);
                self.0.extend((n as u64).to_le_bytes());
            }
        }
    }

    fn tuple(&mut self, numbers: impl IntoIterator<Item = usize>) {
        self.0.push(b'(');
        numbers.into_iter().for_each(|n| self.number(n));
        self.0.push(b't');
    }

    fn tensor(&mut self, name: &str, meta: &Meta, place: usize) {
        self.text(name);
        self.0.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        self.text("storage");
        self.0.extend(format!("ctorch\n{}Storage\n", storage(meta.dtype)).as_bytes());
        self.text(&place.to_string());
        self.text("cpu");
        self.number(meta.shape.numel());
        // The reference to the storage, and an offset of 0.
        self.0.extend(b"tQK\x00");
        self.tuple(meta.shape.iter().copied());
        self.tuple(meta.shape.strides());
        // No gradient, no hooks.
        self.0.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend(b"u.");
        self.0
    }
}

fn storage(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "Bool",
        DType::U8 => "Byte",
        DType::I64 => "Long",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
    }
}
