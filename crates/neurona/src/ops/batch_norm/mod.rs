//! Batch normalisation: each channel to mean 0 and variance 1, then scaled and shifted.

pub(crate) mod cpu;
pub(crate) mod cuda;
mod fold;

pub(crate) use fold::BatchNormFold;

use super::{At, Op, Operation, Spatial, one};
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor};
use crate::{Error, Result};
use smallvec::{SmallVec, smallvec};

/// By the batch's own statistics. Operands: x; if affine weight, bias; if tracking running mean, running
/// variance, batches so far and (unless cumulative) momentum; with `added` what is added to y; if measured statistics of
/// parts of x.
/// Results: y, mean, inverse deviation; if tracking the new running statistics and number of batches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormTrain {
    /// As bits: options of plans must be comparable.
    pub eps: u64,
    pub affine: bool,
    pub track: bool,
    pub cumulative: bool,
    /// Set by the lowering pass, for GPUs: a sum that follows, before relu.
    pub added: bool,
    /// Set by the lowering pass, for CPU cores: the convolution that gives x has measured it.
    pub measured: bool,
    /// Set by the lowering pass.
    pub activation: Activation,
}

impl BatchNormTrain {
    /// The first operand of running statistics.
    pub fn tracked(&self) -> usize {
        if self.affine { 3 } else { 1 }
    }

    /// The operand that is added.
    fn other(&self) -> usize {
        self.tracked() + if self.track { 4 - usize::from(self.cumulative) } else { 0 }
    }

    /// The parts of x whose statistics are the last of these operands.
    pub fn parts(&self, inputs: &[Operand]) -> Option<usize> {
        inputs.last().filter(|_| self.measured).map(|parts| parts.meta.shape[0])
    }

    /// For the kernel of CPU cores.
    pub fn training(&self) -> cpu::Training {
        let BatchNormTrain { eps, affine, track, cumulative, activation, .. } = *self;
        cpu::Training { eps: f64::from_bits(eps), activation, affine, track, cumulative }
    }
}

/// Operands: dy, x, mean, inverse deviation; if affine weight; with relu what it is known from. Results: dx; if affine
/// dweight, dbias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormTrainGrad {
    pub affine: bool,
    /// Set by the lowering pass.
    pub relu: Mask,
}

/// How the gradient knows what a relu behind the normalisation let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mask {
    /// There was no relu.
    None,
    /// From its result.
    Output,
    /// From the result of a relu6. For CPU cores.
    Limited,
    /// From x, normalised again: the operand is the bias. For GPUs, where reading the result costs more than that.
    Bias,
}

/// By running statistics. Operands: x, running mean, running variance; if affine weight, bias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormEval {
    pub eps: u64,
    pub affine: bool,
    /// Set by the lowering pass.
    pub activation: Activation,
}

/// Operands: dy, x, running mean, running variance; if affine weight. Results: dx; if affine dweight, dbias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormEvalGrad {
    pub eps: u64,
    pub affine: bool,
}

/// Rows and channels: images count every pixel as a row.
fn matrix(x: &Meta) -> Option<(usize, usize)> {
    match x.shape[..] {
        [n, c] => Some((n, c)),
        [n, c, h, w] => Some((n * h * w, c)),
        _ => None,
    }
}

/// Checks x and the per-channel operands.
fn check(x: &Meta, per_channel: &[(&'static str, &Meta)]) -> Result<(usize, usize)> {
    let wrong = |problem: String| {
        let operands: Vec<_> = [("input", x)].into_iter().chain(per_channel.iter().copied()).collect();
        Error::operands("batch_norm", problem, &operands)
    };
    let (rows, c) = matrix(x).ok_or_else(|| wrong("needs an input [n, c] or [n, c, h, w]".into()))?;
    if !x.dtype.is_float() {
        return Err(wrong("needs a floating-point input".into()));
    }
    for (role, m) in per_channel {
        if m.shape[..] != [c] {
            return Err(wrong(format!("input has {c} channels but {role} has {} elements", m.shape.numel())));
        }
        // In mixed precision images have 16 bits, and what belongs to a channel is f32.
        if m.dtype != x.dtype && !(x.dtype.compute() != x.dtype && m.dtype == DType::F32) {
            return Err(wrong(format!("{role} must be {}", x.dtype)));
        }
    }
    Ok((rows, c))
}

impl Operation for BatchNormTrain {
    fn name(&self) -> &'static str {
        "batch_norm"
    }
    fn describe(&self) -> String {
        format!("batch_norm{}{}", if self.added { "·add" } else { "" }, self.activation.suffix())
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let names = ["weight", "bias", "running_mean", "running_var"];
        let first = if self.affine { 0 } else { 2 };
        let last = if self.track { 4 } else { 2 };
        let roles: Vec<_> = names[first..last.max(first)].iter().copied().zip(inputs[1..].iter().copied()).collect();
        let (rows, c) = check(x, &roles)?;
        if rows == 1 {
            let problem = "needs more than one value per channel to train; use a larger batch, or eval()";
            return Err(Error::operands("batch_norm", problem, &[("input", x)]));
        }
        let per_channel = Meta::new([c], roles.first().map_or(x.dtype, |(_, m)| m.dtype));
        let mut metas: Metas = smallvec![x.clone(), per_channel.clone(), per_channel.clone()];
        if self.track {
            metas.extend([per_channel.clone(), per_channel, Meta::new((), DType::I64)]);
        }
        Ok(metas)
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, dy) = (&at.inputs[0], &at.dy()?);
        let mut operands: SmallVec<[&Tensor; 5]> = smallvec![dy, x, &at.outputs[1], &at.outputs[2]];
        if self.affine {
            operands.push(&at.inputs[1]);
        }
        let op = BatchNormTrainGrad { affine: self.affine, relu: Mask::None };
        let mut gradients: Vec<_> = Tensor::apply_all(op, &operands)?.into_iter().map(Some).collect();
        gradients.resize(at.inputs.len(), None);
        Ok(gradients)
    }
    fn spatial(&self) -> Spatial {
        // What is added comes last; what belongs to a channel has one dimension and no layout.
        if self.added { Spatial::of(&[0, 1, 2, 3, 4, 5, 6, 7], &[0]) } else { Spatial::of(&[0], &[0]) }
    }
    fn in_place(&self, _inputs: usize) -> Vec<(usize, usize)> {
        let first = self.tracked();
        if self.track { (0..3).map(|i| (3 + i, first + i)).collect() } else { Vec::new() }
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let (rows, c) = check(x, &[])?;
        Ok(float_kernel!(x.dtype, T => {
            let kernel = cpu::TrainForward::<T>::new(rows, c, self.training());
            if let Some(parts) = self.parts(inputs) { kernel.measured(parts) } else { kernel }
        }))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::train(self, inputs, outputs, gpu)
    }
    fn with_activation(&self, activation: Activation) -> Option<Op> {
        Some(BatchNormTrain { activation, ..self.clone() }.into())
    }
}

impl Operation for BatchNormTrainGrad {
    fn name(&self) -> &'static str {
        "batch_norm_grad"
    }
    fn describe(&self) -> String {
        let mask = match self.relu {
            Mask::None => "",
            Mask::Limited => "·relu6",
            Mask::Output | Mask::Bias => "·relu",
        };
        format!("batch_norm_grad{mask}")
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas: Metas = smallvec![inputs[1].clone()];
        if self.affine {
            metas.extend([inputs[4].clone(), inputs[4].clone()]);
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        // The last one is y: operand 4 or 5. Weight, when it is operand 4, has one dimension and no layout.
        Spatial::of(&[0, 1, 4, 5], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, c) = check(&inputs[1].meta, &[])?;
        let behind = match self.relu {
            Mask::Output => Activation::Relu,
            Mask::Limited => Activation::Relu6,
            Mask::None | Mask::Bias => Activation::None,
        };
        Ok(float_kernel!(inputs[1].meta.dtype, T => cpu::TrainBackward::<T>::new(rows, c, self.affine, behind)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::train_gradient(self, inputs, gpu)
    }
}

impl Operation for BatchNormEval {
    fn name(&self) -> &'static str {
        "batch_norm_eval"
    }
    fn describe(&self) -> String {
        format!("batch_norm_eval{}", self.activation.suffix())
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let names = ["running_mean", "running_var", "weight", "bias"];
        let roles: Vec<_> = names.into_iter().zip(inputs[1..].iter().copied()).collect();
        check(inputs[0], &roles)?;
        one(inputs[0].clone())
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let dy = &at.dy()?;
        let mut operands: SmallVec<[&Tensor; 5]> = smallvec![dy, &at.inputs[0], &at.inputs[1], &at.inputs[2]];
        operands.extend(at.inputs.get(3));
        let op = BatchNormEvalGrad { eps: self.eps, affine: self.affine };
        let mut found = Tensor::apply_all(op, &operands)?.into_iter();
        let mut gradients = vec![found.next(), None, None];
        gradients.extend(found.map(Some));
        Ok(gradients)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, c) = check(&inputs[0].meta, &[])?;
        let eps = f64::from_bits(self.eps);
        Ok(
            float_kernel!(inputs[0].meta.dtype, T => cpu::EvalForward::<T>::new(rows, c, eps, self.activation, self.affine)),
        )
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::eval(self, inputs, gpu)
    }
    fn with_activation(&self, activation: Activation) -> Option<Op> {
        Some(BatchNormEval { activation, ..self.clone() }.into())
    }
}

impl Operation for BatchNormEvalGrad {
    fn name(&self) -> &'static str {
        "batch_norm_eval_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        BatchNormTrainGrad { affine: self.affine, relu: Mask::None }.outputs(inputs)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0, 1], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (rows, c) = check(&inputs[1].meta, &[])?;
        let eps = f64::from_bits(self.eps);
        Ok(float_kernel!(inputs[1].meta.dtype, T => cpu::EvalBackward::<T>::new(rows, c, eps, self.affine, false)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::eval_gradient(self, inputs, gpu)
    }
}

/// Running statistics of a batch-norm layer.
pub struct RunningStats<'a> {
    /// Mean of each channel.
    pub mean: &'a Tensor,
    /// Variance of each channel.
    pub var: &'a Tensor,
    /// Batches seen so far, one i64.
    pub batches: &'a Tensor,
}

/// What a training batch-norm gives: the output, and new running statistics to keep.
pub struct Normalized {
    /// The normalised input.
    pub output: Tensor,
    /// New mean, variance and number of batches, when running statistics were given.
    pub stats: Option<[Tensor; 3]>,
}

impl Tensor {
    /// Normalises each channel of `[n, c]`, `[n, c, l]` or `[n, c, h, w]` by the batch's own mean and variance.
    /// `momentum` is the weight of this batch in the new running statistics; `None` means all batches alike.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from([[1.0f32], [3.0]]);
    /// let y = x.batch_norm_train(None, None, Some(0.1), 0.0)?.output;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn batch_norm_train(
        &self,
        affine: Option<(&Tensor, &Tensor)>,
        running: Option<RunningStats<'_>>,
        momentum: Option<f64>,
        eps: f64,
    ) -> Result<Normalized> {
        if let &[n, c, l] = &self.shape()[..] {
            let done = self.reshape([n, c, l, 1])?.batch_norm_train(affine, running, momentum, eps)?;
            return Ok(Normalized { output: done.output.reshape([n, c, l])?, ..done });
        }
        let weight = Tensor::numbers(momentum.map(Number::Float), Meta::new((), self.dtype()));
        let mut operands: SmallVec<[&Tensor; 8]> = smallvec![self];
        operands.extend(affine.iter().flat_map(|(w, b)| [*w, *b]));
        if let Some(r) = &running {
            operands.extend([r.mean, r.var, r.batches]);
            operands.extend(momentum.is_some().then_some(&weight));
        }
        let op = BatchNormTrain {
            eps: eps.to_bits(),
            affine: affine.is_some(),
            track: running.is_some(),
            cumulative: momentum.is_none(),
            added: false,
            measured: false,
            activation: Activation::None,
        };
        let results = Tensor::apply_all(op, &operands)?;
        let stats = running.map(|_| [results[3].clone(), results[4].clone(), results[5].clone()]);
        Ok(Normalized { output: results[0].clone(), stats })
    }

    /// Normalises each channel by given statistics, as in evaluation.
    #[track_caller]
    pub fn batch_norm_eval(
        &self,
        mean: &Tensor,
        var: &Tensor,
        affine: Option<(&Tensor, &Tensor)>,
        eps: f64,
    ) -> Result<Tensor> {
        if let &[n, c, l] = &self.shape()[..] {
            return self.reshape([n, c, l, 1])?.batch_norm_eval(mean, var, affine, eps)?.reshape([n, c, l]);
        }
        let mut operands: SmallVec<[&Tensor; 5]> = smallvec![self, mean, var];
        operands.extend(affine.iter().flat_map(|(w, b)| [*w, *b]));
        Tensor::apply(
            BatchNormEval { eps: eps.to_bits(), affine: affine.is_some(), activation: Activation::None },
            &operands,
        )
    }
}
