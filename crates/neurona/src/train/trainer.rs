//! How a run is set up.

use super::checkpoint::Checkpoint;
use super::rate::Rate;
use super::run::Run;
use super::{Callback, Checkpoints, History, StopFlag};
use crate::data::{Augment, Batches};
use crate::io::StateDict;
use crate::loss::{CrossEntropyLoss, Loss};
use crate::metrics::Metric;
use crate::nn::Forward;
use crate::optim::{Ema, GradScaler, Optimizer, clip_grad_norm, clip_grad_value};
use crate::schedule::{Plateau, Schedule};
use crate::{Device, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Trains a network: epochs, validation, schedules, callbacks, checkpoints. [`Trainer::run`] starts it.
///
/// The batches of an epoch depend on its number alone, and random numbers on the process's generator
/// ([`manual_seed`](crate::manual_seed)), so that a run that was interrupted and resumed ends with the bits of one that
/// was not. See [the room's page](crate::train) for an example.
pub struct Trainer<'a> {
    pub(super) net: &'a dyn Forward,
    pub(super) driver: Driver<'a>,
    pub(super) optimizer_name: &'static str,
    pub(super) loss: Arc<dyn Loss + 'a>,
    pub(super) validation_loss: Option<Arc<dyn Loss + 'a>>,
    pub(super) epochs: usize,
    pub(super) rate: Rate<'a>,
    pub(super) accumulate: usize,
    pub(super) clip: Clip,
    pub(super) device: Option<Device>,
    pub(super) scaler: Option<GradScaler>,
    pub(super) augment: Option<Augment>,
    /// Decay, and whether it begins low.
    pub(super) ema: Option<(f64, bool)>,
    pub(super) validation: Option<&'a dyn Batches>,
    pub(super) metrics: Vec<Box<dyn Metric + 'a>>,
    /// Each with the name that its state is saved under.
    pub(super) callbacks: Vec<(String, Box<dyn Callback + 'a>)>,
    pub(super) checkpoints: Option<Checkpoints>,
    pub(super) stop: StopFlag,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) resume: Option<Checkpoint>,
}

/// What becomes of large gradients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clip {
    Never,
    Norm(f64),
    Value(f64),
}

impl Clip {
    pub fn apply(self, optimizer: &dyn Optimizer) -> Result<()> {
        match self {
            Clip::Never => Ok(()),
            Clip::Norm(most) => clip_grad_norm(optimizer.parameters(), most).map(|_| ()),
            Clip::Value(limit) => clip_grad_value(optimizer.parameters(), limit),
        }
    }
}

/// The optimizer of a run, with the moving average of the weights where there is one.
pub(super) enum Driver<'a> {
    Plain(Box<dyn Optimizer + 'a>),
    Averaged(Box<Ema<Box<dyn Optimizer + 'a>>>),
}

impl<'a> Driver<'a> {
    /// The same optimizer, from now on with an average of this decay, where there is to be one.
    pub fn averaged(self, ema: Option<(f64, bool)>) -> Result<Self> {
        match (self, ema) {
            (Driver::Plain(optimizer), Some((decay, warm_up))) => {
                let ema = Ema::new(optimizer, decay)?;
                Ok(Driver::Averaged(Box::new(if warm_up { ema.warm_up() } else { ema })))
            }
            (driver, _) => Ok(driver),
        }
    }

    pub fn optimizer(&self) -> &(dyn Optimizer + 'a) {
        match self {
            Driver::Plain(optimizer) => optimizer,
            Driver::Averaged(ema) => &**ema,
        }
    }

    pub fn optimizer_mut(&mut self) -> &mut (dyn Optimizer + 'a) {
        match self {
            Driver::Plain(optimizer) => optimizer,
            Driver::Averaged(ema) => &mut **ema,
        }
    }

    /// Gives the network the average, where there is one.
    pub fn apply_average(&mut self) -> Result<()> {
        if let Driver::Averaged(ema) = self { ema.apply() } else { Ok(()) }
    }

    /// Gives it its own weights again.
    pub fn restore_own(&mut self) -> Result<()> {
        if let Driver::Averaged(ema) = self { ema.restore() } else { Ok(()) }
    }

    /// The weights that validation is done with.
    pub fn weights(&self, net: &dyn Forward) -> Result<StateDict> {
        let mut weights = net.state_dict()?;
        if let Driver::Averaged(ema) = self {
            for (name, average) in ema.average()? {
                if weights.contains(&name) {
                    weights.insert(name, average);
                }
            }
        }
        Ok(weights)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With its last epoch.
    Finished,
    /// A callback ended it, for this reason.
    Stopped(String),
    /// Its [`StopFlag`] was raised; with checkpoints it can go on from the last.
    Interrupted,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Fit {
    /// What was measured, an epoch a row.
    pub history: History,
    /// How it ended.
    pub outcome: Outcome,
    /// The checkpoint to go on from, where there is one.
    pub checkpoint: Option<PathBuf>,
}

impl<'a> Trainer<'a> {
    /// Trains a network with an optimizer: one epoch, cross-entropy, until told otherwise.
    pub fn new<O: Optimizer + 'a>(net: &'a dyn Forward, optimizer: O) -> Self {
        Trainer {
            net,
            driver: Driver::Plain(Box::new(optimizer)),
            optimizer_name: std::any::type_name::<O>(),
            loss: Arc::new(CrossEntropyLoss::new()),
            validation_loss: None,
            epochs: 1,
            rate: Rate::Fixed,
            accumulate: 1,
            clip: Clip::Never,
            device: None,
            scaler: None,
            augment: None,
            ema: None,
            validation: None,
            metrics: Vec::new(),
            callbacks: Vec::new(),
            checkpoints: None,
            stop: StopFlag::new(),
            settings: BTreeMap::new(),
            resume: None,
        }
    }

    /// With this loss. Class weights and label smoothing are [`CrossEntropyLoss`]'s.
    pub fn loss(mut self, loss: impl Loss + 'a) -> Self {
        self.loss = Arc::new(loss);
        self
    }

    /// With another loss on the validation set; it is the same until told otherwise, as in Keras.
    pub fn validation_loss(mut self, loss: impl Loss + 'a) -> Self {
        self.validation_loss = Some(Arc::new(loss));
        self
    }

    /// On this device: the network is moved there when the run begins. Without it the run is where the network is.
    /// Batches may come from anywhere.
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// With images of bytes ([`DataLoader::bytes`](crate::data::DataLoader::bytes)) made numbers, normalised and varied
    /// on the device, as part of the step; those for validation are not varied.
    ///
    /// ```
    /// use neurona::data::{Augment, DataLoader, embedded};
    /// use neurona::nn::{Flatten, Linear, Module, Sequential};
    /// use neurona::{optim::Sgd, train::Trainer};
    /// let set = embedded::fashion_mnist()?;
    /// let train = DataLoader::new(set.train, 64)?.bytes().shuffle(true);
    /// let test = DataLoader::new(set.test, 64)?.bytes();
    /// let net = Sequential::new().add(Flatten::new()).add(Linear::new(784, 10)?);
    /// let fit = Trainer::new(&net, Sgd::new(net.parameters(), 0.02).momentum(0.9))
    ///     .augment(Augment::new().normalize(&[0.286], &[0.353])?.random_crop(1).horizontal_flip(0.5)?)
    ///     .validation(&test)
    ///     .run(&train)?;
    /// assert!(fit.history.last().unwrap().val_accuracy > Some(0.6));
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }

    /// With losses scaled up for gradients of few bits. A run on a GPU in f16 ([`set_autocast`](crate::set_autocast))
    /// has one by itself.
    pub fn grad_scaler(mut self, scaler: GradScaler) -> Self {
        self.scaler = Some(scaler);
        self
    }

    /// For this many epochs; those of an earlier process count.
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.epochs = epochs;
        self
    }

    /// With a learning rate for every step.
    pub fn schedule(mut self, schedule: impl Schedule + 'a) -> Self {
        self.rate = Rate::Steps(Box::new(schedule));
        self
    }

    /// With a learning rate for every epoch; the first is 0.
    pub fn epoch_schedule(mut self, schedule: impl Schedule + 'a) -> Self {
        self.rate = Rate::Epochs(Box::new(schedule));
        self
    }

    /// With a learning rate that falls when a column of the history, such as `val_loss`, gets no better.
    pub fn plateau(mut self, plateau: Plateau, column: &str) -> Self {
        self.rate = Rate::Plateau(plateau, column.to_string());
        self
    }

    /// One update for this many batches (at least one), with the mean of their gradients.
    pub fn accumulate(mut self, batches: usize) -> Self {
        self.accumulate = batches.max(1);
        self
    }

    /// Gradients are scaled down when the norm of all together is greater than this.
    pub fn clip_norm(mut self, most: f64) -> Self {
        self.clip = Clip::Norm(most);
        self
    }

    /// Every element of a gradient is cut to lie between `-limit` and `limit`.
    pub fn clip_value(mut self, limit: f64) -> Self {
        self.clip = Clip::Value(limit);
        self
    }

    /// Keeps a moving average of the weights, see [`Ema`]. Validation is done with it, and the network has it when
    /// the run ends.
    pub fn ema(mut self, decay: f64) -> Self {
        self.ema = Some((decay, false));
        self
    }

    /// The same, with a decay that begins low and grows.
    pub fn ema_warm_up(mut self, decay: f64) -> Self {
        self.ema = Some((decay, true));
        self
    }

    /// Judged by these batches after every epoch.
    pub fn validation(mut self, batches: &'a dyn Batches) -> Self {
        self.validation = Some(batches);
        self
    }

    /// With one more measure on the validation set.
    pub fn metric(mut self, metric: impl Metric + 'a) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// With one more callback; `&mut callback` lends it.
    pub fn callback<C: Callback + 'a>(mut self, callback: C) -> Self {
        // By kind, and by place among those of its kind: a run that goes on may have other bars and logs.
        let kind = std::any::type_name::<C>().rsplit("::").next().unwrap_or_default();
        let place = self.callbacks.iter().filter(|(name, _)| name.starts_with(&format!("{kind}."))).count();
        self.callbacks.push((format!("{kind}.{place}"), Box::new(callback)));
        self
    }

    /// With checkpoints.
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// Stops when this flag is raised.
    pub fn stop_flag(mut self, flag: &StopFlag) -> Self {
        self.stop = flag.clone();
        self
    }

    /// A setting that a checkpoint must agree with to be resumed: what the trainer cannot see itself, such as the data
    /// set and its transforms.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.insert(name.to_string(), value.to_string());
        self
    }

    /// Goes on from a checkpoint. Everything else must be set up as it was; [`Trainer::run`] says what is not.
    pub fn resume(mut self, checkpoint: impl AsRef<Path>) -> Result<Self> {
        self.resume = Some(Checkpoint::open(checkpoint)?);
        Ok(self)
    }

    /// Trains.
    pub fn run(self, train: &dyn Batches) -> Result<Fit> {
        if train.batches() == 0 {
            return Err(Error::Argument("there are no training batches: the set is empty, or smaller than one".into()));
        }
        Run::begin(self, train)?.finish()
    }
}
