//! What the user sees while it trains: bars where there is a terminal, and a line an epoch everywhere.

use crate::failure::{Failure, Outcome, say};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use neurona::train::{BatchEnd, Callback, Context, Row, peak_memory};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const EPOCHS: &str = "run    {bar:28} {pos}/{len} epochs  {msg}";
const STEPS: &str = "epoch  {bar:28} {pos}/{len} steps  {msg}";

/// The bars of one run; nothing when standard error is not a terminal.
pub struct Progress {
    bars: MultiProgress,
    epochs: ProgressBar,
    steps: ProgressBar,
    /// Images of the whole run, and of this process so far.
    images: u64,
    seen: u64,
    start: Instant,
    drawn: Instant,
    /// Why a line could not be printed.
    failure: Option<Failure>,
}

impl Progress {
    /// For a run over this many epochs of this many images.
    pub fn new(epochs: usize, images: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let style = |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let epochs_bar = bars.add(ProgressBar::new(epochs as u64).with_style(style(EPOCHS)));
        let steps = bars.add(ProgressBar::new(0).with_style(style(STEPS)));
        Progress {
            bars,
            epochs: epochs_bar,
            steps,
            images: (epochs * images) as u64,
            seen: 0,
            start: Instant::now(),
            drawn: Instant::now(),
            failure: None,
        }
    }

    /// Takes the bars away; fails when nobody reads what was printed.
    pub fn finish(&mut self) -> Outcome {
        self.steps.finish_and_clear();
        self.epochs.finish_and_clear();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn print(&mut self, line: &str) -> neurona::Result<()> {
        self.bars.suspend(|| say(line)).map_err(|failure| {
            self.failure = Some(failure);
            neurona::Error::Argument("the run's output cannot be written".to_string())
        })
    }

    /// Time left, by what this process has done so far.
    fn left(&self, at: &Context<'_>, batch: &BatchEnd) -> String {
        let done = (at.epoch - 1) as u64 * at.images as u64 + batch.epoch_images;
        let each = self.start.elapsed().as_secs_f64() / self.seen.max(1) as f64;
        time(each * self.images.saturating_sub(done) as f64)
    }
}

impl Callback for Progress {
    fn on_train_begin(&mut self, at: &mut Context<'_>) -> neurona::Result<()> {
        self.start = Instant::now();
        self.epochs.set_position(at.history.rows.len() as u64);
        Ok(())
    }

    fn on_epoch_begin(&mut self, at: &mut Context<'_>) -> neurona::Result<()> {
        self.steps.set_length(at.batches as u64);
        self.steps.set_position(at.first_batch as u64);
        Ok(())
    }

    fn on_batch_end(&mut self, at: &mut Context<'_>, batch: &BatchEnd) -> neurona::Result<()> {
        self.seen += batch.images as u64;
        // Words are made ten times a second, not a thousand times.
        if self.bars.is_hidden() || self.drawn.elapsed() < Duration::from_millis(100) {
            return Ok(());
        }
        self.drawn = Instant::now();
        let seconds = batch.seconds.max(1e-9);
        let accuracy = batch.epoch_accuracy()?.map_or(String::new(), |a| format!("  accuracy {:.1} %", 100.0 * a));
        self.steps.set_position(batch.batch as u64);
        self.steps.set_message(format!("loss {:.4}{accuracy}  lr {:.5}", batch.epoch_loss()?, at.lr));
        self.epochs.set_message(format!(
            "{} left  {:.0} images/s  waiting {:.0} %  {}",
            self.left(at, batch),
            batch.epoch_images as f64 / seconds,
            100.0 * batch.waiting_seconds / seconds,
            memory(peak_memory())
        ));
        Ok(())
    }

    fn on_validation_batch_end(&mut self, _at: &mut Context<'_>, done: usize, of: usize) -> neurona::Result<()> {
        if !self.bars.is_hidden() {
            self.steps.set_message(format!("validation {done}/{of}"));
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, at: &mut Context<'_>, row: &Row) -> neurona::Result<()> {
        self.epochs.set_position(row.epoch as u64);
        self.print(&line(row, at.epochs))
    }
}

/// An epoch as a line.
fn line(row: &Row, epochs: usize) -> String {
    let share = |value: Option<f64>| value.map_or("    –".to_string(), |v| format!("{:>5.1}", 100.0 * v));
    format!(
        "epoch {:>width$}/{epochs}  loss {:.4}  train {} %  val {} %  lr {:.5}  {:.0} images/s  waiting {:.0} %  {}  {:.1} s",
        row.epoch,
        row.train_loss,
        share(row.train_accuracy),
        share(row.val_accuracy),
        row.lr,
        row.images_per_s,
        100.0 * row.waiting,
        memory(row.memory_bytes),
        row.seconds,
        width = epochs.to_string().len(),
    )
}

/// Bytes of memory, in few letters.
pub fn memory(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb >= 10_000.0 => format!("{:.1} GB", mb / 1000.0),
        mb => format!("{mb:.0} MB"),
    }
}

fn time(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_times() {
        let row =
            Row { epoch: 3, train_loss: 0.5, val_accuracy: Some(0.875), memory_bytes: 120_000_000, ..Row::default() };
        let line = line(&row, 12);
        assert!(line.starts_with("epoch  3/12  loss 0.5000  train     – %  val  87.5 %"), "{line}");
        assert!(line.contains("120 MB"), "{line}");
        assert_eq!((time(59.4), time(61.0), time(7300.0)), ("59 s".into(), "1 min 01 s".into(), "2 h 01 min".into()));
    }
}
