//! Files that appear whole or not at all.

use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file beside the target, brings it to the disk, and renames it to the target. When anything fails,
/// the target is as it was.
pub(crate) fn write(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |source| Error::File { action: "write", path: path.into(), source };
    let (folder, beside) = beside(path).map_err(failed)?;
    let result = fill(&beside, body).and_then(|()| fs::rename(&beside, path));
    if let Err(source) = result {
        // What matters is the first error; a leftover file harms nobody.
        let _ = fs::remove_file(&beside);
        return Err(failed(source));
    }
    // The rename itself must survive a power cut too. Not every system lets a folder be opened for that.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Removes what writers of this file have left behind that were killed on the way.
pub(crate) fn sweep(path: &Path) {
    let (Some(name), Some(folder)) = (path.file_name().and_then(|n| n.to_str()), path.parent()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (start, own) = (format!(".{name}."), format!(".{name}.{}-", std::process::id()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let left = entry.file_name();
        if left.to_str().is_some_and(|n| n.starts_with(&start) && n.ends_with(".tmp") && !n.starts_with(&own)) {
            // It is in nobody's way; whoever cannot remove it need not be told.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn fill(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, OpenOptions::new().write(true).create_new(true).open(path)?);
    body(&mut file)?;
    file.into_inner().map_err(|e| e.into_error())?.sync_all()
}

/// The target's folder, and a name in it that no other writer takes.
fn beside(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "is not a file name"))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut other = OsString::from(".");
    other.push(name);
    other.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let other = folder.join(other);
    Ok((folder, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("neurona-atomic-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = folder.join("file");
        write(&path, |f| f.write_all(b"old")).map_err(io::Error::other)?;
        let error = write(&path, |f| f.write_all(b"new").and(Err(io::Error::other("disk full")))).unwrap_err();
        assert!(error.to_string().contains("disk full"), "{error}");
        assert_eq!((fs::read(&path)?, fs::read_dir(&folder)?.count()), (b"old".to_vec(), 1));
        for bad in ["", "/", "..", "no/such/folder/file"] {
            assert!(matches!(write(Path::new(bad), |_| Ok(())), Err(Error::File { .. })), "{bad}");
        }
        // Killed writers' files go, those of this process and of other targets stay.
        let own = format!(".file.{}-99.tmp", std::process::id());
        for name in [".file.0-0.tmp", ".other.0-0.tmp", own.as_str()] {
            fs::write(folder.join(name), b"half")?;
        }
        sweep(&path);
        assert!(!folder.join(".file.0-0.tmp").exists() && fs::read_dir(&folder)?.count() == 3);
        fs::remove_dir_all(folder)
    }
}
