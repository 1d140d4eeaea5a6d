//! What a run calls on its way.

use super::epoch::Sums;
use super::tally::Tally;
use super::trainer::Driver;
use super::{History, Row};
use crate::Result;
use crate::io::StateDict;
use crate::nn::Forward;

/// Something that is called while a network trains. Callbacks are called in the order they were added, before the
/// run's checkpoints are written; an error of one ends the run.
///
/// ```
/// use neurona::train::{Callback, Context, Row};
/// use neurona::Result;
///
/// /// Ends the run when the training images are known by heart.
/// struct ByHeart;
///
/// impl Callback for ByHeart {
///     fn on_epoch_end(&mut self, at: &mut Context<'_>, row: &Row) -> Result<()> {
///         if row.train_accuracy == Some(1.0) {
///             at.stop("all training images are right");
///         }
///         Ok(())
///     }
/// }
/// # let _ = ByHeart;
/// ```
pub trait Callback: Send {
    /// The column of the history that it needs; a run that does not measure it does not begin.
    fn column(&self) -> Option<&str> {
        None
    }

    /// Before the first epoch of this process: of a new run, or of one that goes on
    /// ([`Context::history`] has what it has done so far).
    fn on_train_begin(&mut self, _at: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Before the first batch of an epoch, or the first after it was interrupted.
    fn on_epoch_begin(&mut self, _at: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// After a batch.
    fn on_batch_end(&mut self, _at: &mut Context<'_>, _batch: &BatchEnd) -> Result<()> {
        Ok(())
    }

    /// After a batch of the validation set: so many of so many.
    fn on_validation_batch_end(&mut self, _at: &mut Context<'_>, _done: usize, _of: usize) -> Result<()> {
        Ok(())
    }

    /// After an epoch and its validation. The row is the last of [`Context::history`] too.
    fn on_epoch_end(&mut self, _at: &mut Context<'_>, _row: &Row) -> Result<()> {
        Ok(())
    }

    /// After the last epoch, when the network has what it will be used with; not when the run was interrupted or
    /// failed.
    fn on_train_end(&mut self, _at: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// What it must remember when a run goes on in another process.
    fn state_dict(&self) -> Result<StateDict> {
        Ok(StateDict::new())
    }

    /// Takes over what [`Callback::state_dict`] gave.
    fn load_state_dict(&mut self, _state: &StateDict) -> Result<()> {
        Ok(())
    }
}

impl<C: Callback + ?Sized> Callback for &mut C {
    fn column(&self) -> Option<&str> {
        (**self).column()
    }
    fn on_train_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
        (**self).on_train_begin(at)
    }
    fn on_epoch_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
        (**self).on_epoch_begin(at)
    }
    fn on_batch_end(&mut self, at: &mut Context<'_>, batch: &BatchEnd) -> Result<()> {
        (**self).on_batch_end(at, batch)
    }
    fn on_validation_batch_end(&mut self, at: &mut Context<'_>, done: usize, of: usize) -> Result<()> {
        (**self).on_validation_batch_end(at, done, of)
    }
    fn on_epoch_end(&mut self, at: &mut Context<'_>, row: &Row) -> Result<()> {
        (**self).on_epoch_end(at, row)
    }
    fn on_train_end(&mut self, at: &mut Context<'_>) -> Result<()> {
        (**self).on_train_end(at)
    }
    fn state_dict(&self) -> Result<StateDict> {
        (**self).state_dict()
    }
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }
}

/// A batch that was trained on, and the epoch so far.
#[derive(Clone, Copy)]
pub struct BatchEnd<'a> {
    /// Its number in the epoch; the first is 1.
    pub batch: usize,
    /// Its images.
    pub images: usize,
    /// Images of the epoch so far.
    pub epoch_images: u64,
    /// Seconds of the epoch so far.
    pub seconds: f64,
    /// Of them, seconds spent waiting for data.
    pub waiting_seconds: f64,
    pub(super) sums: &'a Sums,
    pub(super) tally: &'a Tally,
}

/// Losses lie where the network is. Reading one waits for a GPU to finish the step, so a callback that only shows them
/// should not ask after every batch.
impl BatchEnd<'_> {
    /// The loss of the batch.
    pub fn loss(&self) -> Result<f64> {
        self.tally.last()
    }

    /// The mean loss of the epoch so far.
    pub fn epoch_loss(&self) -> Result<f64> {
        Ok(self.read()?.mean_loss())
    }

    /// The share of the epoch's images that was right so far, where labels are classes.
    pub fn epoch_accuracy(&self) -> Result<Option<f64>> {
        Ok(self.read()?.accuracy())
    }

    fn read(&self) -> Result<Sums> {
        let (loss, right) = self.tally.sums()?;
        Ok(Sums { loss, right, ..*self.sums })
    }
}

/// Where a run is.
pub struct Context<'a> {
    /// The network.
    pub net: &'a dyn Forward,
    /// The epoch; the first is 1.
    pub epoch: usize,
    /// Epochs of the run.
    pub epochs: usize,
    /// Batches of an epoch.
    pub batches: usize,
    /// Training images of an epoch.
    pub images: usize,
    /// Batches of this epoch that were done in an earlier process.
    pub first_batch: usize,
    /// Updates of the weights so far, since the beginning of the run.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// The epochs so far.
    pub history: &'a History,
    pub(super) driver: &'a Driver<'a>,
    pub(super) stop: &'a mut Option<String>,
}

impl Context<'_> {
    /// Ends the run after this step, or after this epoch when it is called at its end.
    pub fn stop(&mut self, reason: impl Into<String>) {
        self.stop.get_or_insert(reason.into());
    }

    /// The weights that validation is done with, as they are now: the moving average where there is one, else the
    /// network's own; with its statistics.
    pub fn weights(&self) -> Result<StateDict> {
        self.driver.weights(self.net)
    }
}
