//! The well-known sets in their official files: from their publishers, a mirror, or a folder.
//!
//! A file appears among the data sets whole and checked, or not at all. What a broken connection has left is kept
//! aside, and the next call goes on from there.

mod check;
mod fetch;
mod folder;
mod home;
mod http;
mod proxy;
mod set;
#[cfg(test)]
mod tests;
mod trust;
mod unpack;

pub use home::data_folder;
pub use set::{Set, State, find, sets};

use crate::Result;
use http::disk;
use set::Piece;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What happens meanwhile.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So many bytes of a file are there.
    Bytes {
        /// The file.
        file: &'a str,
        /// What is there, an earlier call's part included.
        have: u64,
        /// All of it, when the server says so.
        total: Option<u64>,
    },
    /// Something went wrong; it is tried again.
    Retrying {
        /// The file.
        file: &'a str,
        /// What went wrong.
        problem: &'a str,
        /// How long until the next attempt.
        wait: Duration,
    },
    /// The digest is computed.
    Checking {
        /// The file.
        file: &'a str,
    },
    /// The archive is unpacked.
    Unpacking {
        /// The archive.
        file: &'a str,
    },
}

/// What a call has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Every file was there already, with the published digest.
    AlreadyThere,
    /// The files are there now.
    Fetched,
}

/// When to go on trying, and when to stop.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Attempts in a row that get no further.
    pub attempts: u32,
    /// The wait after the first of them; it doubles.
    pub pause: Duration,
    /// So long without a byte is a broken connection.
    pub stall: Duration,
}

/// Fetches one set.
///
/// ```no_run
/// use neurona::data::download::{self, Download};
/// Download::new(download::find("cifar10")?)?.run(&mut |event| println!("{event:?}"))?;
/// // In a closed network: from a folder, or from a mirror.
/// Download::new(download::find("mnist")?)?.from("/media/stick").run(&mut |_| {})?;
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Download {
    set: &'static Set,
    data: PathBuf,
    from: Option<String>,
    force: bool,
    patience: Patience,
}

impl Download {
    /// Fetches a set from its publishers to the user's [data folder](data_folder).
    pub fn new(set: &'static Set) -> Result<Self> {
        Ok(Self::to(set, data_folder()?))
    }

    /// Fetches a set to another folder of data sets.
    pub fn to(set: &'static Set, data: impl Into<PathBuf>) -> Self {
        let patience = Patience { attempts: 5, pause: Duration::from_secs(1), stall: Duration::from_secs(30) };
        Download { set, data: data.into(), from: None, force: false, patience }
    }

    /// The same from a mirror's address (`http://…` or `https://…`; the official file names are added to it), or from
    /// a folder that holds the official files or the official archive.
    pub fn from(mut self, from: impl Into<String>) -> Self {
        self.from = Some(from.into());
        self
    }

    /// The same even when everything is there already.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// The same with this many attempts that get no further before a mirror is given up (5), and this long without a
    /// byte before a connection is (30 seconds).
    pub fn patience(mut self, attempts: u32, stall: Duration) -> Self {
        (self.patience.attempts, self.patience.stall) = (attempts.max(1), stall);
        self
    }

    /// Where the set's files will be.
    pub fn folder(&self) -> PathBuf {
        self.data.join(self.set.folder)
    }

    /// Does it.
    pub fn run(&self, tell: &mut dyn FnMut(Event<'_>)) -> Result<Done> {
        let missing = match self.set.verify(&self.data)? {
            State::Complete if !self.force => return Ok(Done::AlreadyThere),
            State::Incomplete(missing) if !self.force => missing,
            _ => self.set.files.iter().map(|piece| piece.name).collect(),
        };
        let aside = self.data.join(".partial").join(self.set.name);
        let ready = aside.join("ready");
        fs::create_dir_all(&ready).map_err(|e| disk("make the folder", &ready, e))?;
        let _lock = lock(&aside)?;
        self.sweep(&ready)?;
        match self.from.as_deref() {
            Some(from) if !is_url(from) => folder::take(self.set, &missing, Path::new(from), &ready)?,
            _ => self.fetch(&missing, &aside, &ready, tell)?,
        }
        self.install(&ready)?;
        // Nothing of value is left in it, and a leftover harms nobody.
        let _ = fs::remove_dir_all(&aside);
        let _ = fs::remove_dir(self.data.join(".partial"));
        Ok(Done::Fetched)
    }

    fn fetch(&self, missing: &[&str], aside: &Path, ready: &Path, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let partial = |piece: &Piece| aside.join(piece.name).with_added_extension("part");
        if let Some(archive) = &self.set.archive {
            let partial = partial(archive);
            fetch::fetch(&self.urls(archive), archive, &partial, &self.patience, tell)?;
            tell(Event::Unpacking { file: archive.name });
            return unpack::unpack(self.set, &partial, ready);
        }
        for piece in self.set.files.iter().filter(|piece| missing.contains(&piece.name)) {
            let (partial, ready) = (partial(piece), ready.join(piece.name));
            // An earlier call may have got this far.
            if !ready.is_file() {
                fetch::fetch(&self.urls(piece), piece, &partial, &self.patience, tell)?;
                fs::rename(&partial, &ready).map_err(|e| disk("write", &ready, e))?;
            }
        }
        Ok(())
    }

    /// A call that was killed may have left half a file among those that are ready.
    fn sweep(&self, ready: &Path) -> Result<()> {
        for piece in self.set.files {
            for path in piece.names().map(|name| ready.join(name)).filter(|path| path.is_file()) {
                if piece.md5.is_none() || !check::is_right(piece, &path)? {
                    fs::remove_file(&path).map_err(|e| disk("remove", &path, e))?;
                }
            }
        }
        Ok(())
    }

    fn urls(&self, piece: &Piece) -> Vec<String> {
        match self.from.as_deref() {
            Some(url) if url.ends_with(piece.name) => vec![url.to_string()],
            Some(base) => vec![format!("{}/{}", base.trim_end_matches('/'), piece.name)],
            None => self.set.mirrors.iter().map(|base| format!("{base}{}", piece.name)).collect(),
        }
    }

    /// Puts checked files in their place: the whole folder at once where there is none, else file by file.
    fn install(&self, ready: &Path) -> Result<()> {
        let folder = self.folder();
        let failed = |e| disk("write", &folder, e);
        if fs::rename(ready, &folder).is_ok() {
            return Ok(());
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        for entry in fs::read_dir(ready).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let place = folder.join(entry.file_name());
            fs::rename(entry.path(), &place).map_err(|e| disk("write", &place, e))?;
        }
        Ok(())
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Two downloads of one set at a time would write into each other's files. The system lets go of the lock when the
/// process ends, however it ends.
fn lock(aside: &Path) -> Result<File> {
    let path = aside.join("lock");
    let failed = |e| disk("write", &path, e);
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(failed(io::Error::other("another download of this set is running; wait for it, or stop it")))
        }
        // Some network file systems have no locks: going without is better than not at all.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}
