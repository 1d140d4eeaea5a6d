//! The folder of a run. Files are written beside their place and renamed, so that a half-written file is never
//! taken for a whole one.

use super::net::Net;
use crate::failure::{Failure, Outcome};
use neurona::data::ImageSet;
use neurona::io::safetensors;
use neurona::nn::Module;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of a run.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes `<name>-<n>` below `base`, with the first number that is free.
    pub fn create(base: &Path, name: &str) -> Outcome<Self> {
        fs::create_dir_all(base).map_err(|e| Failure::file("make the folder", base, e))?;
        let mut number = 1;
        loop {
            let path = base.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                // Making it is the test: another run may start at the same moment.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(Failure::file("make the folder", &path, e)),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> Outcome {
        self.replace(name, |path| fs::write(path, text).map_err(|e| Failure::file("write", path, e)))
    }

    /// Has a file written beside its place, then puts it there.
    pub fn replace(&self, name: &str, write: impl FnOnce(&Path) -> Outcome) -> Outcome {
        // The ending stays: it tells what kind of picture to write.
        let (partial, path) = (self.0.join(format!(".partial-{name}")), self.0.join(name));
        let result =
            write(&partial).and_then(|()| fs::rename(&partial, &path).map_err(|e| Failure::file("write", &path, e)));
        if result.is_err() {
            let _ = fs::remove_file(&partial);
        }
        result
    }

    /// Writes the network with what is needed to use it: classes, image size and normalisation.
    pub fn save_model(&self, name: &str, net: &Net, images: &ImageSet) -> Outcome {
        let (mean, deviation) = images.normalisation();
        let metadata = [
            ("format", "pt".to_string()),
            ("architecture", net.architecture()),
            ("classes", serde_json::json!(images.classes()).to_string()),
            ("image_size", serde_json::json!(images.size()).to_string()),
            ("mean", serde_json::json!(mean).to_string()),
            ("std", serde_json::json!(deviation).to_string()),
        ];
        let metadata = metadata.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        // It writes beside and renames on its own.
        Ok(safetensors::save(self.0.join(name), &net.state_dict()?, &metadata)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_next_number_and_leaves_no_partial_file() {
        let base = std::env::temp_dir().join(format!("neurona-folder-{}", std::process::id()));
        let first = Folder::create(&base, "x").unwrap();
        let second = Folder::create(&base, "x").unwrap();
        assert_eq!(first.path().file_name().unwrap(), "x-1");
        assert_eq!(second.path().file_name().unwrap(), "x-2");
        first.write("a.txt", "one").unwrap();
        first.write("a.txt", "two").unwrap();
        assert!(
            first
                .replace("b.txt", |p| {
                    fs::write(p, "half").unwrap();
                    Err(Failure::NobodyListens)
                })
                .is_err()
        );
        let names: Vec<_> = fs::read_dir(first.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["a.txt"]);
        assert_eq!(fs::read_to_string(first.path().join("a.txt")).unwrap(), "two");
        fs::remove_dir_all(base).unwrap();
    }
}
