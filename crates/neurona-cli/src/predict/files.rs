//! The images that were asked for.

use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::io::{BufRead, stdin};
use std::path::{Path, PathBuf};

/// What the names of images end with, in folders; a file that is named itself may be called anything.
const ENDINGS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "bmp", "gif"];

/// Calls `use_it` for every image: files as they are given, all images below folders in the order of their names, and
/// for - the files that standard input lists.
pub fn each(asked: &[PathBuf], use_it: &mut dyn FnMut(PathBuf) -> Outcome) -> Outcome {
    for path in asked {
        if path.as_os_str() == "-" {
            listed(use_it)?;
        } else if path.is_dir() {
            if below(path, use_it)? == 0 {
                return Err(Failure::Told(format!("{}: no images in this folder", path.display())));
            }
        } else {
            use_it(path.clone())?;
        }
    }
    Ok(())
}

fn listed(use_it: &mut dyn FnMut(PathBuf) -> Outcome) -> Outcome {
    let mut input = stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|e| Failure::Told(format!("cannot read standard input: {e}")))? == 0 {
            return Ok(());
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        if !line.is_empty() {
            use_it(PathBuf::from(name(&line)))?;
        }
    }
}

/// A file's name need not be UTF-8.
#[cfg(unix)]
fn name(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(bytes.to_vec())
}

#[cfg(not(unix))]
fn name(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// How many images there were. Links to folders are not followed: they may lead in circles.
fn below(folder: &Path, use_it: &mut dyn FnMut(PathBuf) -> Outcome) -> Outcome<usize> {
    let failed = |e| Failure::file("read the folder", folder, e);
    let mut entries = std::fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(|entry| entry.file_name());
    let mut count = 0;
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count += below(&path, use_it)?;
        } else if is_image(&path) && path.is_file() {
            use_it(path)?;
            count += 1;
        }
    }
    Ok(count)
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}
