//! Files from a folder: a stick, a share, somebody else's download.

use super::http::disk;
use super::set::{Piece, Set};
use super::{check, unpack};
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Brings the set's missing files to `ready`, checked. They may stand in the folder itself or where people keep them
/// below it; the archive does as well.
pub(super) fn take(set: &Set, missing: &[&str], folder: &Path, ready: &Path) -> Result<()> {
    if !folder.is_dir() {
        let problem = "there is no such folder; an address begins with http:// or https://".to_string();
        return Err(Error::Format { path: folder.into(), problem });
    }
    let places = places(set, folder);
    let files = || set.files.iter().filter(|piece| missing.contains(&piece.name));
    let find = |piece: &Piece| places.iter().find_map(|place| piece.find(place));
    let absent: Vec<&str> = files().filter(|p| p.md5.is_some() && find(p).is_none()).map(|p| p.name).collect();
    if absent.is_empty() {
        for piece in files() {
            if let Some(path) = find(piece) {
                copy(piece, &path, ready)?;
            }
        }
        return Ok(());
    }
    let archive = set.archive.as_ref().and_then(|archive| Some((archive, find(archive)?)));
    if let Some((archive, path)) = archive {
        if !check::is_right(archive, &path)? {
            let problem = format!("it is not the published file: {}", check::difference(archive, &path));
            return Err(Error::Format { path, problem });
        }
        return unpack::unpack(set, &path, ready);
    }
    let or_archive = set.archive.as_ref().map_or(String::new(), |archive| format!(", nor {}", archive.name));
    let problem = format!("{} is not all there: no {}{or_archive}", set.title, absent.join(", "));
    Err(Error::Format { path: folder.into(), problem })
}

/// Where to look: the folder, its own folder below, and where torchvision puts it.
fn places(set: &Set, folder: &Path) -> Vec<PathBuf> {
    let torchvision = set.title.replace('-', "");
    let below = [PathBuf::from(set.folder), PathBuf::from(set.name), Path::new(&torchvision).join("raw")];
    std::iter::once(folder.to_path_buf()).chain(below.map(|name| folder.join(name))).collect()
}

/// The copy is what is checked: it is what will be used.
fn copy(piece: &Piece, from: &Path, ready: &Path) -> Result<()> {
    let name = from.file_name().map(Path::new).unwrap_or(Path::new(piece.name));
    let to = ready.join(name);
    fs::copy(from, &to).map_err(|e| disk("copy", from, e))?;
    if check::is_right(piece, &to)? {
        return Ok(());
    }
    let problem = format!("it is not the published file: {}", check::difference(piece, &to));
    // It must not be taken for a checked one by a later call.
    fs::remove_file(&to).map_err(|e| disk("remove", &to, e))?;
    Err(Error::Format { path: from.into(), problem })
}
