//! Convolution on GPUs.
//!
//! Images are NHWC, as on CPU cores; all three passes are products of matrices whose operands are gathered from the
//! images on the way to the arithmetic units. Filters are packed by a small kernel first.

mod depthwise;
mod direct;
mod direct_weights;
mod few;
mod gather;
mod hopper;
mod hopper_weights;
mod parts;
mod vendor;
mod weight_grad;
mod windows;
mod winograd;

use super::cpu::Geometry;
use crate::cuda::Gpu;
use crate::cuda::choice::{Candidate, choose};
use crate::cuda::kernel::{Argument, Kernel};
use crate::graph::ir::Operand;
use crate::tensor::DType;
use crate::{Error, Result};

/// What forward does beside the convolution: operands by position and type.
#[derive(Debug)]
pub(super) struct Epilogue {
    pub bias: Option<(usize, DType)>,
    pub scale: Option<(usize, DType)>,
    pub relu: bool,
}

/// Our own. Where Hopper's tensor cores can do it, nothing else of ours comes near but what is made for few channels; plain
/// sums are what runs when nothing is timed.
fn candidates(
    hopper: Vec<Candidate>,
    few: Option<Candidate>,
    winograd: Vec<Candidate>,
    own: impl FnOnce() -> Result<Vec<Candidate>>,
) -> Result<Vec<Candidate>> {
    let mut all = hopper;
    if winograd.is_empty() || !winograd::forced() {
        let rest = if all.is_empty() { own()? } else { Vec::new() };
        all.extend(few);
        all.extend(rest);
    }
    all.extend(winograd);
    Ok(all)
}

/// Operands: images, filters, and those of the epilogue.
pub(super) fn forward(
    g: &Geometry,
    inputs: &[Operand],
    outputs: &[Operand],
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let (image, weight) = (inputs[0].meta.dtype, inputs[1].meta.dtype);
    let vendor = |name: Option<&str>| vendor::forward(g, image, weight, epilogue, name, gpu);
    let problem = format!("conv2d forward {g:?} {image} {weight} {epilogue:?}");
    let hopper = hopper::forward(g, image, weight, epilogue, gpu)?;
    let winograd = winograd::forward(g, image, weight, epilogue, gpu)?;
    let few = few::forward(g, image, weight, epilogue, gpu)?;
    let all = candidates(hopper, few, winograd, || gather::forward(g, image, weight, epilogue, gpu))?;
    choose(&problem, inputs, outputs, all, vendor, gpu)
}

/// Operands: the gradient by the output, filters.
pub(super) fn input_grad(g: &Geometry, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (image, weight) = (inputs[0].meta.dtype, inputs[1].meta.dtype);
    let vendor = |name: Option<&str>| vendor::input_grad(g, image, weight, name, gpu);
    let problem = format!("conv2d input_grad {g:?} {image} {weight}");
    let hopper = hopper::input_grad(g, image, weight, gpu)?;
    let winograd = winograd::input_grad(g, image, weight, gpu)?;
    let few = few::input_grad(g, image, weight, gpu)?;
    let all = candidates(hopper, few, winograd, || gather::input_grad(g, image, weight, gpu))?;
    choose(&problem, inputs, outputs, all, vendor, gpu)
}

/// Operands: images, the gradient by the output. Results: gradients by the filters and, with `bias`, by the bias.
pub(super) fn weight_grad(
    g: &Geometry,
    inputs: &[Operand],
    outputs: &[Operand],
    bias: bool,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let (image, out) = (inputs[0].meta.dtype, outputs[0].meta.dtype);
    let vendor = |name: Option<&str>| vendor::weight_grad(g, image, out, bias, name, gpu);
    let problem = format!("conv2d weight_grad {g:?} {image} {out} {bias}");
    let hopper = hopper_weights::weight_grad(g, image, out, bias, gpu)?;
    let winograd = winograd::weight_grad(g, image, out, bias, gpu)?;
    let few = few::weight_grad(g, image, out, bias, gpu)?;
    let all = candidates(hopper, few, winograd, || weight_grad::weight_grad(g, image, out, bias, gpu))?;
    choose(&problem, inputs, outputs, all, vendor, gpu)
}

/// The sizes as kernels take them (`Geometry` in conv2d.cuh), or which of them are too large to count there.
fn sizes(g: &Geometry) -> Result<Argument> {
    let ([stride_h, stride_w], [padding_h, padding_w], [dilation_h, dilation_w]) = (g.stride, g.padding, g.dilation);
    let (p, q) = (g.oh(), g.ow());
    let fields = [
        [g.n, g.c, g.h, g.w],
        [g.k, g.r, g.s, p],
        [q, stride_h, stride_w, padding_h],
        [padding_w, dilation_h, dilation_w, g.groups],
    ];
    // Offsets within an image are 32-bit numbers, pixels are numbered with 32 bits, and nothing comes near the value
    // that stands for outside.
    let largest = (g.h + 2 * g.padding[0]).max(g.w + 2 * g.padding[1]);
    let image = ((g.h + g.padding[0] + g.r * dilation_h) as u128 * g.w as u128 * g.c as u128)
        .max((p + g.r) as u128 * q as u128 * g.k as u128);
    let pixels = (g.n * g.h * g.w).max(g.n * p * q);
    if largest >= 1 << 28 || image >= 1 << 31 || pixels >= 1 << 32 || g.groups >= 1 << 16 {
        return Err(Error::op("conv2d", "images this large are more than kernels for GPUs can count"));
    }
    numbers(fields.as_flattened().iter().map(|size| *size as i64))
}

/// A struct of 32-bit numbers.
fn numbers(fields: impl IntoIterator<Item = i64>) -> Result<Argument> {
    let mut bytes = Vec::new();
    for field in fields {
        let field =
            i32::try_from(field).map_err(|_| Error::op("conv2d", "a size is more than GPU kernels can count"))?;
        bytes.extend(field.to_ne_bytes());
    }
    Ok(Argument::Bytes(bytes))
}

/// Bytes of workspace, handed out in aligned pieces.
#[derive(Default)]
struct Workspace {
    bytes: usize,
}

impl Workspace {
    fn take(&mut self, bytes: usize) -> Argument {
        let offset = self.bytes;
        self.bytes = (offset + bytes).next_multiple_of(256);
        Argument::Workspace(offset)
    }
}

/// A macro that is 1 or 0.
fn flag(name: &'static str, set: bool) -> (&'static str, String) {
    (name, i32::from(set).to_string())
}
