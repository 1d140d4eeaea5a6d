//! Stopping when nothing gets better.

use super::best::Best;
use super::{Callback, Context, Row};
use crate::io::StateDict;
use crate::{Result, Tensor};

/// Ends a run when a column of its history has not improved for some epochs.
///
/// ```
/// use neurona::train::EarlyStopping;
/// let stopping = EarlyStopping::new("val_accuracy").patience(5).min_delta(0.001).restore_best();
/// # let _ = stopping;
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    best: Best,
    patience: usize,
    restore: bool,
    /// Epochs since the best.
    bad: usize,
    weights: Option<StateDict>,
}

impl EarlyStopping {
    /// By this column; losses and errors should be low, all else high. Ends after the first epoch that is no better,
    /// until told otherwise.
    pub fn new(column: &str) -> Self {
        EarlyStopping { best: Best::by(column), patience: 0, restore: false, bad: 0, weights: None }
    }

    /// Goes on for this many epochs that are no better.
    pub fn patience(mut self, epochs: usize) -> Self {
        self.patience = epochs;
        self
    }

    /// What improves by no more than this does not count.
    pub fn min_delta(mut self, delta: f64) -> Self {
        self.best.margin(delta.abs());
        self
    }

    /// For a column that should be high, whatever its name.
    pub fn highest(mut self) -> Self {
        self.best.towards(true);
        self
    }

    /// For a column that should be low, whatever its name.
    pub fn lowest(mut self) -> Self {
        self.best.towards(false);
        self
    }

    /// Gives the network the weights of the best epoch when the run ends.
    pub fn restore_best(mut self) -> Self {
        self.restore = true;
        self
    }
}

impl Callback for EarlyStopping {
    fn column(&self) -> Option<&str> {
        Some(self.best.column())
    }

    fn on_epoch_end(&mut self, at: &mut Context<'_>, row: &Row) -> Result<()> {
        if self.best.improved(row)? {
            self.bad = 0;
            if self.restore {
                self.weights = Some(at.weights()?);
            }
            return Ok(());
        }
        self.bad += 1;
        if self.bad > self.patience {
            at.stop(format!("{} has not improved for {} epochs", self.best.column(), self.bad));
        }
        Ok(())
    }

    fn on_train_end(&mut self, at: &mut Context<'_>) -> Result<()> {
        match &self.weights {
            Some(weights) => at.net.load_state_dict(weights, true).map(|_| ()),
            None => Ok(()),
        }
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        state.insert("best", Tensor::scalar(self.best.value().unwrap_or(f64::NAN)));
        state.insert("bad", Tensor::scalar(self.bad as i64));
        for (name, value) in self.weights.iter().flat_map(|weights| weights.iter()) {
            state.insert(format!("weights.{name}"), value.clone());
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.best.set(state.get("best").map(|best| best.item()).transpose()?);
        self.bad = state.get("bad").map(|bad| bad.item::<i64>()).transpose()?.unwrap_or(0) as usize;
        let weight = |(name, value): (&str, &Tensor)| Some((name.strip_prefix("weights.")?.to_string(), value.clone()));
        let weights: StateDict = state.iter().filter_map(weight).collect();
        self.weights = Some(weights).filter(|weights| !weights.is_empty());
        Ok(())
    }
}
