//! A run as one file.

use super::epoch::Sums;
use super::fingerprint::Fingerprint;
use super::{History, Row};
use crate::io::{StateDict, safetensors};
use crate::tensor::random::Generator;
use crate::{Error, Result, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The note that says where a run was.
const NOTE: &str = "neurona.checkpoint";
const VERSION: u64 = 1;
/// What the training weights' names begin with, the optimizer's state, and the moving average in it.
const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const AVERAGE: &str = "optimizer.shadow.";
pub(super) const SCALER: &str = "run.scaler.";
/// The note that says which kernels a GPU ran.
const KERNELS: &str = "neurona.kernels";

/// A run at a moment between two steps: all that is needed to go on with the bits of a run that never stopped. One
/// safetensors file, whole or not there.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    /// `model.…`, `optimizer.…`, `callback.<kind>.<n>.…`, `run.…`.
    pub(super) tensors: StateDict,
    pub(super) position: Position,
    pub(super) fingerprint: Fingerprint,
    /// Notes of whoever made it.
    notes: BTreeMap<String, String>,
    kernels: Option<String>,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    /// Epochs done.
    pub epoch: usize,
    /// Batches done of the epoch after them.
    pub batch: usize,
    /// Updates of the weights so far.
    pub step: u64,
    /// Why a callback ended the run, when one did.
    pub stopped: Option<String>,
    pub generator: Generator,
    pub history: History,
    /// What the epoch that is not done has gathered.
    pub sums: Sums,
}

impl Checkpoint {
    pub(super) fn new(
        tensors: StateDict,
        position: Position,
        fingerprint: Fingerprint,
        notes: BTreeMap<String, String>,
        kernels: Option<String>,
    ) -> Self {
        Checkpoint { path: PathBuf::new(), tensors, position, fingerprint, notes, kernels }
    }

    /// Reads a checkpoint.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (tensors, mut notes) = safetensors::load_with_metadata(path)?;
        let wrong = |problem: &str| Error::Format { path: path.into(), problem: problem.into() };
        let note = notes.remove(NOTE).ok_or_else(|| {
            wrong(
                "is not a checkpoint of a run, though perhaps a model; checkpoints are in a run's folder 'checkpoints'",
            )
        })?;
        let note: Value = serde_json::from_str(&note).map_err(|e| wrong(&format!("has a broken note: {e}")))?;
        let version = note["version"].as_u64();
        if version != Some(VERSION) {
            let version = version.map_or("no version".into(), |v| format!("version {v}"));
            return Err(wrong(&format!("is a checkpoint of {version}; this program reads version {VERSION}")));
        }
        let position = Position::read(&note, &tensors).ok_or_else(|| wrong("is a checkpoint with parts missing"))?;
        let fingerprint = Fingerprint::read(&note["fingerprint"]);
        notes.remove("format");
        let kernels = notes.remove(KERNELS);
        Ok(Checkpoint { path: path.into(), tensors, position, fingerprint, notes, kernels })
    }

    /// Writes it: whole, or not at all.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let mut tensors = self.tensors.clone();
        let note = self.position.write(&mut tensors, self.fingerprint.write())?;
        let mut notes = self.notes.clone();
        notes.insert("format".into(), "pt".into());
        notes.insert(NOTE.into(), note.to_string());
        notes.extend(self.kernels.iter().map(|kernels| (KERNELS.to_string(), kernels.clone())));
        safetensors::save(path, &tensors, &notes)
    }

    /// Epochs done.
    pub fn epochs_done(&self) -> usize {
        self.position.epoch
    }

    /// What was measured so far.
    pub fn history(&self) -> &History {
        &self.position.history
    }

    /// Notes that [`Checkpoints::note`](super::Checkpoints::note) put in.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }

    /// The weights to use the model with: the moving average where the run kept one, else the network's own; with its
    /// statistics.
    pub fn weights(&self) -> StateDict {
        let mut weights = part(&self.tensors, MODEL);
        if self.fingerprint.averaged() {
            for (name, average) in part(&self.tensors, AVERAGE) {
                if weights.contains(&name) {
                    weights.insert(name, average);
                }
            }
        }
        weights
    }

    /// The weights that training goes on with.
    pub(super) fn own_weights(&self) -> StateDict {
        part(&self.tensors, MODEL)
    }

    pub(super) fn optimizer(&self) -> StateDict {
        part(&self.tensors, OPTIMIZER)
    }

    pub(super) fn scaler(&self) -> StateDict {
        part(&self.tensors, SCALER)
    }

    /// The kernels that the run chose on its GPU.
    pub(super) fn kernels(&self) -> Option<&str> {
        self.kernels.as_deref()
    }

    pub(super) fn callback(&self, name: &str) -> StateDict {
        part(&self.tensors, &callback(name))
    }

    /// An error about this file.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::Format { path: self.path.clone(), problem: problem.into() }
    }
}

/// The tensors of a run's parts, under the names they have in the file.
pub(super) fn gather(net: StateDict, optimizer: StateDict, callbacks: Vec<(String, StateDict)>) -> StateDict {
    let named = |prefix: String, state: StateDict| state.into_iter().map(move |(n, t)| (format!("{prefix}{n}"), t));
    let callbacks = callbacks.into_iter().flat_map(|(name, state)| named(callback(&name), state));
    named(MODEL.into(), net).chain(named(OPTIMIZER.into(), optimizer)).chain(callbacks).collect()
}

fn callback(name: &str) -> String {
    format!("callback.{name}.")
}

fn part(tensors: &StateDict, prefix: &str) -> StateDict {
    tensors.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value.clone()))).collect()
}

impl Position {
    /// The start of a run.
    pub fn start(generator: Generator) -> Self {
        let (history, sums) = (History::default(), Sums::default());
        Position { epoch: 0, batch: 0, step: 0, stopped: None, generator, history, sums }
    }

    /// Whole numbers go in a note. Numbers with a fraction go in tensors: their bits survive there.
    fn write(&self, tensors: &mut StateDict, fingerprint: Value) -> Result<Value> {
        let first = self.history.rows.first();
        let columns: Vec<&str> = first.map(|row| row.columns().map(|(name, _)| name).collect()).unwrap_or_default();
        let cell = |row: &Row, name: &&str| row.get(name).unwrap_or(f64::NAN);
        let values: Vec<f64> = self.history.rows.iter().flat_map(|row| columns.iter().map(|n| cell(row, n))).collect();
        let measured: Vec<bool> =
            self.history.rows.iter().flat_map(|row| columns.iter().map(|n| row.get(n).is_some())).collect();
        tensors.insert("run.measured", Tensor::from_vec(measured, [self.history.rows.len(), columns.len()])?);
        tensors.insert("run.history", Tensor::from_vec(values, [self.history.rows.len(), columns.len()])?);
        tensors.insert("run.sums", Tensor::from(self.sums.values()));
        Ok(json!({
            "version": VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "stopped": self.stopped,
            "seed": self.generator.seed,
            "draws": self.generator.counter,
            "columns": columns,
            "fingerprint": fingerprint,
        }))
    }

    fn read(note: &Value, tensors: &StateDict) -> Option<Self> {
        let columns: Vec<&str> = note["columns"].as_array()?.iter().map(|c| c.as_str()).collect::<Option<_>>()?;
        let values: Vec<f64> = tensors.get("run.history")?.to_vec().ok()?;
        let measured: Vec<bool> = tensors.get("run.measured")?.to_vec().ok()?;
        // A table without columns has no rows either.
        let width = columns.len().max(1);
        let rows = values.chunks_exact(width).zip(measured.chunks_exact(width)).map(|(values, measured)| {
            let cells = values.iter().zip(measured).map(|(value, there)| there.then_some(*value));
            Row::from_columns(columns.iter().copied().zip(cells))
        });
        Some(Position {
            epoch: usize::try_from(note["epoch"].as_u64()?).ok()?,
            batch: usize::try_from(note["batch"].as_u64()?).ok()?,
            step: note["step"].as_u64()?,
            stopped: note["stopped"].as_str().map(String::from),
            generator: Generator { seed: note["seed"].as_u64()?, counter: note["draws"].as_u64()? },
            history: History { rows: rows.collect() },
            sums: Sums::of(tensors.get("run.sums")?.to_vec().ok()?.try_into().ok()?),
        })
    }
}
