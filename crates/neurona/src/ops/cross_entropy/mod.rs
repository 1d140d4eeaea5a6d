//! Cross-entropy of logits with class numbers: log-softmax and negative log-likelihood in one pass.

mod both;
mod composed;
pub(crate) mod cpu;
mod cuda;

use super::{At, Operation, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Device, Meta, Shape, Tensor, here};
use crate::{Error, Result};
pub use cpu::Reduction;
use smallvec::smallvec;

/// How targets are read and losses joined.
///
/// ```
/// use neurona::{CrossEntropyOptions, Reduction};
/// assert_eq!(CrossEntropyOptions::default().reduction, Reduction::Mean);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyOptions {
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
    /// The share of the target that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// Rows with this target count for nothing.
    pub ignore_index: i64,
}

impl Default for CrossEntropyOptions {
    fn default() -> Self {
        CrossEntropyOptions { reduction: Reduction::Mean, label_smoothing: 0.0, ignore_index: -100 }
    }
}

/// Operands: logits [rows, classes], targets i64 [rows]. Results: loss, and what the gradient needs of each row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CrossEntropy {
    pub reduction: Reduction,
    pub label_smoothing: u64,
    pub ignore_index: i64,
}

/// Operands: logits, second result of the loss, targets, dloss.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CrossEntropyGrad {
    pub of: CrossEntropy,
    /// Set by the lowering pass: the type of the result, where it is not the logits'.
    pub to: Option<DType>,
}

/// Loss and gradient in one step, as the lowering pass joins them. Operands: logits, targets, dloss. Results: those of
/// the loss, dlogits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CrossEntropyBoth {
    pub gradient: CrossEntropyGrad,
}

impl CrossEntropy {
    fn options(&self) -> cpu::Options {
        cpu::Options {
            reduction: self.reduction,
            label_smoothing: f64::from_bits(self.label_smoothing),
            ignore_index: Some(self.ignore_index),
        }
    }
}

impl Operation for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (x, t) = (inputs[0], inputs[1]);
        let wrong = |problem: &str| Error::operands("cross_entropy", problem, &[("logits", x), ("target", t)]);
        if x.shape.len() != 2 || t.shape.len() != 1 || x.shape[0] != t.shape[0] {
            return Err(wrong("needs logits [n, classes] and one target a row"));
        }
        if !x.dtype.is_float() || t.dtype != DType::I64 {
            return Err(wrong("needs floating-point logits and i64 targets"));
        }
        if x.shape[1] == 0 {
            return Err(wrong("there are no classes"));
        }
        let loss = if self.reduction == Reduction::None { t.shape.clone() } else { Shape::default() };
        Ok(smallvec![Meta { shape: loss, dtype: x.dtype }, Meta { shape: t.shape.clone(), dtype: x.dtype }])
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = CrossEntropyGrad { of: self.clone(), to: None };
        let dx = Tensor::apply(op, &[&at.inputs[0], &at.outputs[1], &at.inputs[1], &at.dy()?])?;
        Ok(vec![Some(dx), None])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        Ok(float_kernel!(x.dtype, T => cpu::Forward::<T>::new(x.shape[0], x.shape[1], self.options())))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::forward(self, inputs, outputs, gpu)
    }
}

impl Operation for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(Meta { shape: inputs[0].shape.clone(), dtype: self.to.unwrap_or(inputs[0].dtype) })
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        Ok(float_kernel!(x.dtype, T => cpu::Backward::<T>::new(x.shape[0], x.shape[1], self.of.options())))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::gradient(&self.of, inputs, outputs, gpu)
    }
}

impl Operation for CrossEntropyBoth {
    fn name(&self) -> &'static str {
        "cross_entropy·grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut results = self.gradient.of.outputs(&inputs[..2])?;
        results.extend(self.gradient.outputs(inputs)?);
        Ok(results)
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        Ok(float_kernel!(x.dtype, T => both::Both::<T>::new(x.shape[0], x.shape[1], self.gradient.of.options())))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::both(&self.gradient.of, inputs, outputs, gpu)
    }
}

impl Tensor {
    /// Mean cross-entropy of logits `[n, classes]` with class numbers (i64 `[n]`).
    ///
    /// ```
    /// use neurona::Tensor;
    /// let loss = Tensor::from([[0.0f32, 0.0]]).cross_entropy(&Tensor::from([1i64]))?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(target, CrossEntropyOptions::default())
    }

    /// Cross-entropy with options. Targets are class numbers (i64 `[n]`) or probabilities `[n, classes]`. A class that is
    /// not there is an error: of targets in host memory here, of those on a GPU when something is read from it next.
    ///
    /// ```
    /// use neurona::{CrossEntropyOptions, Tensor};
    /// let (x, mixed) = (Tensor::from([[0.0f32, 0.0]]), Tensor::from([[0.3f32, 0.7]]));
    /// let loss = x.cross_entropy_with(&mixed, CrossEntropyOptions::default())?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy_with(&self, target: &Tensor, options: CrossEntropyOptions) -> Result<Tensor> {
        self.check_smoothing(&options)?;
        if target.dtype().is_float() {
            return self.soft_cross_entropy(target, None, options);
        }
        let op = CrossEntropy {
            reduction: options.reduction,
            label_smoothing: options.label_smoothing.to_bits(),
            ignore_index: options.ignore_index,
        };
        let loss = Tensor::apply(op, &[self, target])?;
        self.check_classes("cross_entropy", target, &options)?;
        Ok(loss)
    }

    /// An error when targets that are there already name classes that are not. Those on a GPU are found by its kernel;
    /// others that are still to be computed give NaN.
    #[track_caller]
    pub(crate) fn check_classes(&self, op: &'static str, target: &Tensor, options: &CrossEntropyOptions) -> Result<()> {
        let classes = self.shape()[1];
        let Some(targets) = target.node.value(target.out).filter(|s| s.device() == Device::Cpu) else {
            return Ok(());
        };
        let valid = |t: i64| t == options.ignore_index || (0..classes as i64).contains(&t);
        match targets.read::<i64>()[..target.numel()].iter().enumerate().find(|(_, t)| !valid(**t)) {
            Some(_) if classes == 0 => Err(self.error(op, "there are no classes")),
            Some((image, label)) => {
                let last = classes - 1;
                Err(self.error(op, format!("label {label} of image {image} of a batch is not between 0 and {last}")))
            }
            None => Ok(()),
        }
    }

    /// Cross-entropy with a weight for each class. The mean over class numbers is divided by the weights of the
    /// rows' classes, as in PyTorch.
    ///
    /// ```
    /// use neurona::{CrossEntropyOptions, Tensor};
    /// let (x, w) = (Tensor::from([[0.0f32, 0.0], [0.0, 9.0]]), Tensor::from([1.0f32, 0.0]));
    /// let loss = x.cross_entropy_weighted(&Tensor::from([0i64, 1]), &w, CrossEntropyOptions::default())?;
    /// assert!((loss.item::<f32>()? - 0.6931).abs() < 1e-4);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy_weighted(
        &self,
        target: &Tensor,
        weight: &Tensor,
        options: CrossEntropyOptions,
    ) -> Result<Tensor> {
        self.check_smoothing(&options)?;
        if target.dtype().is_float() {
            return self.soft_cross_entropy(target, Some(weight), options);
        }
        if self.rank() != 2 {
            return Err(self.error("cross_entropy", "needs logits [n, classes]"));
        }
        self.log_softmax(1)?.nll_with("cross_entropy", target, Some(weight), options)
    }

    #[track_caller]
    fn check_smoothing(&self, options: &CrossEntropyOptions) -> Result<()> {
        let smooth = options.label_smoothing;
        match (0.0..=1.0).contains(&smooth) {
            true => Ok(()),
            false => Err(self.error("cross_entropy", format!("label_smoothing must be from 0 to 1, not {smooth}"))),
        }
    }

    #[track_caller]
    fn soft_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor> {
        let operands = [("logits", self.meta()), ("target", target.meta())];
        if self.rank() != 2 || self.shape() != target.shape() || !self.dtype().is_float() {
            let problem = "needs floating-point logits [n, classes] and targets of the same shape";
            return Err(Error::operands("cross_entropy", problem, &operands).at(here()));
        }
        if self.shape()[1] == 0 {
            return Err(Error::operands("cross_entropy", "there are no classes", &operands).at(here()));
        }
        if options.ignore_index >= 0 {
            let problem = "probabilities as targets have no index to ignore";
            return Err(Error::operands("cross_entropy", problem, &operands).at(here()));
        }
        self.log_softmax(1)?.soft_nll_with(target, weight, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_are_no_classes_are_errors() -> Result<()> {
        let x = Tensor::from([[0.0f32, 1.0], [1.0, 0.0]]);
        let problem = |targets: [i64; 2], o: CrossEntropyOptions| {
            x.cross_entropy_with(&Tensor::from(targets), o).err().map(|e| e.to_string())
        };
        let plain = CrossEntropyOptions::default();
        assert!(
            problem([0, 2], plain).is_some_and(|e| e.contains("label 2 of image 1 of a batch is not between 0 and 1"))
        );
        assert!(problem([-1, 0], plain).is_some_and(|e| e.contains("label -1 of image 0")));
        assert_eq!(problem([-100, 1], plain), None);
        assert_eq!(problem([7, 1], CrossEntropyOptions { ignore_index: 7, ..plain }), None);
        let weights = Tensor::from([1.0f32, 2.0]);
        assert!(x.cross_entropy_weighted(&Tensor::from([0i64, 5]), &weights, plain).is_err());
        Ok(())
    }
}
