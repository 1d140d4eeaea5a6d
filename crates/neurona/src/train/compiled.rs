//! Keras's way: compile, fit, evaluate, predict.

use super::evaluate::predict;
use super::place::device_of;
use super::validate::validate;
use super::{Callback, Fit, Measures, Trainer};
use crate::data::{Batches, TensorBatches};
use crate::loss::Loss;
use crate::metrics::Metric;
use crate::nn::{Forward, Parameter};
use crate::optim::Optimizer;
use crate::{Result, Tensor};

/// Joins a network with an optimizer and a loss.
///
/// ```
/// use neurona::{Tensor, loss::CrossEntropyLoss, manual_seed};
/// use neurona::nn::{Linear, ReLU, Sequential};
/// use neurona::optim::Adam;
/// use neurona::train::Compile;
///
/// manual_seed(1);
/// let mut model = Sequential::new()
///     .add(Linear::new(2, 16)?)
///     .add(ReLU::new())
///     .add(Linear::new(16, 2)?)
///     .compile(|parameters| Adam::new(parameters, 0.05), CrossEntropyLoss::new());
///
/// // Whether a point lies inside a circle.
/// let x = Tensor::randn([400, 2])?;
/// let y: Vec<i64> = x.to_vec::<f32>()?.chunks(2).map(|p| (p[0] * p[0] + p[1] * p[1] < 1.0) as i64).collect();
/// let y = Tensor::from_vec(y, [400])?;
///
/// let fit = model.fit((&x, &y)).epochs(20).batch_size(32).run()?;
/// assert_eq!(fit.history.rows.len(), 20);
/// assert!(model.evaluate((&x, &y))?.accuracy > Some(0.9));
/// assert_eq!(model.predict(&x)?.shape().to_string(), "[400, 2]");
/// # Ok::<(), neurona::Error>(())
/// ```
pub trait Compile: Forward + Sized {
    /// With an optimizer of its parameters, and a loss.
    fn compile<O: Optimizer + 'static>(
        self,
        optimizer: impl FnOnce(Vec<Parameter>) -> O,
        loss: impl Loss + 'static,
    ) -> Compiled<Self> {
        let optimizer = Box::new(optimizer(self.parameters()));
        Compiled { net: self, optimizer, loss: Box::new(loss), metrics: Vec::new() }
    }
}

impl<N: Forward> Compile for N {}

/// A network with its optimizer and its loss: what [`Compile::compile`] gives.
pub struct Compiled<N> {
    net: N,
    optimizer: Box<dyn Optimizer>,
    loss: Box<dyn Loss>,
    metrics: Vec<Box<dyn Metric>>,
}

/// Examples with targets: two tensors, or anything that gives batches.
pub enum Data<'a> {
    /// In memory, `[n, …]` each.
    Tensors(&'a Tensor, &'a Tensor),
    /// A loader.
    Batches(&'a dyn Batches),
}

impl<'a> From<(&'a Tensor, &'a Tensor)> for Data<'a> {
    fn from((x, y): (&'a Tensor, &'a Tensor)) -> Self {
        Data::Tensors(x, y)
    }
}

impl<'a, B: Batches> From<&'a B> for Data<'a> {
    fn from(batches: &'a B) -> Self {
        Data::Batches(batches)
    }
}

impl<'a> Data<'a> {
    /// As batches; tensors are cut up, and shuffled when there is a seed.
    fn batches(self, batch_size: usize, shuffle: Option<u64>) -> Result<Box<dyn Batches + 'a>> {
        match self {
            Data::Tensors(x, y) => {
                let batches = TensorBatches::new(x, y)?.batch_size(batch_size);
                Ok(Box::new(match shuffle {
                    Some(seed) => batches.shuffle(seed),
                    None => batches,
                }))
            }
            Data::Batches(batches) => Ok(Box::new(batches)),
        }
    }
}

impl<N: Forward> Compiled<N> {
    /// The network.
    pub fn net(&self) -> &N {
        &self.net
    }

    /// The network on its own again.
    pub fn into_net(self) -> N {
        self.net
    }

    /// The optimizer.
    pub fn optimizer(&mut self) -> &mut dyn Optimizer {
        &mut *self.optimizer
    }

    /// With one more measure on validation sets.
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Trains on these examples: one epoch, batches of 32, shuffled, until told otherwise. A second `fit` goes on with
    /// the optimizer's state.
    pub fn fit<'a>(&'a mut self, data: impl Into<Data<'a>>) -> Fitting<'a> {
        let optimizer = &mut *self.optimizer;
        let mut trainer = Trainer::new(&self.net, optimizer).loss(Lent(&*self.loss));
        trainer.metrics.extend(self.metrics.iter_mut().map(|m| Box::new(LentMetric(&mut **m)) as Box<dyn Metric + 'a>));
        Fitting { trainer, data: data.into(), validation: None, batch_size: 32, shuffle: Some(0) }
    }

    /// Loss, accuracy and one's own measures on these examples.
    pub fn evaluate<'a>(&mut self, data: impl Into<Data<'a>>) -> Result<Measures> {
        let batches = data.into().batches(32, None)?;
        let measures =
            validate(&self.net, device_of(&self.net)?, &*batches, None, &*self.loss, &mut self.metrics, &mut |_| {
                Ok(true)
            })?;
        Ok(measures.unwrap_or_default())
    }

    /// The network's outputs for examples `[n, …]`, in evaluation mode.
    pub fn predict(&self, x: &Tensor) -> Result<Tensor> {
        predict(&self.net, x, 32)
    }
}

/// A `fit` that is being set up; [`Fitting::run`] starts it.
pub struct Fitting<'a> {
    trainer: Trainer<'a>,
    data: Data<'a>,
    validation: Option<Data<'a>>,
    batch_size: usize,
    shuffle: Option<u64>,
}

impl<'a> Fitting<'a> {
    /// For this many epochs.
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.trainer = self.trainer.epochs(epochs);
        self
    }

    /// With this many examples to a batch, where the data are tensors.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Shuffled by this seed, or not at all, where the data are tensors.
    pub fn shuffle(mut self, seed: Option<u64>) -> Self {
        self.shuffle = seed;
        self
    }

    /// Judged by these examples after every epoch.
    pub fn validation(mut self, data: impl Into<Data<'a>>) -> Self {
        self.validation = Some(data.into());
        self
    }

    /// With one more callback; `&mut callback` lends it.
    pub fn callback(mut self, callback: impl Callback + 'a) -> Self {
        self.trainer = self.trainer.callback(callback);
        self
    }

    /// With more of the trainer's settings: `.with(|trainer| trainer.clip_norm(1.0).ema(0.99))`.
    pub fn with(mut self, change: impl FnOnce(Trainer<'a>) -> Trainer<'a>) -> Self {
        self.trainer = change(self.trainer);
        self
    }

    /// Trains.
    pub fn run(self) -> Result<Fit> {
        let train = self.data.batches(self.batch_size, self.shuffle)?;
        let validation = self.validation.map(|data| data.batches(self.batch_size, None)).transpose()?;
        let trainer: Trainer<'_> = self.trainer;
        match &validation {
            Some(validation) => trainer.validation(&**validation).run(&*train),
            None => trainer.run(&*train),
        }
    }
}

struct Lent<'a>(&'a dyn Loss);

impl Loss for Lent<'_> {
    fn loss(&self, output: &Tensor, target: &Tensor) -> Result<Tensor> {
        self.0.loss(output, target)
    }
    fn classifies(&self) -> bool {
        self.0.classifies()
    }
}

struct LentMetric<'a>(&'a mut dyn Metric);

impl Metric for LentMetric<'_> {
    fn name(&self) -> String {
        self.0.name()
    }
    fn reset(&mut self) {
        self.0.reset();
    }
    fn add(&mut self, logits: &crate::metrics::Logits, labels: &[usize]) -> Result<()> {
        self.0.add(logits, labels)
    }
    fn value(&self) -> f64 {
        self.0.value()
    }
}
