//! Batches of tensors that are in memory already.

use super::{Batch, Batches, Draws};
use crate::{DType, Error, Result, Tensor};

/// The rows of two tensors, examples and targets, in batches.
///
/// ```
/// use neurona::{Tensor, data::{Batches, TensorBatches}};
/// let (x, y) = (Tensor::from([[1.0f32], [2.0], [3.0]]), Tensor::from([0i64, 1, 0]));
/// let batches = TensorBatches::new(&x, &y)?.batch_size(2);
/// let labels: Vec<Vec<i64>> = batches.epoch(0, 0)?.map(|b| b?.labels.to_vec()).collect::<neurona::Result<_>>()?;
/// assert_eq!(labels, [vec![0, 1], vec![0]]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorBatches {
    examples: Tensor,
    targets: Tensor,
    /// Class numbers as plain numbers: whoever looks at a batch's labels need not have anything computed.
    classes: Option<Vec<i64>>,
    rows: usize,
    batch_size: usize,
    shuffled: Option<u64>,
}

impl TensorBatches {
    /// Of these examples `[n, …]` and targets `[n, …]`, 32 to a batch as in Keras, in their order.
    pub fn new(examples: &Tensor, targets: &Tensor) -> Result<Self> {
        match (examples.shape().first(), targets.shape().first()) {
            (Some(&rows), Some(n)) if rows == *n => {
                let numbers = targets.rank() == 1 && targets.dtype() == DType::I64;
                let classes = numbers.then(|| targets.to_vec()).transpose()?;
                let (examples, targets) = (examples.clone(), targets.clone());
                Ok(TensorBatches { examples, targets, classes, rows, batch_size: 32, shuffled: None })
            }
            _ => {
                let (x, y) = (examples.shape(), targets.shape());
                Err(Error::Argument(format!("examples {x} and targets {y} must have the same number of rows")))
            }
        }
    }

    /// With this many rows to a batch (at least one).
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size.max(1);
        self
    }

    /// In a random order, another one in every epoch.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffled = Some(seed);
        self
    }

    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows).collect();
        if let Some(seed) = self.shuffled {
            let mut draws = Draws::new(seed, epoch, u64::MAX);
            (1..self.rows).rev().for_each(|i| order.swap(i, draws.below(i + 1)));
        }
        order
    }
}

impl Batches for TensorBatches {
    fn images(&self) -> usize {
        self.rows
    }

    fn batches(&self) -> usize {
        self.rows.div_ceil(self.batch_size)
    }

    fn epoch(&self, epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>> {
        let order = self.order(epoch);
        let take = move |batch: usize| {
            let start = batch * self.batch_size;
            let places = &order[start..self.rows.min(start + self.batch_size)];
            let rows = |of: &Tensor| match self.shuffled {
                None => of.narrow(0, start, places.len()),
                Some(_) => {
                    let rows = Tensor::from_vec(places.iter().map(|p| *p as i64).collect(), [places.len()])?;
                    of.index_select(0, &rows.to(of.device())?)
                }
            };
            let images = rows(&self.examples)?;
            let labels = match &self.classes {
                Some(classes) => Tensor::from_vec(places.iter().map(|p| classes[*p]).collect(), [places.len()])?,
                None => rows(&self.targets)?,
            };
            Ok(Batch { images, labels, indices: places.to_vec(), number: batch })
        };
        Ok(Box::new((first..self.batches()).map(take)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_a_function_of_its_number() -> Result<()> {
        let x = Tensor::arange(10)?;
        let batches = TensorBatches::new(&x, &x)?.batch_size(3).shuffle(5);
        let read = |epoch, first| -> Result<Vec<Vec<i64>>> {
            batches.epoch(epoch, first)?.map(|b| b.and_then(|b| b.images.to_vec())).collect()
        };
        let (one, two) = (read(0, 0)?, read(1, 0)?);
        assert_eq!((one.len(), one[3].len(), batches.images(), batches.batches()), (4, 1, 10, 4));
        assert!(one != two && read(0, 2)? == one[2..] && read(0, 4)?.is_empty() && read(0, 9)?.is_empty());
        let mut all = one.concat();
        all.sort();
        assert_eq!(all, (0..10).collect::<Vec<i64>>());
        assert!(TensorBatches::new(&x, &Tensor::arange(9)?).is_err());
        assert!(TensorBatches::new(&Tensor::scalar(1.0f32), &x).is_err());
        Ok(())
    }
}
