//! The folder of a run.

use crate::io::atomic;
use crate::{Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of a run. Its files are written beside their place and renamed, so that a half-written file is never
/// taken for a whole one.
///
/// ```
/// use neurona::train::RunDir;
/// # let base = std::env::temp_dir().join(format!("neurona-doc-run-{}", std::process::id()));
/// let run = RunDir::create(&base, "lab")?;
/// run.write("notes/first.txt", "lr 0.1")?;
/// assert!(run.path().ends_with("lab-1"));
/// assert_eq!(RunDir::open(run.path())?.read("notes/first.txt")?, "lr 0.1");
/// # std::fs::remove_dir_all(base).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes `<name>-<n>` below `base`, with the first number that is free.
    pub fn create(base: impl AsRef<Path>, name: &str) -> Result<Self> {
        let base = base.as_ref();
        let failed = |path: &Path, source| Error::File { action: "make the folder", path: path.into(), source };
        fs::create_dir_all(base).map_err(|e| failed(base, e))?;
        let mut number = 1u64;
        loop {
            let path = base.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunDir(path)),
                // Making it is the test: another run may start at the same moment.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(failed(&path, e)),
            }
        }
    }

    /// One that is there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let about = fs::metadata(path).map_err(|source| Error::File { action: "open", path: path.into(), source })?;
        match about.is_dir() {
            true => Ok(RunDir(path.into())),
            false => Err(Error::Format { path: path.into(), problem: "is a file, not the folder of a run".into() }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file of it is, or will be; folders in between are made.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        if let Some(folder) = path.parent() {
            let failed = |source| Error::File { action: "make the folder", path: folder.into(), source };
            fs::create_dir_all(folder).map_err(failed)?;
        }
        Ok(path)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        atomic::write(&self.file(name)?, |file| file.write_all(bytes.as_ref()))
    }

    /// Reads a text.
    pub fn read(&self, name: &str) -> Result<String> {
        let path = self.0.join(name);
        fs::read_to_string(&path).map_err(|source| Error::File { action: "read", path, source })
    }

    /// Has a file written by something that wants a path: beside its place, then put there.
    pub fn replace<E: From<Error>>(
        &self,
        name: &str,
        write: impl FnOnce(&Path) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let path = self.file(name)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The ending stays: it tells what kind of picture to write.
        let beside = path.with_file_name(format!(".partial-{file}"));
        let moved = |source| Error::File { action: "write", path: path.clone(), source }.into();
        let result = write(&beside).and_then(|()| fs::rename(&beside, &path).map_err(moved));
        if result.is_err() {
            let _ = fs::remove_file(&beside);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_next_number_and_leaves_no_partial_file() {
        let base = std::env::temp_dir().join(format!("neurona-run-dir-{}", std::process::id()));
        let first = RunDir::create(&base, "x").unwrap();
        let second = RunDir::create(&base, "x").unwrap();
        assert!(first.path().ends_with("x-1") && second.path().ends_with("x-2"));
        first.write("a.txt", "one").unwrap();
        first.write("a.txt", "two").unwrap();
        let failed: Result<()> = first.replace("b.txt", |path| {
            fs::write(path, "half").unwrap();
            Err(Error::Argument("no more".into()))
        });
        assert!(failed.is_err());
        first.replace("c.txt", |path| fs::write(path, "whole").map_err(|e| Error::Argument(e.to_string()))).unwrap();
        let mut names: Vec<_> = fs::read_dir(first.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "c.txt"]);
        assert_eq!(first.read("a.txt").unwrap(), "two");
        assert!(RunDir::open(base.join("none")).is_err() && RunDir::open(first.path().join("a.txt")).is_err());
        fs::remove_dir_all(base).unwrap();
    }
}
