//! The epochs of a run, as metrics.csv has them.

use crate::failure::{Failure, Outcome};
use std::path::Path;

/// What one epoch came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// Its number; the first is 1.
    pub epoch: usize,
    /// The learning rate of its last step.
    pub lr: f64,
    /// The mean loss of its steps.
    pub train_loss: f64,
    /// The share of training images recognised in its steps.
    pub train_accuracy: f64,
    /// The loss on the validation images after it.
    pub val_loss: f64,
    /// The share of validation images recognised after it.
    pub val_accuracy: f64,
    /// How fast it trained.
    pub images_per_s: f64,
    /// How long it trained.
    pub seconds: f64,
}

/// Reads metrics.csv. Columns are found by name, so that more of them do no harm.
pub fn read_history(path: &Path) -> Outcome<Vec<Epoch>> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, e))?;
    parse(&text).map_err(|problem| Failure::Told(format!("{}: {problem}", path.display())))
}

fn parse(text: &str) -> Result<Vec<Epoch>, String> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| head.iter().position(|h| *h == name);
    if place("epoch").is_none() {
        return Err("is not a table of epochs: its first line has no column 'epoch'".to_string());
    }
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |name| place(name).and_then(|i| cells.get(i)?.parse().ok()).unwrap_or(f64::NAN);
        Epoch {
            epoch: number("epoch") as usize,
            lr: number("lr"),
            train_loss: number("train_loss"),
            train_accuracy: number("train_accuracy"),
            val_loss: number("val_loss"),
            val_accuracy: number("val_accuracy"),
            images_per_s: number("images_per_s"),
            seconds: number("seconds"),
        }
    };
    Ok(lines.filter(|line| !line.trim().is_empty()).map(row).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Epochs that go as one would hope.
    pub(crate) fn epochs(n: usize) -> Vec<Epoch> {
        let epoch = |i: usize| Epoch {
            epoch: i + 1,
            lr: 0.1 / (i + 1) as f64,
            train_loss: 1.0 / (i + 1) as f64,
            train_accuracy: 1.0 - 0.5 / (i + 1) as f64,
            val_loss: 1.1 / (i + 1) as f64 + 0.1,
            val_accuracy: 0.95 - 0.5 / (i + 1) as f64,
            images_per_s: 1000.0,
            seconds: 2.0,
        };
        (0..n).map(epoch).collect()
    }

    #[test]
    fn columns_go_by_name_and_what_is_missing_is_no_number() {
        let epochs = parse("seconds,epoch,train_loss,new\n2.5,1,0.5,x\n\n2.0,2,,y\n").unwrap();
        assert_eq!((epochs.len(), epochs[0].epoch, epochs[0].seconds, epochs[0].train_loss), (2, 1, 2.5, 0.5));
        assert!(epochs[1].train_loss.is_nan() && epochs[0].val_loss.is_nan());
        assert!(parse("hello").is_err());
    }
}
