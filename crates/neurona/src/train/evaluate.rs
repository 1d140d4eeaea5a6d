//! A classifier judged image by image.

use super::place::{bring, device_of};
use crate::data::Batches;
use crate::graph::engine;
use crate::metrics::{Calibration, Confusion, Logits, Mean, TopK};
use crate::nn::Forward;
use crate::{Error, Result, Tensor, no_grad};

/// Bins of the calibration error, and how many classes of each image are kept.
const BINS: usize = 15;
const TOP: usize = 5;

/// What a network says about one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Where in the set the image stands.
    pub index: usize,
    /// What it is.
    pub label: usize,
    /// The most likely classes with their probabilities, at most five; the first is the guess.
    pub top: Vec<(usize, f64)>,
}

impl Prediction {
    /// What it is taken for.
    pub fn guess(&self) -> usize {
        self.top.first().map_or(0, |(class, _)| *class)
    }

    /// How sure the network is of that, from 0 to 1.
    pub fn confidence(&self) -> f64 {
        self.top.first().map_or(0.0, |(_, probability)| *probability)
    }

    /// Whether it is right.
    pub fn is_right(&self) -> bool {
        self.guess() == self.label
    }
}

/// How a network does on a set.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Mean cross-entropy.
    pub loss: f64,
    /// Who is taken for whom; accuracy, precision, recall and F1 come from it.
    pub confusion: Confusion,
    /// The share of images whose class is among the five most likely.
    pub top5: f64,
    /// Whether it is right as often as it says.
    pub calibration: Calibration,
    /// Image by image, in the order of the batches.
    pub predictions: Vec<Prediction>,
}

impl Evaluation {
    /// The share of images that was recognised.
    pub fn accuracy(&self) -> f64 {
        self.confusion.accuracy()
    }

    /// The mistakes that the network was most sure of, at most this many.
    pub fn worst_mistakes(&self, most: usize) -> Vec<&Prediction> {
        let mut mistakes: Vec<&Prediction> = self.predictions.iter().filter(|p| !p.is_right()).collect();
        mistakes.sort_by(|a, b| b.confidence().total_cmp(&a.confidence()));
        mistakes.truncate(most);
        mistakes
    }
}

/// Judges a network by all images of a set, where the network is, and leaves it in evaluation mode.
///
/// ```
/// use neurona::{Tensor, data::TensorBatches, nn::Linear, train::evaluate};
/// let net = Linear::new(2, 2)?;
/// net.weight.set(&Tensor::from([[9.0f32, 0.0], [0.0, 9.0]]))?;
/// let x = Tensor::from([[1.0f32, 0.0], [0.0, 1.0], [1.0, 0.0]]);
/// let result = evaluate(&net, &TensorBatches::new(&x, &Tensor::from([0i64, 1, 1]))?)?;
/// assert_eq!((result.confusion.right(), result.worst_mistakes(5)[0].index), (2, 2));
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn evaluate(net: &dyn Forward, batches: &dyn Batches) -> Result<Evaluation> {
    evaluate_with(net, batches, &mut |_| Ok(()))
}

/// The same; `each` is told the number of images done after every batch, and ends it with an error.
pub fn evaluate_with(
    net: &dyn Forward,
    batches: &dyn Batches,
    each: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Evaluation> {
    net.eval();
    let (mut confusion, mut predictions) = (None, Vec::new());
    let (mut loss, mut top5, mut calibration) = (Mean::default(), TopK::new(TOP), Calibration::new(BINS));
    let device = device_of(net)?;
    for batch in batches.epoch(0, 0)? {
        let batch = batch?;
        let (x, y) = bring(&batch, device)?;
        let output = no_grad(|| net.forward(&x))?;
        let value = no_grad(|| output.cross_entropy_with(&y, Default::default()))?;
        // Both in one plan.
        engine::force(&[output.clone(), value.clone()], &[])?;
        let logits = Logits::read(&output)?;
        let labels = logits.labels(&batch.labels)?;
        loss.add(value.item()?, labels.len() as f64);
        top5.add(&logits, &labels)?;
        confusion.get_or_insert_with(|| Confusion::new(logits.classes())).add(&labels, &logits.guesses())?;
        for (row, (&label, &index)) in labels.iter().zip(&batch.indices).enumerate() {
            let prediction = Prediction { index, label, top: likely(logits.probabilities(row)) };
            calibration.add(prediction.confidence(), prediction.is_right());
            predictions.push(prediction);
        }
        each(predictions.len())?;
    }
    let confusion = confusion.ok_or_else(|| Error::Argument("there are no images to judge the network by".into()))?;
    Ok(Evaluation { loss: loss.value(), confusion, top5: top5.share(), calibration, predictions })
}

/// The most likely classes; of equals, the first come first.
fn likely(probabilities: Vec<f64>) -> Vec<(usize, f64)> {
    let mut classes: Vec<(usize, f64)> = probabilities.into_iter().enumerate().collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes.truncate(TOP);
    classes
}

/// The outputs of a network for all rows of a tensor, some at a time.
pub(super) fn predict(net: &dyn Forward, x: &Tensor, batch_size: usize) -> Result<Tensor> {
    net.eval();
    let Some(&rows) = x.shape().first() else {
        return Err(Error::Argument(format!("predict needs examples [n, …], not {}", x.shape())));
    };
    let (device, mut outputs) = (device_of(net)?, Vec::new());
    for start in (0..rows.max(1)).step_by(batch_size.max(1)) {
        let part = x.narrow(0, start, batch_size.max(1).min(rows - start))?.to(device)?;
        let output = no_grad(|| net.forward(&part))?;
        // Computed now: the graphs of a large set would pile up.
        engine::force(std::slice::from_ref(&output), &[])?;
        outputs.push(output);
    }
    Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)
}
