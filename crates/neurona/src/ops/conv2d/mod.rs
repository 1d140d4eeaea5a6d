//! Two-dimensional convolution (cross-correlation, as everywhere in deep learning).

pub mod cpu;
mod cuda;
pub(crate) mod reference;
mod step;

pub(crate) use step::Conv2dWeightGradStep;

use super::pad::PadMode;
use super::pool::LARGEST;
use super::{At, Op, Operation, Spatial, one};
use crate::cpu::gemm::Activation;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};
use crate::{Error, Result};
use cpu::Geometry;
use smallvec::{SmallVec, smallvec};

/// How the filter moves.
///
/// ```
/// use neurona::Conv2dOptions;
/// let options = Conv2dOptions { padding: [1, 1], ..Default::default() };
/// assert_eq!(options.stride, [1, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2dOptions {
    /// Rows and columns from one output to the next.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [usize; 2],
    /// Rows and columns from one filter value to the next.
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    pub groups: usize,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Conv2dOptions { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

/// Operands: input [n, c, h, w], weight [k, c / groups, r, s], and maybe bias [k] and scale [k]. Results: the images and,
/// with `statistics`, those of parts of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2d {
    pub options: Conv2dOptions,
    /// Set by the lowering pass.
    pub activation: Activation,
    /// Set by the lowering pass, with a bias: each filter is multiplied by its scale.
    pub scaled: bool,
    /// Set by the lowering pass, for CPU cores: batch normalisation begins with statistics that were taken on the way.
    pub statistics: bool,
}

/// The gradient by the input, of the size given. Operands: dy, weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dInputGrad {
    pub options: Conv2dOptions,
    pub size: [usize; 2],
}

/// The gradients by weight and, with `bias`, by bias. Operands: input, dy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dWeightGrad {
    pub options: Conv2dOptions,
    pub kernel: [usize; 2],
    pub bias: bool,
    /// Set by the lowering pass: f32 results from 16-bit operands.
    pub wide: bool,
}

impl Conv2dOptions {
    fn geometry(&self, n: usize, c: usize, size: [usize; 2], k: usize, kernel: [usize; 2]) -> Geometry {
        let ([h, w], [r, s]) = (size, kernel);
        let Conv2dOptions { stride, padding, dilation, groups } = *self;
        Geometry { n, c, h, w, k, r, s, stride, padding, dilation, groups }
    }

    /// The geometry of a convolution, or what does not fit.
    pub(crate) fn check(&self, x: &Meta, w: &Meta) -> Result<Geometry, String> {
        let (&[n, c, h, width], &[k, per_group, r, s]) = (&x.shape[..], &w.shape[..]) else {
            return Err("needs an input [n, c, h, w] and a weight [out, in, h, w]".into());
        };
        let flat = [self.stride, self.dilation];
        let flat = flat.as_flattened();
        if flat.contains(&0) || self.groups == 0 {
            return Err("stride, dilation and groups must be at least 1".into());
        }
        if r == 0 || s == 0 {
            return Err("the filter has no elements".into());
        }
        if flat.iter().chain(&self.padding).chain(&x.shape[..]).chain(&w.shape[..]).any(|&size| size > LARGEST) {
            return Err(format!("sizes, stride, padding and dilation must be at most {LARGEST}"));
        }
        if c % self.groups != 0 || k % self.groups != 0 {
            return Err(format!("{c} input and {k} output channels do not divide into {} groups", self.groups));
        }
        if c / self.groups != per_group {
            return Err(format!("input has {c} channels but the weight expects {}", per_group * self.groups));
        }
        for (size, kernel, axis) in [(h, r, 0), (width, s, 1)] {
            let reach = self.dilation[axis] * kernel.saturating_sub(1) + 1;
            if size + 2 * self.padding[axis] < reach {
                return Err(format!(
                    "a filter that covers {reach} does not fit a padded size of {}",
                    size + 2 * self.padding[axis]
                ));
            }
        }
        Ok(self.geometry(n, c, [h, width], k, [r, s]))
    }
}

impl Operation for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }
    fn describe(&self) -> String {
        let norm = if self.scaled { "·batch_norm" } else { "" };
        format!("conv2d{norm}{}{}", self.activation.suffix(), if self.statistics { "·statistics" } else { "" })
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (x, w) = (inputs[0], inputs[1]);
        let operands = || ["input", "weight", "bias"].into_iter().zip(inputs.iter().copied()).collect::<Vec<_>>();
        let wrong = |problem: String| Error::operands("conv2d", problem, &operands());
        let g = self.options.check(x, w).map_err(wrong)?;
        // Mixed precision rounds f32 filters while it packs them.
        let fits = |m: &Meta| m.dtype == x.dtype || x.dtype.compute() != x.dtype && m.dtype == DType::F32;
        if !inputs.iter().all(|m| fits(m)) || !x.dtype.is_float() {
            return Err(wrong("needs floating-point operands of one type".into()));
        }
        if inputs.get(2).is_some_and(|b| b.shape[..] != [g.k]) {
            return Err(wrong(format!("the bias must have {} elements", g.k)));
        }
        let mut metas = one(Meta::new([g.n, g.k, g.oh(), g.ow()], x.dtype))?;
        if self.statistics {
            metas.push(Meta::new(cpu::statistics(g), DType::F64));
        }
        Ok(metas)
    }
    fn multiply_adds(&self, inputs: &[&Meta], outputs: &[Meta]) -> u64 {
        let per_output: usize = inputs[1].shape[1..].iter().product();
        (outputs[0].shape.numel() as u64).saturating_mul(per_output as u64)
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, w, dy, options) = (&at.inputs[0], &at.inputs[1], &at.dy()?, self.options);
        let by_x = at.when(0, || {
            let size = [x.shape()[2], x.shape()[3]];
            Tensor::apply(Conv2dInputGrad { options, size }, &[dy, w])
        })?;
        let bias = at.wants.get(2) == Some(&true);
        let mut gradients = vec![by_x, None, None];
        if at.wants[1] || bias {
            let kernel = [w.shape()[2], w.shape()[3]];
            let by_w = Tensor::apply_all(Conv2dWeightGrad { options, kernel, bias, wide: false }, &[x, dy])?;
            by_w.into_iter().enumerate().for_each(|(i, g)| gradients[i + 1] = Some(g));
        }
        gradients.truncate(at.inputs.len());
        Ok(gradients)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&inputs[0].meta, &inputs[1].meta).map_err(|p| Error::op("conv2d", p))?;
        let bias = inputs.len() > 2;
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(reference::ForwardReference::<f64>::new(g, bias, self.activation)),
            _ if self.statistics => cpu::measuring(g, bias),
            _ => cpu::forward(g, bias, self.scaled, self.activation),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let g = self.options.check(&inputs[0].meta, &inputs[1].meta).map_err(|p| Error::op("conv2d", p))?;
        let epilogue = cuda::Epilogue {
            bias: inputs.get(2).map(|bias| (2, bias.meta.dtype)),
            scale: self.scaled.then(|| (3, inputs[3].meta.dtype)),
            relu: self.activation.is_relu("conv2d")?,
        };
        cuda::forward(&g, inputs, outputs, &epilogue, gpu)
    }
    fn with_activation(&self, activation: Activation) -> Option<Op> {
        Some(Conv2d { activation, ..self.clone() }.into())
    }
}

impl Operation for Conv2dInputGrad {
    fn name(&self) -> &'static str {
        "conv2d_input_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (dy, w) = (inputs[0], inputs[1]);
        let channels = w.shape[1] * self.options.groups;
        one(Meta::new([dy.shape[0], channels, self.size[0], self.size[1]], dy.dtype))
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0], &[0])
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&outputs[0].meta, &inputs[1].meta).map_err(|p| Error::op(self.name(), p))?;
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(reference::InputGradReference::<f64>::new(g)),
            _ => cpu::input_grad(g),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let g = self.options.check(&outputs[0].meta, &inputs[1].meta).map_err(|p| Error::op(self.name(), p))?;
        cuda::input_grad(&g, inputs, outputs, gpu)
    }
}

impl Operation for Conv2dWeightGrad {
    fn name(&self) -> &'static str {
        "conv2d_weight_grad"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (x, dy) = (inputs[0], inputs[1]);
        let k = dy.shape[1];
        let dtype = if self.wide { DType::F32 } else { x.dtype };
        let weight = Meta::new([k, x.shape[1] / self.options.groups, self.kernel[0], self.kernel[1]], dtype);
        let mut metas: Metas = smallvec![weight];
        if self.bias {
            metas.push(Meta::new([k], dtype));
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0, 1], &[])
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = self.options.check(&inputs[0].meta, &outputs[0].meta).map_err(|p| Error::op(self.name(), p))?;
        Ok(match inputs[0].meta.dtype {
            DType::F64 => Box::new(reference::WeightGradReference::<f64>::new(g, self.bias)),
            _ => cpu::weight_grad(g, self.bias),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let g = self.options.check(&inputs[0].meta, &outputs[0].meta).map_err(|p| Error::op(self.name(), p))?;
        cuda::weight_grad(&g, inputs, outputs, self.bias, gpu)
    }
}

impl Tensor {
    /// Convolution of images `[n, c, h, w]` with filters `[out, c / groups, h, w]`.
    ///
    /// ```
    /// use neurona::{Conv2dOptions, DType, Tensor};
    /// let x = Tensor::ones([1, 1, 3, 3], DType::F32)?;
    /// let w = Tensor::ones([1, 1, 2, 2], DType::F32)?;
    /// let y = x.conv2d(&w, None, Conv2dOptions::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [4.0; 4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Result<Tensor> {
        let mut operands: SmallVec<[&Tensor; 3]> = smallvec![self, weight];
        operands.extend(bias);
        Tensor::apply(Conv2d { options, activation: Activation::None, scaled: false, statistics: false }, &operands)
    }

    /// Convolution with zeros around the input such that the output has its size: PyTorch's `padding="same"`.
    /// Where they do not divide evenly, one more stands below and to the right. The stride must be 1.
    ///
    /// ```
    /// use neurona::{Conv2dOptions, DType, Tensor};
    /// let (x, w) = (Tensor::ones([1, 1, 2, 3], DType::F32)?, Tensor::ones([1, 1, 2, 2], DType::F32)?);
    /// let y = x.conv2d_same(&w, None, Conv2dOptions::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [4.0, 4.0, 2.0, 2.0, 2.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn conv2d_same(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Result<Tensor> {
        if options.stride != [1, 1] {
            return Err(self.error("conv2d", "padding to the same size needs a stride of 1"));
        }
        if self.rank() != 4 || weight.rank() != 4 {
            return self.conv2d(weight, bias, options);
        }
        let total =
            [0, 1].map(|axis| options.dilation[axis].saturating_mul(weight.shape()[2 + axis].saturating_sub(1)));
        if total.iter().any(|&size| size > LARGEST) {
            return Err(self.error("conv2d", format!("a filter must cover at most {LARGEST}")));
        }
        let x = self.pad(&[0, total[1] % 2, 0, total[0] % 2], PadMode::Constant(0.0))?;
        x.conv2d(weight, bias, Conv2dOptions { padding: total.map(|size| size / 2), ..options })
    }
}
