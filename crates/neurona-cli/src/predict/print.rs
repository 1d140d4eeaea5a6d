//! Answers as lines, JSON or CSV.

use super::{Answer, Format};
use crate::failure::{Outcome, say};
use crate::results::quoted;
use serde_json::json;

/// Prints answers as they come.
pub struct Printer {
    format: Format,
    first: bool,
}

impl Printer {
    /// In this format.
    pub fn new(format: Format) -> Self {
        Printer { format, first: true }
    }

    /// What comes before the answers.
    pub fn begin(&self) -> Outcome {
        match self.format {
            Format::Csv => say("file,rank,class,probability"),
            Format::Table | Format::Json => Ok(()),
        }
    }

    /// An answer.
    pub fn print(&mut self, answer: &Answer<'_>) -> Outcome {
        let file = answer.file.display().to_string();
        match self.format {
            Format::Table => {
                let classes = answer.top.iter().map(|(class, p)| format!("{class} {:.1} %", 100.0 * p));
                say(format!("{file}: {}", classes.collect::<Vec<_>>().join(", ")))?;
            }
            Format::Json => {
                let classes: Vec<_> =
                    answer.top.iter().map(|(class, p)| json!({ "class": class, "probability": p })).collect();
                let before = if self.first { "[" } else { "," };
                say(format!("{before}{}", json!({ "file": file, "classes": classes })))?;
            }
            Format::Csv => {
                for (rank, (class, p)) in answer.top.iter().enumerate() {
                    say(format!("{},{},{},{p:.6}", quoted(&file), rank + 1, quoted(class)))?;
                }
            }
        }
        self.first = false;
        Ok(())
    }

    /// What comes after them.
    pub fn end(&self) -> Outcome {
        match (self.format, self.first) {
            (Format::Json, true) => say("[]"),
            (Format::Json, false) => say("]"),
            _ => Ok(()),
        }
    }
}
