//! Batch normalisation, relu and max pooling in one, on GPUs.

use super::{BatchNormPool, BatchNormPoolGrad, geometry, tiles};
use crate::Result;
use crate::cuda::cut::{Columns, Module, Sweep, vector};
use crate::cuda::kernel::Argument::{F64, I64, Input, Null, Output, Workspace};
use crate::cuda::kernel::{Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::Operand;
use crate::ops::batch_norm::cuda::{Matrix, channels, some, with_momentum};
use crate::ops::pool::{self, Pool};
use crate::tensor::DType;

static FORWARD: Source = Source::embedded("batch_norm_pool.cu", include_str!("batch_norm_pool.cu"));
static GRADIENT: Source = Source::embedded("batch_norm_pool_gradient.cu", include_str!("batch_norm_pool_gradient.cu"));

/// Bytes of a patch that a thread keeps in registers.
const HELD: usize = 80;
/// `WINDOW_THREADS` and `TILE_THREADS` of the gradient.
const WINDOW_THREADS: usize = 320;
const TILE_THREADS: usize = 256;

/// Sweeps over `rows` patches of `cells` pixels each, which together are the images.
fn patches(gpu: &Gpu, g: &Pool, dtype: DType, rows: usize, cells: usize, threads: usize) -> Columns {
    let mut vector = vector(dtype, g.c);
    while vector > 1 && cells.saturating_mul(vector * dtype.size()) > HELD {
        vector /= 2;
    }
    Columns::of(gpu, rows, g.c, Sweep { vector, threads, bytes: g.input_len() * dtype.size() })
}

/// The file's kernels for images and parameters of these types.
fn module<'a>(gpu: &'a Gpu, source: &'static Source, g: &Pool, types: [DType; 2], cut: &Columns) -> Module<'a> {
    let [image, parameter] = types;
    let module = Module::new(gpu, source).of("ELEMENT", image).of("PARAMETER", parameter);
    pool::windows(module.with("VECTOR", cut.vector), g)
}

pub(super) fn forward(op: &BatchNormPool, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (x, norm) = (&inputs[0], &op.norm);
    let (g, dtype) = (geometry(&op.pool, &x.meta)?, x.meta.dtype);
    let pixels = Matrix::new(gpu, x)?;
    // Any operand of channels tells their type.
    let parameter = if norm.affine || norm.track { inputs[1].meta.dtype } else { dtype };
    let (mut launches, moments) = pixels.moments(norm, &pixels.forward(gpu, x, parameter))?;
    let cells = g.kernel[0] * g.kernel[1];
    let cut = patches(gpu, &g, dtype, g.n * g.oh() * g.ow(), cells, Columns::THREADS);
    let module = with_momentum(module(gpu, &FORWARD, &g, [dtype, parameter], &cut), norm, inputs);
    let mut arguments = vec![Input(0), Output(0)];
    arguments.extend(moments);
    arguments.extend([channels(norm), I64(cut.run as i64), F64(f64::from_bits(norm.eps)), pool::images(&g)]);
    launches.push(module.launch("batch_norm_pool", cut.grid(), arguments)?);
    Ok(Box::new(Launches { launches, workspace: pixels.workspace(), flops: 9 * g.input_len() as u64 }))
}

pub(super) fn gradient(op: &BatchNormPoolGrad, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let x = &inputs[1];
    let (g, dtype) = (geometry(&op.pool, &x.meta)?, x.meta.dtype);
    let parameter = if op.affine { inputs[4].meta.dtype } else { dtype };
    let windows = g.n * g.oh() * g.ow();
    let cut = patches(gpu, &g, dtype, windows, g.kernel[0] * g.kernel[1], WINDOW_THREADS);
    let sums = Matrix::of(windows, g.c, dtype, cut);
    let parameters = [Input(0), Input(1), Input(2), Input(3), some(op.affine, 4), some(op.affine, 5)];
    let mut arguments = parameters.to_vec();
    arguments.extend([Workspace(0), I64(sums.run()), pool::images(&g)]);
    let first = module(gpu, &GRADIENT, &g, [dtype, parameter], &sums.cut);
    let mut launches = vec![first.launch("batch_norm_pool_gradient_sums", sums.cut.grid(), arguments)?];
    let (join, partial) = sums.sums(&sums.gradient(gpu, x, parameter))?;
    launches.extend(join);
    let [down, across] = tiles(&g);
    let cut = patches(gpu, &g, dtype, g.n * down * across, g.stride[0].saturating_mul(g.stride[1]), TILE_THREADS);
    let by = |i: usize| if op.affine { Output(i) } else { Null };
    let mut arguments = parameters.to_vec();
    arguments.extend(partial);
    arguments.extend([Output(0), by(1), by(2), I64(cut.run as i64), pool::images(&g)]);
    let second = module(gpu, &GRADIENT, &g, [dtype, parameter], &cut);
    launches.push(second.launch("batch_norm_pool_gradient", cut.grid(), arguments)?);
    Ok(Box::new(Launches { launches, workspace: sums.workspace(), flops: 14 * g.input_len() as u64 }))
}
