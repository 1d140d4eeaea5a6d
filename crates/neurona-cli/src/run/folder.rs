//! The folder of a run. Files are written beside their place and renamed, so that a half-written file is never
//! taken for a whole one.

use crate::failure::{Failure, Outcome};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of a run.
#[derive(Clone, Debug)]
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

    /// The folder of a run that is there.
    pub fn open(path: &Path) -> Outcome<Self> {
        match path.is_dir() {
            true => Ok(Folder(path.to_path_buf())),
            false => Err(Failure::Usage(format!("{} is not the folder of a run", path.display()))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file of it is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; the name may have a folder in it, which is made.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
        let path = self.0.join(name);
        let (folder, last) = (path.parent().unwrap_or(&self.0), path.file_name().unwrap_or_default());
        fs::create_dir_all(folder).map_err(|e| Failure::file("make the folder", folder, e))?;
        let partial = folder.join(format!(".partial-{}", last.to_string_lossy()));
        let result = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, &path));
        result.map_err(|e| {
            let _ = fs::remove_file(&partial);
            Failure::file("write", &path, e)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_next_number_and_leaves_no_partial_file() {
        let base = tempfile::tempdir().unwrap();
        let first = Folder::create(base.path(), "x").unwrap();
        let second = Folder::create(base.path(), "x").unwrap();
        assert_eq!(first.path().file_name().unwrap(), "x-1");
        assert_eq!(second.path().file_name().unwrap(), "x-2");
        first.write("a.txt", "one").unwrap();
        first.write("a.txt", "two").unwrap();
        first.write("deep/b.txt", "three").unwrap();
        fs::create_dir(first.file("folder")).unwrap();
        assert!(first.write("folder", "no").is_err());
        let mut names: Vec<_> = fs::read_dir(first.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "deep", "folder"]);
        assert_eq!(fs::read_to_string(first.file("a.txt")).unwrap(), "two");
        assert!(matches!(Folder::open(&first.file("a.txt")), Err(Failure::Usage(_))));
    }
}
