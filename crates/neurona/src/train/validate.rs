//! How a network does on batches it does not learn from.

use super::place::bring;
use super::tally::{Tally, classes};
use crate::data::{Augment, Batches};
use crate::graph::engine;
use crate::loss::Loss;
use crate::metrics::{Logits, Metric};
use crate::nn::Forward;
use crate::{Device, Result, no_grad};

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

/// Measures a network, which is on this device, on a set and leaves it in evaluation mode. `prepare` makes numbers of
/// bytes. `each` is told the number of
/// batches done, and ends it by saying false; there is no result then.
pub(super) fn validate(
    net: &dyn Forward,
    device: Device,
    batches: &dyn Batches,
    prepare: Option<&Augment>,
    loss: &dyn Loss,
    metrics: &mut [Box<dyn Metric + '_>],
    each: &mut dyn FnMut(usize) -> Result<bool>,
) -> Result<Option<Measures>> {
    net.eval();
    metrics.iter_mut().for_each(|metric| metric.reset());
    let mut tally = Tally::new(device, 0.0, 0.0)?;
    let (mut images, mut counted) = (0.0, 0.0);
    for (done, batch) in batches.epoch(0, 0)?.enumerate() {
        let batch = batch?;
        let rows = batch.images.shape().first().copied().unwrap_or(0);
        let (mut x, mut y) = bring(&batch, device)?;
        if let Some(prepare) = prepare {
            (x, y) = prepare.apply(&x, &y)?;
        }
        let (output, value) = no_grad(|| {
            let output = net.forward(&x)?;
            let value = loss.loss(&output, &y)?;
            Ok::<_, crate::Error>((output, value))
        })?;
        let classes = classes(&output, &batch.labels, &y, loss.classifies())?;
        tally.add(&value, &output, classes.as_ref(), rows)?;
        images += rows as f64;
        // Computed now: the graphs of a large set would pile up. A GPU is not waited for unless a metric looks.
        let looks = classes.is_some() && !metrics.is_empty();
        let output = looks.then_some(output);
        engine::force(output.as_slice(), &tally.cells())?;
        if classes.is_some() {
            counted += rows as f64;
        }
        if let Some(output) = output {
            let logits = Logits::read(&output)?;
            let labels = logits.labels(&batch.labels)?;
            metrics.iter_mut().try_for_each(|metric| metric.add(&logits, &labels))?;
        }
        if !each(done + 1)? {
            return Ok(None);
        }
    }
    let own = metrics.iter().map(|metric| (metric.name(), metric.value())).collect();
    let (loss, right) = tally.sums()?;
    let share = |sum: f64, of: f64| if of == 0.0 { 0.0 } else { sum / of };
    Ok(Some(Measures { loss: share(loss, images), accuracy: (counted > 0.0).then(|| share(right, counted)), own }))
}
