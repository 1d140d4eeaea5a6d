//! One epoch: a step for every batch.

use super::run::Run;
use crate::data::Batch;
use crate::metrics::logits::class_numbers;
use crate::train::{BatchEnd, Callback};
use crate::{Error, Result, Tensor};
use std::time::Instant;

/// What the steps of an epoch add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// Losses, each times the images of its batch.
    pub loss: f64,
    /// Images that were right, of those whose labels are classes.
    pub right: f64,
    pub counted: f64,
    pub images: f64,
    pub seconds: f64,
    /// Of them, waiting for data.
    pub waiting: f64,
}

impl Sums {
    pub fn values(&self) -> [f64; 6] {
        [self.loss, self.right, self.counted, self.images, self.seconds, self.waiting]
    }

    pub fn of([loss, right, counted, images, seconds, waiting]: [f64; 6]) -> Self {
        Sums { loss, right, counted, images, seconds, waiting }
    }

    pub fn mean_loss(&self) -> f64 {
        self.loss / self.images.max(1.0)
    }

    pub fn accuracy(&self) -> Option<f64> {
        (self.counted > 0.0).then(|| self.right / self.counted)
    }
}

impl Run<'_, '_> {
    /// Trains on the batches that are left of the epoch. False when the run was interrupted: it is saved then.
    pub(super) fn train_epoch(&mut self) -> Result<bool> {
        let (train, total) = (self.train, self.train.batches());
        if self.at.batch >= total || self.at.stopped.is_some() {
            return Ok(true);
        }
        self.setup.net.train();
        let mut batches = train.epoch(self.at.epoch as u64, self.at.batch)?;
        // Batches whose gradients wait for an update, and how many an update is made of.
        let (mut waiting, mut group) = (0, 1);
        loop {
            let asked = Instant::now();
            let next = batches.next();
            self.at.sums.waiting += asked.elapsed().as_secs_f64();
            let Some(batch) = next.transpose()? else { break };
            if waiting == 0 {
                self.setup.rate.set(self.setup.driver.optimizer_mut(), self.at.step, self.at.epoch);
                self.setup.driver.optimizer_mut().zero_grad();
                group = self.setup.accumulate.min(total.saturating_sub(self.at.batch)).max(1);
            }
            waiting += 1;
            let full = waiting == group;
            let end = self.train_batch(&batch, group, full, asked)?;
            self.notify(&mut |callback: &mut dyn Callback, at| callback.on_batch_end(at, &end))?;
            if !full {
                continue;
            }
            waiting = 0;
            let interrupted = self.setup.stop.is_raised();
            if interrupted || self.setup.checkpoints.as_ref().is_some_and(|c| c.due(self.at.step)) {
                self.check_weights()?;
                self.save()?;
            }
            if interrupted {
                return Ok(false);
            }
            if self.at.stopped.is_some() {
                break;
            }
        }
        // A loader that leaves bad images out may give fewer batches than it had announced.
        if waiting > 0 {
            self.update()?;
        }
        self.check_weights()?;
        Ok(true)
    }

    /// Weights may be lost while the loss before the step was still a number: a checkpoint of them must not take the
    /// place of the last good one.
    fn check_weights(&self) -> Result<()> {
        if self.setup.checkpoints.is_none() {
            return Ok(());
        }
        for (_, value) in self.setup.net.state_dict()?.iter().filter(|(_, value)| value.dtype().is_float()) {
            if value.to_vec::<f32>()?.iter().any(|v| !v.is_finite()) {
                return Err(Error::Diverged { loss: f64::NAN, epoch: self.at.epoch + 1, step: self.at.batch });
            }
        }
        Ok(())
    }

    fn train_batch(&mut self, batch: &Batch, group: usize, update: bool, asked: Instant) -> Result<BatchEnd> {
        let images = batch.images.shape().first().copied().unwrap_or(0);
        let output = self.setup.net.forward(&batch.images)?;
        let labels = classes(&output, &batch.labels, self.setup.loss.classifies())?;
        let loss = self.setup.loss.loss(&output, &batch.labels)?;
        // Asked for now, it is computed in the step's own plan.
        let guesses = labels.is_some().then(|| output.argmax(1)).transpose()?;
        match group {
            1 => loss.backward()?,
            _ => loss.mul_scalar(1.0 / group as f64)?.backward()?,
        }
        if update {
            self.update()?;
        }
        let loss = loss.item::<f64>()?;
        self.at.batch = batch.number + 1;
        if !loss.is_finite() {
            return Err(Error::Diverged { loss, epoch: self.at.epoch + 1, step: self.at.batch });
        }
        let sums = &mut self.at.sums;
        if let (Some(labels), Some(guesses)) = (labels, guesses) {
            let guesses = guesses.to_vec::<i64>()?;
            sums.right += labels.iter().zip(guesses).filter(|(label, guess)| **label as i64 == *guess).count() as f64;
            sums.counted += images as f64;
        }
        sums.loss += loss * images as f64;
        sums.images += images as f64;
        sums.seconds += asked.elapsed().as_secs_f64();
        Ok(BatchEnd {
            batch: self.at.batch,
            images,
            loss,
            epoch_images: sums.images as u64,
            epoch_loss: sums.mean_loss(),
            epoch_accuracy: sums.accuracy(),
            seconds: sums.seconds,
            waiting_seconds: sums.waiting,
        })
    }

    fn update(&mut self) -> Result<()> {
        self.setup.clip.apply(self.setup.driver.optimizer())?;
        self.setup.driver.optimizer_mut().step()?;
        self.at.step += 1;
        Ok(())
    }
}

/// The labels as class numbers, where that is what they are. One that is no class is an error: as a target it would
/// only make the loss NaN.
pub(super) fn classes(output: &Tensor, labels: &Tensor, classifies: bool) -> Result<Option<Vec<usize>>> {
    match output.shape()[..] {
        [rows, classes] if classes > 0 && (classifies || !labels.dtype().is_float()) => {
            class_numbers(labels, rows, classes).map(Some)
        }
        _ => Ok(None),
    }
}
