//! When and where a run is saved.

use super::Row;
use super::best::Best;
use super::checkpoint::Checkpoint;
use crate::io::atomic;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Saves a run in a folder: `last.safetensors` at the start, after every epoch and when the run is asked to stop, and as often as
/// told besides; `best.safetensors` when a measure is better than ever; `epoch-0010.safetensors` and so on.
///
/// ```
/// use neurona::train::Checkpoints;
/// use std::time::Duration;
/// let checkpoints = Checkpoints::new("runs/lab-1/checkpoints")
///     .best("val_accuracy")
///     .every_epochs(10)
///     .keep(3)
///     .every(Duration::from_secs(60));
/// # let _ = checkpoints;
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    best: Option<Best>,
    every_epochs: Option<usize>,
    keep: Option<usize>,
    every_steps: Option<u64>,
    every: Option<Duration>,
    notes: BTreeMap<String, String>,
    saved: Option<Instant>,
}

impl Checkpoints {
    /// In this folder, which is made when it is not there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Checkpoints {
            folder: folder.into(),
            best: None,
            every_epochs: None,
            keep: None,
            every_steps: None,
            every: None,
            notes: BTreeMap::new(),
            saved: None,
        }
    }

    /// Keeps the best epoch by this column. Losses and errors should be low, all else high.
    pub fn best(mut self, column: &str) -> Self {
        self.best = Some(Best::by(column));
        self
    }

    /// Keeps every n-th epoch under a name of its own.
    pub fn every_epochs(mut self, epochs: usize) -> Self {
        self.every_epochs = Some(epochs.max(1));
        self
    }

    /// Of those, only the newest.
    pub fn keep(mut self, newest: usize) -> Self {
        self.keep = Some(newest.max(1));
        self
    }

    /// Saves `last` after so many steps too.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.every_steps = Some(steps.max(1));
        self
    }

    /// Saves `last` after so much time too.
    pub fn every(mut self, time: Duration) -> Self {
        self.every = Some(time);
        self
    }

    /// A note that every file carries in its metadata.
    pub fn note(mut self, name: &str, value: impl Into<String>) -> Self {
        self.notes.insert(name.to_string(), value.into());
        self
    }

    /// The file that a run goes on from.
    pub fn last(&self) -> PathBuf {
        self.folder.join("last.safetensors")
    }

    /// The column that the best epoch is found by.
    pub(super) fn column(&self) -> Option<&str> {
        self.best.as_ref().map(|best| best.column())
    }

    pub(super) fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }

    /// The best value so far, which the files remember.
    pub(super) fn judge(&mut self) -> Option<&mut Best> {
        self.best.as_mut()
    }

    /// Makes the folder now: training for hours and then not being able to save would be a pity.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let failed = |source| Error::File { action: "make the folder", path: self.folder.clone(), source };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        for name in ["last", "best"] {
            atomic::sweep(&self.folder.join(format!("{name}.safetensors")));
        }
        self.saved = Some(Instant::now());
        Ok(())
    }

    /// Whether `last` is due after this step.
    pub(super) fn due(&self, step: u64) -> bool {
        let by_time = self.every.zip(self.saved).is_some_and(|(every, saved)| saved.elapsed() >= every);
        by_time || self.every_steps.is_some_and(|n| step.is_multiple_of(n))
    }

    /// Takes an epoch into account: whether it is the best so far.
    pub(super) fn is_best(&mut self, row: &Row) -> Result<bool> {
        self.best.as_mut().map_or(Ok(false), |best| best.improved(row))
    }

    /// Saves `last`.
    pub(super) fn save(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.save(&self.last()).map_err(advise)?;
        self.saved = Some(Instant::now());
        Ok(())
    }

    /// Saves an epoch wherever it belongs. `last` comes last: a run that goes on from it never claims a best that was
    /// not written.
    pub(super) fn save_epoch(&mut self, checkpoint: &Checkpoint, epoch: usize, best: bool) -> Result<()> {
        if best {
            checkpoint.save(&self.folder.join("best.safetensors")).map_err(advise)?;
        }
        if self.every_epochs.is_some_and(|n| epoch.is_multiple_of(n)) {
            let path = self.folder.join(format!("epoch-{epoch:04}.safetensors"));
            atomic::sweep(&path);
            checkpoint.save(&path).map_err(advise)?;
            self.forget_old()?;
        }
        self.save(checkpoint)
    }

    fn forget_old(&self) -> Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        let failed = |source| Error::File { action: "read the folder", path: self.folder.clone(), source };
        let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix("epoch-")?.split('.').next()?.parse().ok();
        let mut kept: Vec<(u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            kept.extend(number(&path).map(|n| (n, path)));
        }
        kept.sort();
        for (_, path) in kept.iter().rev().skip(keep) {
            fs::remove_file(path).map_err(|source| Error::File { action: "remove", path: path.clone(), source })?;
        }
        Ok(())
    }
}

/// Says what is left after a failed save.
fn advise(error: Error) -> Error {
    match error {
        Error::File { action, path, source } => {
            let text = format!("{source}; the checkpoints saved before are whole, make room and resume from the last");
            Error::File { action, path, source: std::io::Error::new(source.kind(), text) }
        }
        other => other,
    }
}
