//! What the user sees while it trains: a bar where there is a terminal, and a line an epoch everywhere.

use crate::failure::{Outcome, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

const TEMPLATE: &str = "epoch {prefix} {bar:24} {percent:>3} %  {msg}";

/// The bar of one run; nothing when standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
    epochs: usize,
    start: Instant,
    step: usize,
}

impl Progress {
    /// For a run over this many epochs of this many images.
    pub fn new(epochs: usize, images: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(images as u64), target).with_style(style);
        Progress { bar, epochs, start: Instant::now(), step: 0 }
    }

    /// A new epoch begins.
    pub fn start_epoch(&mut self, epoch: usize) {
        self.bar.set_prefix(format!("{epoch}/{}", self.epochs));
        self.bar.set_position(0);
        self.start = Instant::now();
        self.step = 0;
    }

    /// A step is done.
    pub fn step(&mut self, images: usize, loss: f64, lr: f64) {
        self.step += 1;
        self.bar.inc(images as u64);
        let rate = self.bar.position() as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("step {}  {rate:.0} images/s  loss {loss:.4}  lr {lr:.4}", self.step));
        }
    }

    /// Prints a line above the bar.
    pub fn epoch_line(&self, line: &str) -> Outcome {
        self.bar.suspend(|| say(line))
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
