//! A run: epochs, validation, callbacks and checkpoints in their order.

use super::checkpoint::{self, Checkpoint, Position, SCALER};
use super::epoch::Sums;
use super::fingerprint::Fingerprint;
use super::history::COLUMNS;
use super::place::device_of;
use super::tally::Tally;
use super::validate::{Measures, validate};
use super::{Callback, Context, Fit, Outcome, Row, Trainer, peak_memory};
use crate::data::{Augment, Batches};
use crate::optim::GradScaler;
use crate::tensor::random;
use crate::{DType, Device, Error, Result, Tensor, autocast, cuda};
use std::time::Instant;

pub(super) struct Run<'t, 'a> {
    pub setup: Trainer<'a>,
    pub train: &'t dyn Batches,
    pub at: Position,
    /// Where the network is.
    pub device: Device,
    pub tally: Tally,
    /// When it was last read.
    pub looked: Instant,
    fingerprint: Fingerprint,
    /// Batches of this epoch that an earlier process has done.
    first_batch: usize,
    resumed: bool,
}

impl<'t, 'a> Run<'t, 'a> {
    /// Everything as it was set up, or as the checkpoint says.
    pub fn begin(mut setup: Trainer<'a>, train: &'t dyn Batches) -> Result<Self> {
        check_columns(&setup)?;
        if let Some(device) = setup.device {
            setup.net.to_device(device)?;
        }
        let device = device_of(setup.net)?;
        if device != Device::Cpu && autocast() == Some(DType::F16) {
            setup.scaler.get_or_insert_with(GradScaler::new);
        }
        let fingerprint = Fingerprint::of(&setup, train);
        let resume = setup.resume.take();
        if let Some(checkpoint) = &resume {
            belongs(checkpoint, &fingerprint, &setup)?;
            // Before anything is planned: other kernels would give other bits.
            checkpoint.kernels().iter().for_each(|choices| cuda::choice::remember_kernel_choices(choices));
        }
        if let Some(checkpoints) = &mut setup.checkpoints {
            checkpoints.prepare()?;
        }
        // Visited, the parameters know their names: the average is saved under them.
        setup.net.named_parameters();
        setup.driver = setup.driver.averaged(setup.ema)?;
        let at = match &resume {
            Some(checkpoint) => restore(checkpoint, &mut setup)?,
            None => Position::start(random::generator()),
        };
        let (first_batch, tally) = (at.batch, Tally::new(device, at.sums.loss, at.sums.right)?);
        let (looked, resumed) = (Instant::now(), resume.is_some());
        Ok(Run { setup, train, at, device, tally, looked, fingerprint, first_batch, resumed })
    }

    /// Trains to the end, or until it is asked to stop.
    pub fn finish(mut self) -> Result<Fit> {
        self.notify(&mut |callback, at| callback.on_train_begin(at))?;
        if !self.resumed {
            // A run can go on from its very start, and one that cannot be saved ends before the work.
            self.save()?;
        }
        // An epoch that a callback has ended is validated before the run ends.
        while self.at.epoch < self.setup.epochs && (self.at.stopped.is_none() || self.at.batch > 0) {
            if self.setup.stop.is_raised() || !self.epoch()? {
                if self.at.batch == 0 {
                    self.save()?;
                }
                return Ok(self.ended(Outcome::Interrupted));
            }
        }
        self.setup.driver.apply_average()?;
        self.notify(&mut |callback, at| callback.on_train_end(at))?;
        let outcome = self.at.stopped.clone().map_or(Outcome::Finished, Outcome::Stopped);
        Ok(self.ended(outcome))
    }

    fn ended(self, outcome: Outcome) -> Fit {
        let checkpoint = self.setup.checkpoints.map(|c| c.last()).filter(|path| path.exists());
        Fit { history: self.at.history, outcome, checkpoint }
    }

    /// One epoch with its validation. False when the run was interrupted: it is saved then.
    fn epoch(&mut self) -> Result<bool> {
        self.notify(&mut |callback, at| callback.on_epoch_begin(at))?;
        if self.at.batch == 0 && self.at.stopped.is_some() {
            return Ok(true);
        }
        if !self.train_epoch()? {
            return Ok(false);
        }
        let Some(measures) = self.validate()? else {
            self.save()?;
            return Ok(false);
        };
        let row = self.row(measures);
        self.setup.rate.epoch_ended(&row)?;
        self.at.history.rows.push(row.clone());
        self.notify(&mut |callback, at| callback.on_epoch_end(at, &row))?;
        self.at.epoch += 1;
        (self.at.batch, self.at.sums, self.first_batch) = (0, Sums::default(), 0);
        self.tally.clear();
        if let Some(mut checkpoints) = self.setup.checkpoints.take() {
            let best = checkpoints.is_best(&row)?;
            self.setup.checkpoints = Some(checkpoints);
            let checkpoint = self.checkpoint()?;
            if let Some(checkpoints) = &mut self.setup.checkpoints {
                checkpoints.save_epoch(&checkpoint, row.epoch, best)?;
            }
        }
        Ok(true)
    }

    /// Nothing measured when there is no validation set; no result when it was interrupted.
    fn validate(&mut self) -> Result<Option<Option<Measures>>> {
        let Some(batches) = self.setup.validation else { return Ok(Some(None)) };
        let mut metrics = std::mem::take(&mut self.setup.metrics);
        self.setup.driver.apply_average()?;
        let (net, device, of) = (self.setup.net, self.device, batches.batches());
        let prepare = self.setup.augment.as_ref().map(Augment::evaluation);
        let loss = self.setup.validation_loss.as_ref().unwrap_or(&self.setup.loss).clone();
        let measured = validate(net, device, batches, prepare.as_ref(), &*loss, &mut metrics, &mut |done| {
            self.notify(&mut |callback, at| callback.on_validation_batch_end(at, done, of))?;
            Ok(!self.setup.stop.is_raised())
        });
        self.setup.metrics = metrics;
        self.setup.driver.restore_own()?;
        Ok(measured?.map(Some))
    }

    fn row(&self, measures: Option<Measures>) -> Row {
        let sums = &self.at.sums;
        let seconds = sums.seconds.max(f64::MIN_POSITIVE);
        let own = measures.iter().flat_map(|m| &m.own).map(|(name, value)| (format!("val_{name}"), *value));
        Row {
            epoch: self.at.epoch + 1,
            lr: self.setup.driver.optimizer().lr(),
            train_loss: sums.mean_loss(),
            train_accuracy: sums.accuracy(),
            val_loss: measures.as_ref().map(|m| m.loss),
            val_accuracy: measures.as_ref().and_then(|m| m.accuracy),
            images_per_s: sums.images / seconds,
            seconds: sums.seconds,
            waiting: (sums.waiting / seconds).min(1.0),
            memory_bytes: peak_memory(),
            own: own.collect(),
        }
    }

    /// Calls every callback, in order.
    pub fn notify(&mut self, call: &mut Call<'_>) -> Result<()> {
        let mut context = Context {
            net: self.setup.net,
            // After the last epoch there is no next.
            epoch: (self.at.epoch + 1).min(self.setup.epochs),
            epochs: self.setup.epochs,
            batches: self.train.batches(),
            images: self.train.images(),
            first_batch: self.first_batch,
            step: self.at.step,
            lr: self.setup.driver.optimizer().lr(),
            history: &self.at.history,
            driver: &self.setup.driver,
            stop: &mut self.at.stopped,
        };
        self.setup.callbacks.iter_mut().try_for_each(|(_, callback)| call(&mut **callback, &mut context))
    }

    /// Saves where the run is, where it has checkpoints.
    pub fn save(&mut self) -> Result<()> {
        if self.setup.checkpoints.is_none() {
            return Ok(());
        }
        let checkpoint = self.checkpoint()?;
        self.setup.checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.save(&checkpoint))
    }

    fn checkpoint(&mut self) -> Result<Checkpoint> {
        let state = |(name, callback): &(String, Box<dyn Callback + '_>)| Ok((name.clone(), callback.state_dict()?));
        let callbacks = self.setup.callbacks.iter().map(state).collect::<Result<Vec<_>>>()?;
        let optimizer = self.setup.driver.optimizer().state_dict()?;
        let mut tensors = checkpoint::gather(self.setup.net.state_dict()?, optimizer, callbacks);
        if let Some(state) = self.setup.rate.state() {
            tensors.insert("run.plateau", Tensor::from(state));
        }
        if let Some(scaler) = &self.setup.scaler {
            for (name, value) in scaler.state_dict() {
                tensors.insert(format!("{SCALER}{name}"), value);
            }
        }
        let mut notes = Default::default();
        if let Some(checkpoints) = &mut self.setup.checkpoints {
            notes = checkpoints.notes().clone();
            if let Some(best) = checkpoints.judge() {
                tensors.insert("run.best", Tensor::scalar(best.value().unwrap_or(f64::NAN)));
            }
        }
        let position = Position { generator: random::generator(), ..self.at.clone() };
        let kernels = (self.device != Device::Cpu).then(cuda::choice::kernel_choices);
        Ok(Checkpoint::new(tensors, position, self.fingerprint.clone(), notes, kernels))
    }
}

/// What is called on every callback.
pub(super) type Call<'c> = dyn FnMut(&mut dyn Callback, &mut Context<'_>) -> Result<()> + 'c;

/// Refuses a run whose parts need a column that it will not measure.
fn check_columns(setup: &Trainer<'_>) -> Result<()> {
    let validated = match setup.validation {
        Some(batches) if batches.batches() == 0 => return Err(Error::Argument("the validation set is empty".into())),
        other => other.is_some(),
    };
    let mut known: Vec<String> =
        COLUMNS.iter().filter(|c| validated || !c.starts_with("val_")).map(|c| c.to_string()).collect();
    known.extend(setup.metrics.iter().filter(|_| validated).map(|metric| format!("val_{}", metric.name())));
    let by_callbacks = setup.callbacks.iter().filter_map(|(_, callback)| callback.column());
    let by_checkpoints = setup.checkpoints.iter().filter_map(|checkpoints| checkpoints.column());
    for column in by_callbacks.chain(by_checkpoints).chain(setup.rate.column()) {
        if !known.iter().any(|name| name == column) {
            let hint = if column.starts_with("val_") && !validated { " (there is no validation set)" } else { "" };
            let known = known.join(", ");
            return Err(Error::Argument(format!("'{column}' is not measured in this run{hint}; there are {known}")));
        }
    }
    Ok(())
}

/// Refuses a checkpoint of another run, and says what differs.
fn belongs(checkpoint: &Checkpoint, now: &Fingerprint, setup: &Trainer<'_>) -> Result<()> {
    let differences = checkpoint.fingerprint.differences(now);
    if !differences.is_empty() {
        return Err(checkpoint.wrong(format!("is a checkpoint of another run: {}", differences.join("; "))));
    }
    if checkpoint.position.epoch > setup.epochs {
        let (done, epochs) = (checkpoint.position.epoch, setup.epochs);
        return Err(checkpoint.wrong(format!("has {done} epochs done, more than the {epochs} asked for")));
    }
    Ok(())
}

/// Gives every part of a run what the checkpoint has for it.
fn restore(checkpoint: &Checkpoint, setup: &mut Trainer<'_>) -> Result<Position> {
    let other = |what: &str, error: Error| checkpoint.wrong(format!("is a checkpoint of another {what}: {error}"));
    setup.net.load_state_dict(&checkpoint.own_weights(), true).map_err(|e| other("model", e))?;
    setup.driver.optimizer_mut().load_state_dict(&checkpoint.optimizer()).map_err(|e| other("optimizer", e))?;
    for (name, callback) in &mut setup.callbacks {
        callback.load_state_dict(&checkpoint.callback(name)).map_err(|e| other("callback", e))?;
    }
    if let Some(scaler) = &mut setup.scaler {
        scaler.load_state_dict(&checkpoint.scaler()).map_err(|e| other("precision", e))?;
    }
    let numbers = |name: &str| checkpoint.tensors.get(name).map(|t| t.to_vec::<f64>()).transpose();
    if let Some(state) = numbers("run.plateau")?.and_then(|values| values.try_into().ok()) {
        setup.rate.restore(state);
    }
    if let Some(best) = setup.checkpoints.as_mut().and_then(|checkpoints| checkpoints.judge()) {
        best.set(numbers("run.best")?.and_then(|values| values.first().copied()));
    }
    random::set_generator(checkpoint.position.generator);
    Ok(checkpoint.position.clone())
}
