//! PyTorch's checkpoints: `.pth` and `.pt` files, zip archives of a pickle and one entry a storage.
//!
//! Nothing of the pickle is executed (see [`pickle`]). Integers narrower than 64 bits become i64.

mod choose;
mod save;
mod values;
mod view;

pub use save::save;

use super::inspect::{Inspection, TensorInfo};
use super::pickle::{self, Value};
use super::zip::{Archive, Failure as ZipFailure};
use super::{Format, StateDict};
use crate::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// Tensors may take this many times the file's bytes: views of one storage, and narrow integers, take more than what
/// they are stored as, and a hostile file must not ask for everything there is.
const MOST_TIMES: u64 = 16;
/// On top of that, for small files.
const MOST_MORE: u64 = 16 << 20;
/// Pickles beyond this are refused; those of the largest models have a few megabytes.
const LARGEST_PICKLE: u64 = 256 << 20;

/// What a checkpoint was found to hold.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The model's tensors.
    pub state: StateDict,
    /// Under which key they were, as in `model_state_dict` or `model/state_dict`; empty when the file is the dict.
    pub key: String,
    /// What was taken off every name, as in `module.`; empty when nothing was.
    pub prefix: String,
    /// What else the file holds, by name and kind: the epoch, the optimizer's state, settings.
    pub ignored: Vec<(String, String)>,
    /// Tensors of narrower integers, which became i64: name and type in the file.
    pub converted: Vec<(String, String)>,
}

/// Reads the tensors of a model from a checkpoint, wherever in it they are.
///
/// ```
/// use neurona::{Tensor, io::{StateDict, pth}};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-{}.pth", std::process::id()));
/// let state: StateDict = [("fc.weight", Tensor::from([[1.0f32, 2.0]]))].into_iter().collect();
/// pth::save(&path, &state)?;
/// assert_eq!(pth::load(&path)?.get("fc.weight").unwrap().to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    load_with(path, None).map(|checkpoint| checkpoint.state)
}

/// Reads the tensors of a model, from under `key` when one is given, and tells what else was there.
pub fn load_with(path: impl AsRef<Path>, key: Option<&str>) -> Result<Checkpoint> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::File { action: "read", path: path.into(), source })?;
    read(file, path, key)
}

/// As [`load_with`], from anything that can be read; `name` is for error messages.
pub fn read(from: impl Read + Seek, name: &Path, key: Option<&str>) -> Result<Checkpoint> {
    let mut file = Contents::open(from, name)?;
    let chosen = file.choose(key)?;
    file.check_size(&chosen)?;
    let tensors = values::read(&mut file.archive, &file.folder, file.big_endian, &chosen.tensors);
    let tensors = tensors.map_err(|e| failed(e, name))?;
    let narrow = chosen.tensors.iter().filter(|(_, view)| matches!(view.kind, view::Kind::Integer(..)));
    let converted = narrow.map(|(name, view)| (name.clone(), view.kind.name())).collect();
    let names = chosen.tensors.into_iter().map(|(name, _)| name);
    let state = names.zip(tensors).collect();
    Ok(Checkpoint { state, key: chosen.key, prefix: chosen.prefix, ignored: chosen.ignored, converted })
}

/// Describes a checkpoint's tensors without reading them.
pub(super) fn describe(from: impl Read + Seek, name: &Path) -> Result<Inspection> {
    let file = Contents::open(from, name)?;
    let chosen = file.choose(None)?;
    let mut tensors = Vec::with_capacity(chosen.tensors.len());
    for (tensor, view) in chosen.tensors {
        values::entry(&file.archive, &file.folder, &tensor, &view).map_err(|e| failed(e, name))?;
        let bytes = (view.numel() * view.kind.size()) as u64;
        tensors.push(TensorInfo { name: tensor, dtype: view.kind.name(), shape: view.shape, bytes });
    }
    let mut notes = Vec::new();
    if !chosen.key.is_empty() {
        notes.push(format!("tensors are under the key {}", chosen.key));
    }
    if !chosen.prefix.is_empty() {
        notes.push(format!("names begin with {} in the file", chosen.prefix));
    }
    notes.extend(chosen.ignored.iter().map(|(name, kind)| format!("also holds {name}: {kind}")));
    Ok(Inspection { format: Format::Pth, tensors, metadata: Vec::new(), notes })
}

/// What goes wrong inside an archive, before it is known which file it is.
type Failure = ZipFailure;

fn failed(failure: Failure, name: &Path) -> Error {
    match failure {
        Failure::Disk(source) => Error::File { action: "read", path: name.into(), source },
        Failure::Contents(problem) => Error::Format { path: name.into(), problem },
    }
}

/// An open checkpoint: its entries and its pickle.
struct Contents<'a, R> {
    archive: Archive<R>,
    /// The folder within the archive, with a slash behind.
    folder: String,
    big_endian: bool,
    root: Value,
    size: u64,
    name: &'a Path,
}

impl<'a, R: Read + Seek> Contents<'a, R> {
    fn open(mut from: R, name: &'a Path) -> Result<Self> {
        let wrong = |problem: &str| Error::Format { path: name.into(), problem: problem.into() };
        let disk = |source| Error::File { action: "read", path: name.into(), source };
        let (format, size) = super::format::of(&mut from).map_err(disk)?;
        if let Some(problem) = super::format::not_a_zip(format) {
            return Err(wrong(problem));
        }
        let mut archive = Archive::open(from).map_err(|e| failed(e, name))?;
        let pickle = archive.entries.iter().find(|entry| match entry.name.split_once('/') {
            Some((_, file)) => file == "data.pkl",
            None => entry.name == "data.pkl",
        });
        let pickle = pickle.ok_or_else(|| wrong("it is a zip archive, but not PyTorch's: it has no data.pkl"))?.clone();
        let folder = pickle.name.trim_end_matches("data.pkl").to_string();
        if archive.get(&format!("{folder}constants.pkl")).is_some() {
            return Err(wrong(
                "it is a TorchScript program; in Python, save only the weights: \
                 torch.save(torch.jit.load(path).state_dict(), new_path)",
            ));
        }
        if pickle.bytes > LARGEST_PICKLE {
            return Err(wrong("its data.pkl is too long to be true"));
        }
        let order = archive.get(&format!("{folder}byteorder")).filter(|entry| entry.bytes < 16).cloned();
        let order = order.map(|entry| archive.read(&entry)).transpose().map_err(|e| failed(e, name))?;
        let bytes = archive.read(&pickle).map_err(|e| failed(e, name))?;
        let root = pickle::parse(&bytes, name)?;
        Ok(Contents { archive, folder, big_endian: order.as_deref() == Some(b"big"), root, size, name })
    }

    fn choose(&self, key: Option<&str>) -> Result<choose::Chosen> {
        choose::choose(&self.root, key).map_err(|problem| Error::Format { path: self.name.into(), problem })
    }

    fn check_size(&self, chosen: &choose::Chosen) -> Result<()> {
        let most = self.size.saturating_mul(MOST_TIMES).saturating_add(MOST_MORE);
        let need = chosen.tensors.iter().fold(0u64, |sum, (_, view)| sum.saturating_add(view.bytes() as u64));
        if need > most {
            let problem = format!("its tensors would take {need} bytes, far more than the file's {}", self.size);
            return Err(Error::Format { path: self.name.into(), problem });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
