//! The history as files.

use super::{Callback, Context, History, Row};
use crate::Result;
use crate::io::atomic;
use std::path::PathBuf;

/// Every epoch the file is written anew, beside its place, and renamed: nobody ever reads half a line, and a run that
/// goes on from a checkpoint begins with exactly the rows of that checkpoint.
macro_rules! log {
    ($(#[$doc:meta])* $Type:ident, $text:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Type(PathBuf);

        impl $Type {
            /// In this file, which is replaced when it is there.
            pub fn new(path: impl Into<PathBuf>) -> Self {
                $Type(path.into())
            }

            fn write(&self, history: &History) -> Result<()> {
                let text = history.$text();
                atomic::write(&self.0, |file| file.write_all(text.as_bytes()))
            }
        }

        impl Callback for $Type {
            fn on_train_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
                atomic::sweep(&self.0);
                self.write(at.history)
            }

            fn on_epoch_end(&mut self, at: &mut Context<'_>, _row: &Row) -> Result<()> {
                self.write(at.history)
            }
        }
    };
}

log! {
    /// Writes a table, a line an epoch: `metrics.csv`.
    ///
    /// ```
    /// # let folder = std::env::temp_dir();
    /// let log = neurona::train::CsvLog::new(folder.join("metrics.csv"));
    /// # let _ = log;
    /// ```
    CsvLog, csv
}
log! {
    /// Writes a JSON object a line, a line an epoch: `metrics.jsonl`.
    JsonLines, jsonl
}
