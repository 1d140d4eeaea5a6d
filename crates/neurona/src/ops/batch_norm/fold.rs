//! Batch normalisation by running statistics as a scale and a shift of what the convolution before it gives.
//! Only the lowering pass makes it.

use super::super::Operation;
use crate::Result;
use crate::cpu::kernel::{Io, Kernel};
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::Meta;
use smallvec::smallvec;

/// Operands: running mean, running variance; if affine weight, bias; with `bias` the convolution's.
/// Results: the scale of each filter, and the bias of the convolution that normalises as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormFold {
    /// As bits: options of plans must be comparable.
    pub eps: u64,
    pub affine: bool,
    pub bias: bool,
}

impl Operation for BatchNormFold {
    fn name(&self) -> &'static str {
        "batch_norm_fold"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(smallvec![inputs[0].clone(), inputs[0].clone()])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Ok(Box::new(Fold { op: self.clone(), channels: inputs[0].meta.shape.numel() }))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        super::cuda::fold(self, inputs, gpu)
    }
}

struct Fold {
    op: BatchNormFold,
    channels: usize,
}

impl Kernel for Fold {
    fn phases(&self) -> Vec<usize> {
        vec![1]
    }

    fn run(&self, _phase: usize, _task: usize, io: &Io<'_>) {
        let c = self.channels;
        // SAFETY: nobody writes the inputs.
        let input = |i: usize| unsafe { io.inputs[i].slice::<f32>() };
        // SAFETY: there is one task.
        let (scale, shift) = unsafe { (io.outputs[0].slice_mut::<f32>(0..c), io.outputs[1].slice_mut::<f32>(0..c)) };
        let (mean, variance) = (input(0), input(1));
        let affine = self.op.affine.then(|| (input(2), input(3)));
        let bias = self.op.bias.then(|| input(if self.op.affine { 4 } else { 2 }));
        let eps = f64::from_bits(self.op.eps);
        // In double precision: a large mean over a small deviation must not cost digits twice.
        for i in 0..c {
            let (weight, offset) = affine.map_or((1.0, 0.0), |(w, b)| (f64::from(w[i]), f64::from(b[i])));
            let factor = weight / (f64::from(variance[i]) + eps).sqrt();
            scale[i] = factor as f32;
            shift[i] = (offset + (bias.map_or(0.0, |b| f64::from(b[i])) - f64::from(mean[i])) * factor) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Conv2dOptions, DType, Result, Tensor};

    /// Convolution, batch norm by given statistics and relu; only single precision is folded.
    fn block(dtype: DType, groups: usize, bias: bool, affine: bool, keep: bool) -> Result<Vec<f64>> {
        let noise = |shape: &[usize], low: f64| -> Result<Tensor> {
            let n: usize = shape.iter().product();
            let values: Vec<f64> = (0..n).map(|i| low + (i as f64 * 0.7).sin()).collect();
            Tensor::from_vec(values, shape.to_vec())?.to_dtype(dtype)
        };
        let x = noise(&[3, 6, 9, 7], 0.0)?;
        let weight = noise(&[12, 6 / groups, 3, 3], 0.0)?;
        let conv_bias = noise(&[12], 0.5)?;
        let (mean, var) = (noise(&[12], 0.3)?, noise(&[12], 1.1)?);
        let (scale, shift) = (noise(&[12], -0.2)?, noise(&[12], 0.1)?);
        let options = Conv2dOptions { padding: [1, 1], groups, ..Default::default() };
        let between = x.conv2d(&weight, bias.then_some(&conv_bias), options)?;
        let y = between.batch_norm_eval(&mean, &var, affine.then_some((&scale, &shift)), 1e-5)?.relu()?;
        // A result that somebody else reads must still be there.
        let mut seen = y.to_dtype(DType::F64)?.to_vec::<f64>()?;
        if keep {
            seen.extend(between.to_dtype(DType::F64)?.to_vec::<f64>()?);
        }
        Ok(seen)
    }

    #[test]
    fn folded_is_what_it_was() -> Result<()> {
        for (groups, bias, affine, keep) in [
            (1, false, true, false),
            (1, true, true, false),
            (2, true, false, false),
            (6, false, true, false),
            (1, true, true, true),
        ] {
            let folded = block(DType::F32, groups, bias, affine, keep)?;
            let plain = block(DType::F64, groups, bias, affine, keep)?;
            for (a, b) in folded.iter().zip(&plain) {
                assert!((a - b).abs() < 2e-5 * b.abs().max(1.0), "{groups} {bias} {affine} {keep}: {a} {b}");
            }
        }
        Ok(())
    }
}
