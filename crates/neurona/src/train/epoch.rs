//! One epoch: a step for every batch.

use super::place::bring;
use super::run::Run;
use super::tally::classes;
use crate::data::Batch;
use crate::graph::engine;
use crate::optim::all_finite;
use crate::train::{BatchEnd, Callback};
use crate::{Device, Error, Result, Tensor};
use std::time::{Duration, Instant};

/// A GPU's losses are read at least this often, so that a run that has gone wrong ends soon.
const LOOK: Duration = Duration::from_secs(1);

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
        self.looked = Instant::now();
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
            let images = self.train_batch(&batch, group, full, asked)?;
            self.batch_end(images)?;
            if !full {
                continue;
            }
            waiting = 0;
            let interrupted = self.setup.stop.is_raised();
            if interrupted || self.setup.checkpoints.as_ref().is_some_and(|c| c.due(self.at.step)) {
                self.look()?;
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
        let start = Instant::now();
        self.look()?;
        self.at.sums.seconds += start.elapsed().as_secs_f64();
        self.check_weights()?;
        Ok(true)
    }

    fn batch_end(&mut self, images: usize) -> Result<()> {
        let (sums, tally) = (self.at.sums, self.tally.clone());
        let end = BatchEnd {
            batch: self.at.batch,
            images,
            epoch_images: sums.images as u64,
            seconds: sums.seconds,
            waiting_seconds: sums.waiting,
            sums: &sums,
            tally: &tally,
        };
        self.notify(&mut |callback: &mut dyn Callback, at| callback.on_batch_end(at, &end))
    }

    /// Reads what the steps so far add up to. A loss that is no number ends the run.
    pub(super) fn look(&mut self) -> Result<()> {
        self.looked = Instant::now();
        (self.at.sums.loss, self.at.sums.right) = self.tally.sums()?;
        if !self.at.sums.loss.is_finite() {
            let loss = self.tally.last()?;
            return Err(Error::Diverged { loss, epoch: self.at.epoch + 1, step: self.at.batch });
        }
        Ok(())
    }

    /// Weights may be lost while the loss before the step was still a number: a checkpoint of them must not take the
    /// place of the last good one.
    fn check_weights(&self) -> Result<()> {
        if self.setup.checkpoints.is_none() {
            return Ok(());
        }
        let values = |cell: &crate::Cell| cell.get();
        let (parameters, buffers) = (self.setup.net.parameters(), self.setup.net.named_buffers());
        let cells = parameters.iter().map(|p| p.cell()).chain(buffers.iter().map(|(_, buffer)| buffer.cell()));
        let weights: Vec<Tensor> = cells.map(values).collect::<Result<_>>()?;
        match all_finite(weights.iter().filter(|value| value.dtype().is_float()))?.item()? {
            true => Ok(()),
            false => Err(Error::Diverged { loss: f64::NAN, epoch: self.at.epoch + 1, step: self.at.batch }),
        }
    }

    /// Gives the number of its images.
    fn train_batch(&mut self, batch: &Batch, group: usize, update: bool, asked: Instant) -> Result<usize> {
        let images = batch.images.shape().first().copied().unwrap_or(0);
        let (mut x, mut y) = bring(batch, self.device)?;
        if let Some(augment) = &self.setup.augment {
            (x, y) = augment.apply_in_epoch(&x, &y, self.at.epoch as u64, &batch.indices)?;
        }
        let output = self.setup.net.forward(&x)?;
        let classes = classes(&output, &batch.labels, &y, self.setup.loss.classifies())?;
        let loss = self.setup.loss.loss(&output, &y)?;
        // Added up now, it is computed in the step's own plan.
        self.tally.add(&loss, &output, classes.as_ref(), images)?;
        drop(output);
        let scaled = match &self.setup.scaler {
            Some(scaler) => scaler.scale(&loss)?,
            None => loss.clone(),
        };
        match group {
            1 => scaled.backward()?,
            _ => scaled.mul_scalar(1.0 / group as f64)?.backward()?,
        }
        drop((loss, scaled));
        match update {
            true => self.update()?,
            false => {
                let parameters = self.setup.driver.optimizer().parameters();
                let gradients: Vec<Tensor> = parameters.iter().filter_map(|p| p.grad()).collect();
                engine::force(&gradients, &self.tally.cells())?;
            }
        }
        self.at.batch = batch.number + 1;
        self.at.sums.images += images as f64;
        if classes.is_some() {
            self.at.sums.counted += images as f64;
        }
        if self.device == Device::Cpu || self.looked.elapsed() >= LOOK {
            self.look()?;
        }
        self.at.sums.seconds += asked.elapsed().as_secs_f64();
        Ok(images)
    }

    fn update(&mut self) -> Result<()> {
        let (setup, sums) = (&mut self.setup, self.tally.cells());
        let optimizer = setup.driver.optimizer_mut();
        match &mut setup.scaler {
            Some(scaler) => {
                scaler.unscale(optimizer)?;
                setup.clip.apply(optimizer)?;
                scaler.step_with(optimizer, &sums)?;
                scaler.update()?;
            }
            None => {
                setup.clip.apply(optimizer)?;
                let mut cells = optimizer.stage()?;
                cells.extend(sums);
                engine::force(&[], &cells)?;
            }
        }
        self.at.step += 1;
        Ok(())
    }
}
