//! Losses and right answers, added up where the network is.

use crate::graph::cell::Cell;
use crate::metrics::logits::class_numbers;
use crate::tensor::{DType, Device, Meta, no_grad};
use crate::{Error, Result, Tensor};

/// What batches add up to. The sums lie on the network's device and are part of the step's own plan: a GPU is only
/// waited for when somebody reads them.
#[derive(Clone)]
pub(super) struct Tally {
    /// Losses, each times the images of its batch.
    loss: Cell,
    /// Images that were right.
    right: Cell,
    last: Option<Tensor>,
    fresh: bool,
}

impl Tally {
    /// Goes on from these sums.
    pub fn new(device: Device, loss: f64, right: f64) -> Result<Self> {
        let cell = |value: f64| {
            let cell = Cell::zeros(Meta::new((), DType::F64), device)?;
            cell.set(&Tensor::scalar(value))?;
            Ok::<Cell, Error>(cell)
        };
        Ok(Tally { loss: cell(loss)?, right: cell(right)?, last: None, fresh: false })
    }

    /// Begins anew with the next batch.
    pub fn clear(&mut self) {
        self.fresh = true;
    }

    /// Stages a batch: its loss, and how many of the outputs are highest at the class given.
    pub fn add(&mut self, loss: &Tensor, output: &Tensor, classes: Option<&Tensor>, images: usize) -> Result<()> {
        no_grad(|| {
            // A number that may differ from run to run: an epoch's first step has the plan of all others.
            let kept = Tensor::scalar(if self.fresh { 0.0 } else { 1.0 });
            let value = loss.to_dtype(DType::F64)?.reshape(())?;
            self.loss.stage(self.loss.get()?.mul(&kept)?.add(&value.mul_scalar(images as f64)?)?)?;
            if let Some(classes) = classes {
                let right = output.argmax(1)?.eq(classes)?.to_dtype(DType::F64)?.sum()?;
                self.right.stage(self.right.get()?.mul(&kept)?.add(&right)?)?;
            }
            self.last = Some(loss.clone());
            self.fresh = false;
            Ok(())
        })
    }

    /// What must be computed with a batch's graph.
    pub fn cells(&self) -> [Cell; 2] {
        [self.loss.clone(), self.right.clone()]
    }

    /// Both sums, once the device has done what they are of.
    pub fn sums(&self) -> Result<(f64, f64)> {
        if self.fresh {
            return Ok((0.0, 0.0));
        }
        Ok((self.loss.get()?.item()?, self.right.get()?.item()?))
    }

    /// The loss of the last batch.
    pub fn last(&self) -> Result<f64> {
        self.last.as_ref().map_or(Ok(0.0), Tensor::item)
    }
}

/// The class of every image, where that is what labels say; `given` are the labels as the batch came with them. One
/// that is no class is an error: as a target it would only make the loss NaN. Labels that lie on a GPU are not looked
/// at, since that would make it wait: the loss finds those there, and the next read of anything tells.
pub(super) fn classes(output: &Tensor, given: &Tensor, labels: &Tensor, classifies: bool) -> Result<Option<Tensor>> {
    let (rows, count) = match output.shape()[..] {
        [rows, count] if count > 0 && (classifies || !labels.dtype().is_float()) => (rows, count),
        _ => return Ok(None),
    };
    let on_host = given.device() == Device::Cpu;
    match given.shape()[..] {
        [n] if n == rows && !given.dtype().is_float() && !on_host => {}
        [n, c] if (n, c) == (rows, count) => {}
        _ => drop(class_numbers(given, rows, count)?),
    }
    match labels.rank() {
        1 => labels.to_dtype(DType::I64).map(Some),
        _ => labels.argmax(1).map(Some),
    }
}
