//! Average pooling.

pub(crate) mod cpu;
mod cuda;

use super::pool::PoolOptions;
use super::{At, Operation, Spatial, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{Meta, Tensor};
use crate::{Error, Result};

/// The mean of each window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AvgPool2d {
    pub options: PoolOptions,
    /// Whether zeros of the padding count as elements.
    pub count_include_pad: bool,
}

/// The gradient by the input, of the size given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AvgPool2dGrad {
    pub options: PoolOptions,
    pub count_include_pad: bool,
    pub size: [usize; 2],
}

impl Operation for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let g = self.options.check(x).map_err(|p| Error::operands("avg_pool2d", p, &[("input", x)]))?;
        one(Meta::new([g.n, g.c, g.oh(), g.ow()], x.dtype))
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = at.inputs[0].shape();
        let AvgPool2d { options, count_include_pad } = *self;
        let op = AvgPool2dGrad { options, count_include_pad, size: [x[2], x[3]] };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?])?)])
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&inputs[0].meta).map_err(|p| Error::op("avg_pool2d", p))?;
        Ok(float_kernel!(inputs[0].meta.dtype, T => cpu::Forward::<T>::new(g, self.count_include_pad)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0].meta;
        let g = self.options.check(x).map_err(|p| Error::op("avg_pool2d", p))?;
        cuda::kernel(&g, self.count_include_pad, false, x.dtype, gpu)
    }
}

impl Operation for AvgPool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = inputs[0];
        one(Meta::new([dy.shape[0], dy.shape[1], self.size[0], self.size[1]], dy.dtype))
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0])
    }
    fn cpu(&self, _inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&outputs[0].meta).map_err(|p| Error::op(self.name(), p))?;
        Ok(float_kernel!(outputs[0].meta.dtype, T => cpu::InputGrad::<T>::new(g, self.count_include_pad)))
    }
    fn cuda(&self, _inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let dx = &outputs[0].meta;
        let g = self.options.check(dx).map_err(|p| Error::op(self.name(), p))?;
        cuda::kernel(&g, self.count_include_pad, true, dx.dtype, gpu)
    }
}

impl Tensor {
    /// The mean of each window of images `[n, c, h, w]`; zeros of the padding count, as in PyTorch by default.
    ///
    /// ```
    /// use neurona::{PoolOptions, Tensor};
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 6.0]]).reshape([1, 1, 2, 2])?;
    /// assert_eq!(x.avg_pool2d(PoolOptions::square(2))?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool2d(&self, options: PoolOptions) -> Result<Tensor> {
        self.avg_pool2d_with(options, true)
    }

    /// The same, with a choice of whether zeros of the padding count.
    #[track_caller]
    pub fn avg_pool2d_with(&self, options: PoolOptions, count_include_pad: bool) -> Result<Tensor> {
        Tensor::apply(AvgPool2d { options, count_include_pad }, &[self])
    }

    /// The mean of each whole image: `[n, c, h, w]` becomes `[n, c, 1, 1]`.
    #[track_caller]
    pub fn global_avg_pool2d(&self) -> Result<Tensor> {
        if self.rank() != 4 {
            return Err(self.error("global_avg_pool2d", "needs images [n, c, h, w]"));
        }
        self.mean_dims(&[2, 3], true)
    }

    /// The means of windows chosen so that the output has this size. Where it does not divide the input's,
    /// windows overlap as PyTorch's do: from ⌊i h / oh⌋ up to ⌈(i + 1) h / oh⌉.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0, 6.0]]).reshape([1, 1, 1, 3])?;
    /// assert_eq!(x.adaptive_avg_pool2d([1, 2])?.to_vec::<f32>()?, [1.5, 4.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Result<Tensor> {
        let &[_, _, h, w] = &self.shape()[..] else {
            return Err(self.error("adaptive_avg_pool2d", "needs images [n, c, h, w]"));
        };
        let [oh, ow] = size;
        if oh == 0 || ow == 0 || h == 0 || w == 0 {
            let problem = format!("there are no means of {oh} x {ow} from images of {h} x {w}");
            return Err(self.error("adaptive_avg_pool2d", problem));
        }
        if size == [1, 1] {
            return self.global_avg_pool2d();
        }
        if h % oh == 0 && w % ow == 0 {
            let kernel = [h / oh, w / ow];
            return self.avg_pool2d(PoolOptions { kernel, stride: kernel, ..PoolOptions::square(1) });
        }
        let down = bins(h, oh)?.to_dtype(self.dtype())?.to(self.device())?;
        let across = bins(w, ow)?.to_dtype(self.dtype())?.to(self.device())?;
        down.matmul(&self.matmul(&across.t()?)?)
    }
}

/// A matrix `[windows, size]` that takes the mean of each window.
fn bins(size: usize, windows: usize) -> Result<Tensor> {
    let mut shares = vec![0.0f64; windows * size];
    for (i, row) in shares.chunks_mut(size).enumerate() {
        let (start, end) = (i * size / windows, ((i + 1) * size).div_ceil(windows));
        row[start..end].fill(1.0 / (end - start) as f64);
    }
    Tensor::from_vec(shares, [windows, size])
}
