//! What the user sees of a download: a bar where there is a terminal, a few lines where there is none.

use super::megabytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use neurona::data::download::{Event, Set};
use std::io::{IsTerminal, Write};

const BAR: &str = "{prefix} {bar:24} {bytes:>10} of {total_bytes}  {bytes_per_sec}  {eta} left";
/// The server does not say how much there is.
const COUNT: &str = "{prefix} {bytes:>10}  {bytes_per_sec}";
/// Without a terminal, a line each time so much more of a file has come.
const LINES: u64 = 5;

/// The progress of one set.
pub struct Progress {
    bar: ProgressBar,
    title: &'static str,
    file: String,
    /// Fifths of the file that have been told of.
    told: u64,
}

impl Progress {
    /// Nothing has come yet.
    pub fn new(set: &Set) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Progress { bar: ProgressBar::with_draw_target(None, target), title: set.title, file: String::new(), told: 0 }
    }

    /// Shows what happens.
    pub fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Bytes { file, have, total } => self.bytes(file, *have, *total),
            Event::Retrying { file, problem, wait } => {
                self.line(&format!("{file}: {problem}; trying again in {:.0} s", wait.as_secs_f64().ceil()));
            }
            Event::Unpacking { file } => self.line(&format!("{}: unpacking {file}", self.title)),
            _ => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn bytes(&mut self, file: &str, have: u64, total: Option<u64>) {
        if self.file != file {
            (self.file, self.told) = (file.to_string(), 0);
            let template = if total.is_some() { BAR } else { COUNT };
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar.set_style(style);
            self.bar.set_prefix(file.to_string());
            self.bar.reset();
            // What an earlier call had fetched would make the rate look marvellous.
            self.bar.set_position(have);
            self.bar.reset_eta();
        }
        match total {
            Some(total) => self.bar.set_length(total),
            None => self.bar.unset_length(),
        }
        self.bar.set_position(have);
        let Some(total) = total.filter(|total| *total > 0) else { return };
        let fifths = have * LINES / total;
        if self.bar.is_hidden() && fifths > self.told {
            self.told = fifths;
            self.line(&format!("{file}: {} % of {}", 100 * fifths / LINES, megabytes(total)));
        }
    }

    fn line(&self, text: &str) {
        // Standard error may be closed; the download goes on without telling.
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }
}
