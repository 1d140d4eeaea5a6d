//! Files out of an archive. Only names from our own list are written, under our own folder: whatever paths, links
//! or sizes an archive claims, nothing else can appear.

use super::check;
use super::http::disk;
use super::set::{Piece, Set};
use crate::{Error, Result};
use flate2::read::GzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

/// Beyond the files that are wanted an archive may hold a readme and the like, but not more than this.
const MOST_ELSE: u64 = 16 << 20;

/// Unpacks the set's files into a folder and checks them.
pub(super) fn unpack(set: &Set, archive: &Path, into: &Path) -> Result<()> {
    let wrong = |problem: String| Error::Format { path: archive.into(), problem };
    let broken = |e: io::Error| wrong(format!("it cannot be unpacked: {e}"));
    let file = File::open(archive).map_err(|source| Error::File { action: "read", path: archive.into(), source })?;
    // A tar archive pads each file to 512 bytes and has a header of as many.
    let most = set.files.iter().map(|piece| piece.size + 1024).sum::<u64>() + MOST_ELSE;
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(most));
    for entry in tar.entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?;
        let Some(piece) = wanted(set, &path) else { continue };
        if !entry.header().entry_type().is_file() {
            return Err(wrong(format!("{} in it is not a plain file", path.display())));
        }
        if entry.size() > piece.size {
            return Err(wrong(format!("{} in it has {} bytes", path.display(), entry.size())));
        }
        write(entry, &into.join(piece.name), &broken)?;
    }
    for piece in set.files.iter().filter(|piece| piece.md5.is_some()) {
        let path = into.join(piece.name);
        if !path.is_file() {
            return Err(wrong(format!("it has no {}", piece.name)));
        }
        if !check::is_right(piece, &path)? {
            return Err(wrong(format!("{} in it is damaged: {}", piece.name, check::difference(piece, &path))));
        }
    }
    Ok(())
}

/// The file of the set that an archive's path is, as in `cifar-10-batches-bin/test_batch.bin`.
fn wanted<'a>(set: &'a Set, path: &Path) -> Option<&'a Piece> {
    let mut parts = path.components().filter(|part| *part != Component::CurDir);
    let name = match (parts.next()?, parts.next(), parts.next()) {
        (Component::Normal(folder), Some(Component::Normal(name)), None) if folder == set.folder => name,
        _ => return None,
    };
    set.files.iter().find(|piece| name == piece.name)
}

fn write(mut from: impl Read, path: &Path, broken: &dyn Fn(io::Error) -> Error) -> Result<()> {
    let failed = |e| disk("write", path, e);
    let mut file = File::create(path).map_err(failed)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        // Reading and writing apart: a damaged archive and a full disk want different advice.
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(e)),
        };
        io::Write::write_all(&mut file, &buffer[..read]).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}
