//! Going on with a run.

use super::session::Session;
use super::{apply_threads, introduce};
use crate::config::{self, Settings};
use crate::failure::{Failure, Outcome, say};
use crate::pipeline::{self, Parts};
use neurona::train::{Checkpoint, RunDir};
use std::path::{Path, PathBuf};

/// What may differ between the parts of a run without changing what it computes.
const FREE: [&str; 6] = ["threads", "workers", "device", "kernels", "checkpoint-every", "save-steps"];

/// Goes on with the run of this folder or checkpoint.
pub fn run(what: &Path, asked: &Settings) -> Outcome {
    let (folder, checkpoint) = find(what)?;
    let saved = config::read(&folder.path().join("config.toml"))?;
    let other: Vec<String> =
        config::pairs(asked).into_iter().map(|(key, _)| key).filter(|k| !FREE.contains(&k.as_str())).collect();
    if !other.is_empty() {
        return Err(Failure::Usage(format!(
            "--{} cannot be given with --resume: a run goes on with the settings it began with; \
             `neurona train --config {}` begins a new one",
            other.join(", --"),
            folder.path().join("config.toml").display()
        )));
    }
    let settings = config::merge(&saved, asked)?;
    apply_threads(settings.threads);
    // Read before anything else: most mistakes are a wrong file.
    let done = checkpoint.as_ref().map(|path| Checkpoint::open(path).map(|c| c.epochs_done())).transpose()?;
    let opened = pipeline::open(settings.data.as_deref().unwrap_or("embedded"))?;
    let parts = Parts::new(&opened, &settings)?;
    let (config, choices) = config::choose(settings, &pipeline::facts(&opened, &parts)?)?;
    let session = Session::new(&opened, parts, config)?;
    // A checkpoint has all weights; the file that the run began with may be gone.
    if done.is_none() {
        session.take_weights()?;
    }
    introduce(&opened, &session, &choices)?;
    let epochs = session.config.epochs;
    match done {
        Some(done) => say(format!("Going on after epoch {done} of {epochs}"))?,
        None => say("Nothing was saved yet: beginning again")?,
    }
    session.train(&folder, checkpoint.as_deref())
}

/// The folder of a run, and the checkpoint to go on from; none when it ended before it saved anything.
fn find(what: &Path) -> Outcome<(RunDir, Option<PathBuf>)> {
    let wrong = |problem: &str| Failure::Usage(format!("{}: {problem}", what.display()));
    if what.is_dir() {
        let checkpoint = what.join("checkpoints/last.safetensors");
        return match what.join("config.toml").is_file() {
            true => Ok((RunDir::open(what)?, Some(checkpoint).filter(|path| path.is_file()))),
            false => Err(wrong("is not the folder of a run: it has no config.toml")),
        };
    }
    if !what.is_file() {
        return Err(wrong("is no folder of a run and no checkpoint"));
    }
    let folder = what.canonicalize().ok().and_then(|p| p.parent()?.parent().map(Path::to_path_buf));
    match folder.filter(|folder| folder.join("config.toml").is_file()) {
        Some(folder) => Ok((RunDir::open(folder)?, Some(what.to_path_buf()))),
        None => Err(wrong("is not a checkpoint in a run's folder: there is no config.toml above it")),
    }
}
