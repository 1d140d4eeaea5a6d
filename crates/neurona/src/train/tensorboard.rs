//! The history as TensorBoard's events.

use super::{BatchEnd, Callback, Context, EventFile, Row};
use crate::Result;
use std::path::PathBuf;

/// Writes the columns of every epoch for TensorBoard: `tensorboard --logdir runs`.
///
/// The step of a point is its epoch; `steps/loss` and `steps/lr`, where asked for, are by update of the weights.
///
/// ```
/// let board = neurona::train::TensorBoard::new("runs/lab-1/tensorboard").every_steps(100);
/// # let _ = board;
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    every_steps: Option<u64>,
    /// The update that was last written.
    written: u64,
    epochs: Option<EventFile>,
    steps: Option<EventFile>,
}

impl TensorBoard {
    /// In this folder. A run that goes on begins a new file there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        TensorBoard { folder: folder.into(), every_steps: None, written: 0, epochs: None, steps: None }
    }

    /// Loss and learning rate of every n-th update too, in a folder `steps` below.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.every_steps = Some(steps.max(1));
        self
    }
}

/// The tag of a column: `train_loss` becomes `train/loss`, so that TensorBoard shows what belongs together.
fn tag(column: &str) -> String {
    match column.split_once('_') {
        Some((set @ ("train" | "val"), what)) => format!("{set}/{what}"),
        _ if column == "lr" => column.to_string(),
        _ => format!("run/{column}"),
    }
}

impl Callback for TensorBoard {
    fn on_train_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
        // Older files know of epochs and updates that were lost with the process that wrote them.
        self.epochs = Some(EventFile::create(&self.folder, Some(at.history.rows.len() as u64 + 1))?);
        if self.every_steps.is_some() {
            // Apart: epochs and updates count differently, and forgetting is by file of one folder.
            self.steps = Some(EventFile::create(self.folder.join("steps"), Some(at.step + 1))?);
        }
        self.written = at.step;
        Ok(())
    }

    fn on_batch_end(&mut self, at: &mut Context<'_>, batch: &BatchEnd) -> Result<()> {
        let Some((events, every)) = self.steps.as_mut().zip(self.every_steps) else { return Ok(()) };
        if at.step == self.written || !at.step.is_multiple_of(every) {
            return Ok(());
        }
        self.written = at.step;
        events.scalars(at.step, &[("steps/loss", batch.loss()?), ("steps/lr", at.lr)])
    }

    fn on_epoch_end(&mut self, _at: &mut Context<'_>, row: &Row) -> Result<()> {
        let Some(events) = &mut self.epochs else { return Ok(()) };
        let columns = row.columns().filter(|(name, _)| *name != "epoch");
        let values: Vec<(String, f64)> = columns.filter_map(|(name, value)| Some((tag(name), value?))).collect();
        let values: Vec<(&str, f64)> = values.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        events.scalars(row.epoch as u64, &values)
    }
}
