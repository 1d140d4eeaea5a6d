//! How a network does on batches it does not learn from.

use super::epoch::classes;
use crate::data::Batches;
use crate::loss::Loss;
use crate::metrics::{Logits, Mean, Metric};
use crate::nn::Forward;
use crate::{Result, Tensor, no_grad};

/// What was measured on a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// The mean loss.
    pub loss: f64,
    /// The share that was right, where labels are classes.
    pub accuracy: Option<f64>,
    /// Measures of one's own, by name.
    pub own: Vec<(String, f64)>,
}

/// Measures a network on a set and leaves it in evaluation mode. `each` is told the number of batches done, and ends
/// it by saying false; there is no result then.
pub(super) fn validate(
    net: &dyn Forward,
    batches: &dyn Batches,
    loss: &dyn Loss,
    metrics: &mut [Box<dyn Metric + '_>],
    each: &mut dyn FnMut(usize) -> Result<bool>,
) -> Result<Option<Measures>> {
    net.eval();
    metrics.iter_mut().for_each(|metric| metric.reset());
    let (mut mean, mut accuracy, mut counted) = (Mean::default(), Mean::default(), false);
    for (done, batch) in batches.epoch(0, 0)?.enumerate() {
        let batch = batch?;
        let images = batch.images.shape().first().copied().unwrap_or(0) as f64;
        let (output, value) = no_grad(|| {
            let output = net.forward(&batch.images)?;
            let value = loss.loss(&output, &batch.labels)?;
            Ok::<(Tensor, Tensor), crate::Error>((output, value))
        })?;
        let labels = classes(&output, &batch.labels, loss.classifies())?;
        mean.add(value.item()?, images);
        if let Some(labels) = labels {
            let logits = Logits::read(&output)?;
            let right = logits.guesses().iter().zip(&labels).filter(|(guess, label)| guess == label).count();
            accuracy.add(right as f64 / images.max(1.0), images);
            counted = true;
            metrics.iter_mut().try_for_each(|metric| metric.add(&logits, &labels))?;
        }
        if !each(done + 1)? {
            return Ok(None);
        }
    }
    let own = metrics.iter().map(|metric| (metric.name(), metric.value())).collect();
    Ok(Some(Measures { loss: mean.value(), accuracy: counted.then(|| accuracy.value()), own }))
}
