//! What was measured, epoch by epoch.

use serde_json::{Map, Value};

/// The columns every table has, in order.
pub(super) const COLUMNS: [&str; 10] = [
    "epoch",
    "lr",
    "train_loss",
    "train_accuracy",
    "val_loss",
    "val_accuracy",
    "images_per_s",
    "seconds",
    "waiting",
    "memory_bytes",
];

/// What was measured in an epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its number; the first is 1.
    pub epoch: usize,
    /// The learning rate of its last step.
    pub lr: f64,
    /// The mean loss of its steps.
    pub train_loss: f64,
    /// The share of training images that was right in its steps, where labels are classes.
    pub train_accuracy: Option<f64>,
    /// The mean loss on the validation set after it.
    pub val_loss: Option<f64>,
    /// The share of validation images that was right.
    pub val_accuracy: Option<f64>,
    /// How fast it trained.
    pub images_per_s: f64,
    /// How long it trained.
    pub seconds: f64,
    /// The share of that time spent waiting for data, from 0 to 1.
    pub waiting: f64,
    /// The most memory that the process has had so far.
    pub memory_bytes: u64,
    /// Measures of one's own, by column.
    pub own: Vec<(String, f64)>,
}

impl Row {
    /// The value of a column: `row.get("val_accuracy")`.
    pub fn get(&self, column: &str) -> Option<f64> {
        match column {
            "epoch" => Some(self.epoch as f64),
            "lr" => Some(self.lr),
            "train_loss" => Some(self.train_loss),
            "train_accuracy" => self.train_accuracy,
            "val_loss" => self.val_loss,
            "val_accuracy" => self.val_accuracy,
            "images_per_s" => Some(self.images_per_s),
            "seconds" => Some(self.seconds),
            "waiting" => Some(self.waiting),
            "memory_bytes" => Some(self.memory_bytes as f64),
            other => self.own.iter().find(|(name, _)| name == other).map(|(_, value)| *value),
        }
    }

    /// Every column with its value.
    pub fn columns(&self) -> impl Iterator<Item = (&str, Option<f64>)> {
        let own = self.own.iter().map(|(name, value)| (name.as_str(), Some(*value)));
        COLUMNS.iter().map(|name| (*name, self.get(name))).chain(own)
    }

    /// The row that has these columns.
    pub(super) fn from_columns<'a>(columns: impl Iterator<Item = (&'a str, Option<f64>)>) -> Self {
        let mut row = Row::default();
        for (name, value) in columns {
            let plain = value.unwrap_or_default();
            match name {
                "epoch" => row.epoch = plain as usize,
                "lr" => row.lr = plain,
                "train_loss" => row.train_loss = plain,
                "train_accuracy" => row.train_accuracy = value,
                "val_loss" => row.val_loss = value,
                "val_accuracy" => row.val_accuracy = value,
                "images_per_s" => row.images_per_s = plain,
                "seconds" => row.seconds = plain,
                "waiting" => row.waiting = plain,
                "memory_bytes" => row.memory_bytes = plain as u64,
                own => row.own.extend(value.map(|value| (own.to_string(), value))),
            }
        }
        row
    }

    /// As a line of JSON; what was not measured is null.
    pub fn json(&self) -> String {
        let value = |(name, value): (&str, Option<f64>)| {
            let value = match (name, value) {
                ("epoch" | "memory_bytes", Some(value)) => Value::from(value as u64),
                (_, value) => Value::from(value),
            };
            (name.to_string(), value)
        };
        Value::Object(self.columns().map(value).collect::<Map<_, _>>()).to_string()
    }
}

/// What was measured, a row an epoch.
///
/// ```
/// use neurona::train::{History, Row};
/// let row = |epoch, val_loss| Row { epoch, val_loss: Some(val_loss), ..Row::default() };
/// let history = History { rows: vec![row(1, 0.9), row(2, 0.5), row(3, 0.6)] };
/// assert_eq!(history.column("val_loss"), [0.9, 0.5, 0.6]);
/// assert_eq!(history.lowest("val_loss").unwrap().epoch, 2);
/// assert!(history.csv().starts_with("epoch,lr,train_loss,train_accuracy,val_loss,"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// In order.
    pub rows: Vec<Row>,
}

impl History {
    /// The values of a column, as far as it was measured.
    pub fn column(&self, name: &str) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.get(name)).collect()
    }

    /// The last epoch.
    pub fn last(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// The epoch in which a column was highest; the first of equals.
    pub fn highest(&self, column: &str) -> Option<&Row> {
        self.best(column, |a, b| a > b)
    }

    /// The epoch in which a column was lowest; the first of equals.
    pub fn lowest(&self, column: &str) -> Option<&Row> {
        self.best(column, |a, b| a < b)
    }

    fn best(&self, column: &str, better: fn(f64, f64) -> bool) -> Option<&Row> {
        let measured = self.rows.iter().filter_map(|row| Some((row, row.get(column)?)));
        measured.reduce(|best, new| if better(new.1, best.1) { new } else { best }).map(|(row, _)| row)
    }

    /// As a table, every number with all the digits it has; what was not measured is empty.
    pub fn csv(&self) -> String {
        let own = self.rows.first().map(|row| row.own.as_slice()).unwrap_or_default();
        let head: Vec<&str> = COLUMNS.into_iter().chain(own.iter().map(|(name, _)| name.as_str())).collect();
        let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let line = |row: &Row| head.iter().map(|name| cell(row.get(name))).collect::<Vec<_>>().join(",") + "\n";
        head.join(",") + "\n" + &self.rows.iter().map(line).collect::<String>()
    }

    /// As lines of JSON.
    pub fn jsonl(&self) -> String {
        self.rows.iter().map(|row| row.json() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_their_columns() {
        let row = Row {
            epoch: 3,
            lr: 0.1,
            train_loss: 1.0 / 3.0,
            train_accuracy: Some(0.5),
            memory_bytes: 1 << 33,
            own: vec![("val_top5".into(), 0.25)],
            ..Row::default()
        };
        assert_eq!(Row::from_columns(row.columns()), row);
        let history = History { rows: vec![row] };
        let csv = history.csv();
        assert_eq!(csv.lines().nth(1).unwrap(), "3,0.1,0.3333333333333333,0.5,,,0,0,0,8589934592,0.25");
        let json: Value = serde_json::from_str(&history.jsonl()).unwrap();
        assert_eq!((json["epoch"].as_u64(), json["val_loss"].is_null()), (Some(3), true));
        assert_eq!(json["val_top5"].as_f64(), Some(0.25));
        assert!(History::default().csv().ends_with("memory_bytes\n"));
    }
}
