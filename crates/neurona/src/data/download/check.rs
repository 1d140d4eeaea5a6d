//! Whether a file is the one that was published.

use super::set::Piece;
use crate::{Error, Result};
use flate2::read::GzDecoder;
use md5::{Digest, Md5};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// No file of these sets holds more when it is unpacked: whatever does is not one of them.
const MOST_UNPACKED: u64 = 256 << 20;

/// MD5 as lower-case hexadecimal.
pub(super) fn md5(mut from: impl Read) -> io::Result<String> {
    let (mut sum, mut buffer) = (Md5::new(), vec![0; 256 << 10]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            Ok(n) => sum.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether the file's size is possible.
pub(super) fn size_fits(piece: &Piece, path: &Path) -> bool {
    let size = path.metadata().map_or(0, |m| m.len());
    match (piece.md5, piece.unpacked) {
        (Some(_), None) => size == piece.size,
        (Some(_), Some(_)) => size > 0,
        (None, _) => size <= piece.size,
    }
}

/// Whether the file has the published digest, or, packed or unpacked by somebody else, the published contents.
pub(super) fn is_right(piece: &Piece, path: &Path) -> Result<bool> {
    if !size_fits(piece, path) {
        return Ok(false);
    }
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    let open = || File::open(path).map_err(failed);
    let Some(published) = piece.md5 else { return Ok(true) };
    let found = md5(open()?).map_err(failed)?;
    if found == published || piece.unpacked == Some(&found) {
        return Ok(true);
    }
    // A file that cannot be unpacked is not the one that was published.
    let unpacked = |file: File| md5(GzDecoder::new(BufReader::new(file)).take(MOST_UNPACKED)).ok();
    Ok(piece.unpacked.is_some() && unpacked(open()?).as_deref() == piece.unpacked)
}

/// What is wrong with a file, for people.
pub(super) fn difference(piece: &Piece, path: &Path) -> String {
    let size = path.metadata().map_or(0, |m| m.len());
    let found = File::open(path).and_then(md5).unwrap_or_else(|e| e.to_string());
    let wanted = piece.md5.unwrap_or("any");
    match size == piece.size {
        true => format!("its MD5 is {found}, not {wanted}"),
        false => format!("it has {size} bytes and MD5 {found}, not {} bytes and {wanted}", piece.size),
    }
}
