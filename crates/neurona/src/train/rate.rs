//! What decides the learning rate of a run.

use super::Row;
use super::best::unknown;
use crate::Result;
use crate::optim::Optimizer;
use crate::schedule::{Plateau, Schedule};

/// What decides the learning rate.
pub(super) enum Rate<'a> {
    /// The optimizer's own.
    Fixed,
    /// A schedule of steps.
    Steps(Box<dyn Schedule + 'a>),
    /// A schedule of epochs; the first is 0.
    Epochs(Box<dyn Schedule + 'a>),
    /// A measure of every epoch.
    Plateau(Plateau, String),
}

impl Rate<'_> {
    /// Sets the rate of a step in an epoch.
    pub fn set(&self, optimizer: &mut dyn Optimizer, step: u64, epoch: usize) {
        match self {
            Rate::Fixed => {}
            Rate::Steps(schedule) => optimizer.set_lr(schedule.lr(step)),
            Rate::Epochs(schedule) => optimizer.set_lr(schedule.lr(epoch as u64)),
            Rate::Plateau(plateau, _) => optimizer.set_lr(plateau.lr()),
        }
    }

    /// Takes an epoch into account.
    pub fn epoch_ended(&mut self, row: &Row) -> Result<()> {
        if let Rate::Plateau(plateau, column) = self {
            plateau.step(row.get(column).ok_or_else(|| unknown(column, row))?);
        }
        Ok(())
    }

    /// The column that it needs.
    pub fn column(&self) -> Option<&str> {
        match self {
            Rate::Plateau(_, column) => Some(column),
            _ => None,
        }
    }

    /// What must be remembered of it.
    pub fn state(&self) -> Option<[f64; 4]> {
        match self {
            Rate::Plateau(plateau, _) => Some(plateau.state()),
            _ => None,
        }
    }

    /// Takes over what [`Rate::state`] gave.
    pub fn restore(&mut self, state: [f64; 4]) {
        if let Rate::Plateau(plateau, _) = self {
            plateau.restore(state);
        }
    }

    /// In words, the same for the same rates: a schedule is what it gives for some steps.
    pub fn describe(&self) -> String {
        let samples = |schedule: &dyn Schedule| {
            let steps = [0u64, 1, 2, 3, 5, 8, 13, 21, 34, 55, 100, 300, 1000, 3000, 10_000, 100_000];
            steps.map(|step| format!("{}", schedule.lr(step))).join(" ")
        };
        match self {
            Rate::Fixed => "fixed".into(),
            Rate::Steps(schedule) => format!("by step: {}", samples(schedule)),
            Rate::Epochs(schedule) => format!("by epoch: {}", samples(schedule)),
            Rate::Plateau(plateau, column) => format!("by {column}: {plateau:?}"),
        }
    }
}
