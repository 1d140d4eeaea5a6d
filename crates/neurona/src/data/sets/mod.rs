//! Data sets in their official files, and folders of images.

mod cifar;
mod cifar_files;
pub mod embedded;
pub mod idx;
mod image_folder;
mod mnist;
mod open;
#[cfg(test)]
mod tests;

pub use cifar::{Cifar10, Cifar100, CifarLabels};
pub use image_folder::ImageFolder;
pub use mnist::{FashionMnist, Mnist};
pub use open::{Kind, Opened, open};

use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The first of these folders below `root`, or `root` itself, that holds one of these files.
fn find(root: &Path, folders: &[&str], files: &[String]) -> Option<PathBuf> {
    let mut places = folders.iter().map(|folder| root.join(folder)).chain([root.to_path_buf()]);
    places.find(|place| files.iter().any(|file| place.join(file).is_file()))
}

/// That a known set is not there, and how to get it.
fn missing(title: &str, name: &str, root: &Path) -> Error {
    let problem = format!("there is no {title} here; `neurona data get {name}` downloads it");
    Error::Format { path: root.into(), problem }
}

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| name.to_string()).collect()
}

/// A whole file, as long as it is not absurdly long.
fn read(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    const MOST: u64 = 1 << 31;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
    read.map_err(|source| Error::File { action: "read", path: path.into(), source })?;
    if bytes.len() as u64 > MOST {
        let problem = "it is longer than 2 GiB, which no file of this set is".to_string();
        return Err(Error::Format { path: path.into(), problem });
    }
    Ok(bytes)
}
