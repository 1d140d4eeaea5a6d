//! Single ops timed on a GPU, for `neurona bench`: a plan around them would add its own cost.

use super::choice::{Kernels, kernels, set_kernels};
use super::gpu::Gpu;
use super::kernel::Kernel;
use super::timing::Bench;
use crate::cpu::gemm::Activation;
use crate::graph::ir::{Layout, Operand};
use crate::ops::Op;
use crate::ops::conv2d::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad};
use crate::ops::matmul::MatMul;
use crate::tensor::{DType, Meta};
use crate::{Conv2dOptions, Error, Result};

/// What of a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output.
    Forward,
    /// The gradient by the input.
    InputGradient,
    /// The gradient by the filters.
    WeightGradient,
}

/// An op to time; with 16-bit images, parameters and their gradients are f32, as in mixed precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A convolution of square images with square filters.
    Convolution {
        /// What of it.
        pass: Pass,
        /// The images' type.
        dtype: DType,
        /// Images.
        images: usize,
        /// Their channels.
        channels: usize,
        /// Their height and width.
        size: usize,
        /// Channels of the output.
        filters: usize,
        /// Height and width of the filters.
        kernel: usize,
        /// From one output to the next.
        stride: usize,
        /// Zeros on each side.
        padding: usize,
    },
    /// A product of matrices, m by k and k by n.
    Product {
        /// Of all three.
        dtype: DType,
        /// Rows of the first.
        m: usize,
        /// Columns of the second.
        n: usize,
        /// What is summed over.
        k: usize,
        /// Whether each is stored the other way round.
        transposed: [bool; 2],
    },
}

impl Problem {
    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        match *self {
            Problem::Convolution { images, channels, size, filters, kernel, stride, padding, .. } => {
                let side = (size + 2 * padding - kernel) / stride + 1;
                2.0 * (images * side * side * filters) as f64 * (channels * kernel * kernel) as f64
            }
            Problem::Product { m, n, k, .. } => 2.0 * m as f64 * n as f64 * k as f64,
        }
    }

    fn op(&self) -> Result<(Op, Vec<Operand>, Vec<Operand>)> {
        let images = |sizes: [usize; 4], dtype| Operand {
            meta: Meta::new(sizes, dtype),
            layout: Layout::ChannelsLast,
            lasting: false,
        };
        let plain = |meta: Meta| Operand { meta, layout: Layout::Rows, lasting: false };
        let (op, inputs): (Op, Vec<Operand>) = match *self {
            Problem::Convolution { pass, dtype, images: n, channels, size, filters, kernel, stride, padding } => {
                if size + 2 * padding < kernel || stride == 0 {
                    return Err(Error::Argument("the filters do not fit the images".into()));
                }
                let options = Conv2dOptions { stride: [stride; 2], padding: [padding; 2], ..Conv2dOptions::default() };
                let side = (size + 2 * padding - kernel) / stride + 1;
                let x = images([n, channels, size, size], dtype);
                let y = images([n, filters, side, side], dtype);
                let w = plain(Meta::new([filters, channels, kernel, kernel], DType::F32));
                match pass {
                    Pass::Forward => (
                        Conv2d { options, activation: Activation::None, scaled: false, statistics: false }.into(),
                        vec![x, w],
                    ),
                    Pass::InputGradient => (Conv2dInputGrad { options, size: [size; 2] }.into(), vec![y, w]),
                    Pass::WeightGradient => {
                        let wide = dtype != DType::F32;
                        (Conv2dWeightGrad { options, kernel: [kernel; 2], bias: false, wide }.into(), vec![x, y])
                    }
                }
            }
            Problem::Product { dtype, m, n, k, transposed: [transpose_a, transpose_b] } => {
                let matrix = |rows, columns, transposed| {
                    let sizes = if transposed { [columns, rows] } else { [rows, columns] };
                    plain(Meta::new(sizes, dtype))
                };
                let op = MatMul::new(transpose_a, transpose_b);
                (op.into(), vec![matrix(m, k, transpose_a), matrix(k, n, transpose_b)])
            }
        };
        let metas: Vec<&Meta> = inputs.iter().map(|operand| &operand.meta).collect();
        let outputs = op.outputs(&metas)?.into_iter().map(|meta| match (meta.shape.len(), meta.dtype) {
            (4, _) if !matches!(op, Op::Conv2dWeightGrad(_)) => {
                Operand { meta, layout: Layout::ChannelsLast, lasting: false }
            }
            _ => plain(meta),
        });
        let outputs = outputs.collect();
        Ok((op, inputs, outputs))
    }
}

/// How often each is timed: the middle counts.
const ROUNDS: usize = 31;

/// Seconds of one run on a GPU by each of these kernels: launches replayed from a graph between two events, by turns.
pub fn times(problem: &Problem, which: &[Kernels], gpu: usize) -> Result<Vec<f64>> {
    let gpu = Gpu::get(gpu)?;
    gpu.enter()?;
    let (op, inputs, outputs) = problem.op()?;
    let before = kernels();
    let chosen: Result<Vec<_>> = which
        .iter()
        .map(|which| {
            set_kernels(*which);
            op.cuda(&inputs, &outputs, gpu)
        })
        .collect();
    set_kernels(before);
    let chosen = chosen?;
    let workspace = chosen.iter().map(|kernel| kernel.workspace()).max().unwrap_or(0);
    let racers: Vec<&dyn Kernel> = chosen.iter().map(|kernel| &**kernel).collect();
    Bench::new(&inputs, &outputs, workspace, gpu)?.race(&racers, ROUNDS)?.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_become_ops_with_the_right_results() -> Result<()> {
        let of = |pass, dtype| Problem::Convolution {
            pass,
            dtype,
            images: 4,
            channels: 6,
            size: 14,
            filters: 16,
            kernel: 5,
            stride: 1,
            padding: 0,
        };
        for (pass, shape, dtype) in [
            (Pass::Forward, vec![4, 16, 10, 10], DType::BF16),
            (Pass::InputGradient, vec![4, 6, 14, 14], DType::BF16),
            (Pass::WeightGradient, vec![16, 6, 5, 5], DType::F32),
        ] {
            let (_, _, outputs) = of(pass, DType::BF16).op()?;
            assert_eq!((outputs[0].meta.shape.to_vec(), outputs[0].meta.dtype), (shape, dtype), "{pass:?}");
        }
        assert_eq!(of(Pass::Forward, DType::F32).flops(), 2.0 * (4 * 16 * 100 * 6 * 25) as f64);
        let product = Problem::Product { dtype: DType::F16, m: 3, n: 5, k: 7, transposed: [false, true] };
        let (_, inputs, outputs) = product.op()?;
        assert_eq!((inputs[1].meta.shape.to_vec(), outputs[0].meta.shape.to_vec()), (vec![5, 7], vec![3, 5]));
        Ok(())
    }

    #[test]
    fn an_op_is_timed() -> Result<()> {
        if Gpu::get(0).is_err() {
            eprintln!("no GPU here: tests on CUDA are skipped");
            return Ok(());
        }
        let product = Problem::Product { dtype: DType::F32, m: 8, n: 8, k: 8, transposed: [false; 2] };
        assert!(times(&product, &[Kernels::Own, Kernels::Auto], 0)?.iter().all(|seconds| *seconds > 0.0));
        Ok(())
    }
}
