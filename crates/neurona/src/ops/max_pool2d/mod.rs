//! Max pooling.

pub(crate) mod cpu;
mod cuda;

use super::pad::PadMode;
use super::pool::{Pool, PoolOptions};
use super::{At, Operation, Spatial, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};
use crate::{Error, Result};
use smallvec::smallvec;

/// Results: the largest of each window, and where in the window it stood (as u8), for the gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MaxPool2d {
    pub options: PoolOptions,
}

/// The gradient by the input, of the size given. Operands: dy, places; with relu the pool's result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MaxPool2dGrad {
    pub options: PoolOptions,
    pub size: [usize; 2],
    /// Set by the lowering pass, for GPUs: only windows whose result is above 0 count, because their input was a relu's.
    pub relu: bool,
}

impl Operation for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let x = inputs[0];
        let g = self.options.check(x).map_err(|p| Error::operands("max_pool2d", p, &[("input", x)]))?;
        if g.kernel[0] * g.kernel[1] > 255 {
            return Err(Error::operands("max_pool2d", "windows have at most 255 cells", &[("input", x)]));
        }
        let shape = [g.n, g.c, g.oh(), g.ow()];
        Ok(smallvec![Meta::new(shape, x.dtype), Meta::new(shape, DType::U8)])
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = at.inputs[0].shape();
        let op = MaxPool2dGrad { options: self.options, size: [x[2], x[3]], relu: false };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?, &at.outputs[1]])?)])
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0, 1])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&inputs[0].meta).map_err(|p| Error::op("max_pool2d", p))?;
        Ok(float_kernel!(inputs[0].meta.dtype, T => cpu::Forward::<T>::new(g)))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0].meta;
        let g = self.options.check(x).map_err(|p| Error::op("max_pool2d", p))?;
        cuda::forward(&g, x.dtype, gpu)
    }
}

impl Operation for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = inputs[0];
        one(Meta::new([dy.shape[0], dy.shape[1], self.size[0], self.size[1]], dy.dtype))
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0, 1, 2], &[0])
    }
    fn cpu(&self, _inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g: Pool = self.options.check(&outputs[0].meta).map_err(|p| Error::op(self.name(), p))?;
        Ok(float_kernel!(outputs[0].meta.dtype, T => cpu::InputGrad::<T>::new(g)))
    }
    fn cuda(&self, _inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let dx = &outputs[0].meta;
        let g = self.options.check(dx).map_err(|p| Error::op(self.name(), p))?;
        cuda::gradient(&g, self.relu, dx.dtype, gpu)
    }
}

impl Tensor {
    /// The largest element of each window of images `[n, c, h, w]`.
    ///
    /// ```
    /// use neurona::{PoolOptions, Tensor};
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]).reshape([1, 1, 2, 2])?;
    /// assert_eq!(x.max_pool2d(PoolOptions::square(2))?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, options: PoolOptions) -> Result<Tensor> {
        Tensor::apply(MaxPool2d { options }, &[self])
    }

    /// The same with windows whose cells stand `dilation` rows and columns apart.
    ///
    /// ```
    /// use neurona::{PoolOptions, Tensor};
    /// let x = Tensor::arange(9)?.to_dtype(neurona::DType::F32)?.reshape([1, 1, 3, 3])?;
    /// let options = PoolOptions { stride: [1, 1], ..PoolOptions::square(2) };
    /// assert_eq!(x.max_pool2d_dilated(options, [2, 2])?.to_vec::<f32>()?, [8.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool2d_dilated(&self, options: PoolOptions, dilation: [usize; 2]) -> Result<Tensor> {
        if dilation == [1, 1] {
            return self.max_pool2d(options);
        }
        let PoolOptions { kernel, stride, padding, .. } = options;
        if dilation.contains(&0) || kernel.contains(&0) {
            return Err(self.error("max_pool2d", "window and dilation must be at least 1"));
        }
        let reach = [0, 1].map(|axis| dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1));
        let g = match (PoolOptions { kernel: reach, ..options }).check(self.meta()) {
            Ok(g) => g,
            Err(problem) => return Err(self.error("max_pool2d", problem)),
        };
        if kernel[0].saturating_mul(kernel[1]) > 255 {
            return Err(self.error("max_pool2d", "windows have at most 255 cells"));
        }
        // Rows and columns from the first cell of the first window to the last cell of the last one.
        let (size, windows) = ([g.h, g.w], [g.oh(), g.ow()]);
        let after = [0, 1].map(|i| ((windows[i] - 1) * stride[i] + reach[i]).saturating_sub(size[i] + padding[i]));
        let margins = [padding[1], after[1], padding[0], after[0]];
        let x = self.pad(&margins, PadMode::Constant(f64::NEG_INFINITY))?;
        let cells = |x: &Tensor, axis: usize, place: usize| {
            let start = (place * dilation[axis]) as isize;
            let end = start + ((windows[axis] - 1) * stride[axis] + 1) as isize;
            x.slice(2 + axis as isize, start, end, stride[axis])
        };
        // One image for each cell of the window; of equal ones the first wins, as it does in one pass.
        let mut found = Vec::with_capacity(kernel[0] * kernel[1]);
        for r in 0..kernel[0] {
            let rows = cells(&x, 0, r)?;
            for s in 0..kernel[1] {
                found.push(cells(&rows, 1, s)?);
            }
        }
        Ok(Tensor::stack(&found.iter().collect::<Vec<_>>(), -1)?.max_dim(-1, false)?.0)
    }
}
