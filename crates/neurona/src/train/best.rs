//! Which epoch was the best so far.

use super::Row;
use crate::{Error, Result};

/// A column to be judged by, and the best value it has had.
#[derive(Clone, Debug)]
pub(super) struct Best {
    column: String,
    highest: bool,
    margin: f64,
    value: Option<f64>,
}

impl Best {
    /// Losses and errors should be low, all else high.
    pub fn by(column: &str) -> Self {
        let highest = !(column.contains("loss") || column.contains("error"));
        Best { column: column.to_string(), highest, margin: 0.0, value: None }
    }

    pub fn column(&self) -> &str {
        &self.column
    }

    pub fn towards(&mut self, highest: bool) {
        self.highest = highest;
    }

    /// What improves by no more than this does not count.
    pub fn margin(&mut self, margin: f64) {
        self.margin = margin;
    }

    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// Takes an epoch into account: whether it is the best so far.
    pub fn improved(&mut self, row: &Row) -> Result<bool> {
        let Some(value) = row.get(&self.column) else { return Err(unknown(&self.column, row)) };
        let gain = |best: f64| if self.highest { value - best } else { best - value };
        let better = self.value.is_none_or(|best| gain(best) > self.margin);
        // Nothing improves on NaN, and NaN improves on nothing.
        if better && !value.is_nan() {
            self.value = Some(value);
        }
        Ok(better && !value.is_nan())
    }

    /// The best value so far, from a checkpoint; NaN is none.
    pub fn set(&mut self, value: Option<f64>) {
        self.value = value.filter(|value| !value.is_nan());
    }
}

/// A column that is not there.
pub(super) fn unknown(column: &str, row: &Row) -> Error {
    let known: Vec<&str> = row.columns().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
    Error::Argument(format!("'{column}' was not measured; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_margins_and_nan() -> Result<()> {
        let row = |value| Row { val_loss: Some(value), val_accuracy: Some(value), ..Row::default() };
        let judge = |mut best: Best, values: [f64; 4]| values.map(|v| best.improved(&row(v)).unwrap());
        assert_eq!(judge(Best::by("val_loss"), [3.0, 2.0, f64::NAN, 2.0]), [true, true, false, false]);
        assert_eq!(judge(Best::by("val_accuracy"), [f64::NAN, 0.2, 0.1, 0.3]), [false, true, false, true]);
        let mut margin = Best::by("val_loss");
        margin.margin(0.5);
        assert_eq!(judge(margin, [3.0, 2.6, 2.4, 2.0]), [true, false, true, false]);
        let error = Best::by("val_f1").improved(&Row::default()).unwrap_err().to_string();
        assert!(error.starts_with("'val_f1' was not measured; there are epoch, lr, train_loss, "), "{error}");
        Ok(())
    }
}
