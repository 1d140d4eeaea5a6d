//! Batch normalisation in training, relu and max pooling in one. Only the lowering pass makes it, where nobody else needs
//! what is normalised: that is then never stored, but computed again from the input wherever it is looked at.

pub(crate) mod cpu;
mod cuda;
mod weights;

pub(crate) use weights::BatchNormPoolWeightGrad;

use super::batch_norm::BatchNormTrain;
use super::pool::{Pool, PoolOptions};
use super::{Operation, Spatial};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};
use smallvec::smallvec;

/// Operands: those of the normalisation. Results: the pooled images, then those of the normalisation, of which mean and
/// inverse deviation are not rounded to 16 bits: the gradient must find the same winners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormPool {
    pub norm: BatchNormTrain,
    pub pool: PoolOptions,
}

/// Operands: the gradient by the pooled images, x, mean, inverse deviation; if affine weight, bias.
/// Results: dx; if affine dweight, dbias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormPoolGrad {
    pub affine: bool,
    pub pool: PoolOptions,
}

/// Whether a pool can be joined with the normalisation before it: every element is in one window at most, and a thread can
/// look at all elements from one window to the next.
pub(crate) fn joins(pool: &PoolOptions) -> bool {
    let apart = (0..2).all(|axis| pool.stride[axis] >= pool.kernel[axis]);
    pool.padding == [0, 0] && apart && pool.stride[0].saturating_mul(pool.stride[1]) <= 255
}

fn geometry(pool: &PoolOptions, x: &Meta) -> Result<Pool> {
    pool.check(x).map_err(|problem| Error::op("batch_norm_pool", problem))
}

/// How many tiles of one stride cover each axis of an image; those at the edge may be cut off, or have no window.
fn tiles(g: &Pool) -> [usize; 2] {
    [g.h.div_ceil(g.stride[0]), g.w.div_ceil(g.stride[1])]
}

/// The type in which statistics pass from the normalisation to its gradient.
fn statistics(channel: DType) -> DType {
    channel.compute()
}

impl Operation for BatchNormPool {
    fn name(&self) -> &'static str {
        "batch_norm_pool"
    }
    fn describe(&self) -> String {
        "batch_norm·relu·max_pool2d".into()
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas = self.norm.outputs(inputs)?;
        let g = geometry(&self.pool, inputs[0])?;
        metas[0] = Meta::new([g.n, g.c, g.oh(), g.ow()], inputs[0].dtype);
        for meta in &mut metas[1..3] {
            meta.dtype = statistics(meta.dtype);
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        self.norm.spatial()
    }
    fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
        self.norm.in_place(inputs)
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[0].meta;
        let (g, options) = (geometry(&self.pool, x)?, self.norm.training());
        Ok(float_kernel!(x.dtype, T => {
            let kernel = cpu::Forward::<T>::new(g, options);
            if let Some(parts) = self.norm.parts(inputs) { kernel.measured(parts) } else { kernel }
        }))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::forward(self, inputs, gpu)
    }
}

impl Operation for BatchNormPoolGrad {
    fn name(&self) -> &'static str {
        "batch_norm_pool_grad"
    }
    fn describe(&self) -> String {
        "batch_norm·relu·max_pool2d_grad".into()
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas: Metas = smallvec![inputs[1].clone()];
        if self.affine {
            metas.extend([inputs[4].clone(), inputs[5].clone()]);
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0, 1], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let x = &inputs[1].meta;
        let g = geometry(&self.pool, x)?;
        Ok(float_kernel!(x.dtype, T => cpu::Backward::<T>::new(g, self.affine)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        cuda::gradient(self, inputs, gpu)
    }
}
