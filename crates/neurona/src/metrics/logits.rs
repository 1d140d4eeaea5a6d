//! What a network said about a batch, read once.

use crate::{Error, Result, Tensor};

/// The outputs of a network for a batch, `[n, classes]`, in memory.
///
/// ```
/// use neurona::{Tensor, metrics::Logits};
/// let logits = Logits::read(&Tensor::from([[0.0f32, 2.0], [1.0, 1.0]]))?;
/// assert_eq!(logits.guesses(), [1, 0]); // of equals, the first
/// assert_eq!(logits.probabilities(1), [0.5, 0.5]);
/// assert!(logits.labels(&Tensor::from([0i64, 2])).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Logits {
    values: Vec<f32>,
    rows: usize,
    classes: usize,
}

impl Logits {
    /// Reads them; computes the tensor when that has not happened yet.
    pub fn read(output: &Tensor) -> Result<Self> {
        let (rows, classes) = sizes(output)?;
        Ok(Logits { values: output.to_vec()?, rows, classes })
    }

    /// Images of the batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many classes are told apart.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The outputs for each image.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.classes)
    }

    /// The class that each image is most likely of.
    pub fn guesses(&self) -> Vec<usize> {
        self.rows().map(highest).collect()
    }

    /// The probability of each class for an image: softmax, in double precision.
    pub fn probabilities(&self, row: usize) -> Vec<f64> {
        let row = self.rows().nth(row).unwrap_or_default();
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|v| f64::from(v - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|p| p / sum).collect()
    }

    /// The labels of the batch as class numbers: of mixed images, the class that has the greatest part. A label
    /// that is no class is an error.
    pub fn labels(&self, labels: &Tensor) -> Result<Vec<usize>> {
        class_numbers(labels, self.rows, self.classes)
    }
}

/// The rows and classes of an output.
fn sizes(output: &Tensor) -> Result<(usize, usize)> {
    match output.shape()[..] {
        [rows, classes] if classes > 0 => Ok((rows, classes)),
        _ => Err(Error::Argument(format!("a classifier's output is [n, classes], not {}", output.shape()))),
    }
}

/// Labels of either form as class numbers.
pub(crate) fn class_numbers(labels: &Tensor, rows: usize, classes: usize) -> Result<Vec<usize>> {
    match labels.shape()[..] {
        [n] if n == rows && !labels.dtype().is_float() => {
            let check = |(i, label): (usize, i64)| match usize::try_from(label) {
                Ok(class) if class < classes => Ok(class),
                _ => {
                    let last = classes - 1;
                    Err(Error::Argument(format!("label {label} of image {i} of a batch is not between 0 and {last}")))
                }
            };
            labels.to_vec::<i64>()?.into_iter().enumerate().map(check).collect()
        }
        [n, c] if (n, c) == (rows, classes) => Ok(labels.to_vec::<f32>()?.chunks_exact(classes).map(highest).collect()),
        _ => {
            let (got, dtype) = (labels.shape(), labels.dtype());
            let problem = format!("labels are i64 [{rows}] or probabilities [{rows}, {classes}], not {dtype} {got}");
            Err(Error::Argument(problem))
        }
    }
}

/// The place of the greatest value; of equals, the first.
fn highest(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_both_forms_and_wrong_ones() -> Result<()> {
        let logits = Logits::read(&Tensor::from([[0.0f32, 1.0, 2.0], [9.0, 1.0, 2.0]]))?;
        assert_eq!(logits.labels(&Tensor::from([2i64, 0]))?, [2, 0]);
        assert_eq!(logits.labels(&Tensor::from([[0.3f32, 0.7, 0.0], [0.0, 0.0, 1.0]]))?, [1, 2]);
        for (labels, problem) in [
            (Tensor::from([0i64, 3]), "label 3 of image 1 of a batch is not between 0 and 2"),
            (Tensor::from([-1i64, 0]), "label -1 of image 0 of a batch is not between 0 and 2"),
            (Tensor::from([0i64]), "labels are i64 [2] or probabilities [2, 3], not i64 [1]"),
            (Tensor::from([0.0f32, 1.0]), "labels are i64 [2] or probabilities [2, 3], not f32 [2]"),
        ] {
            assert_eq!(logits.labels(&labels).unwrap_err().to_string(), problem);
        }
        assert!(Logits::read(&Tensor::from([1.0f32])).is_err());
        Ok(())
    }

    #[test]
    fn probabilities_of_large_logits() -> Result<()> {
        let logits = Logits::read(&Tensor::from([[1e30f32, 0.0], [-1e30, -1e30]]))?;
        assert_eq!((logits.probabilities(0), logits.probabilities(1)), (vec![1.0, 0.0], vec![0.5, 0.5]));
        Ok(())
    }
}
