//! Softmax and its logarithm on GPUs.

use super::Kind;
use crate::Result;
use crate::cuda::cut::{Module, Rows};
use crate::cuda::kernel::Argument::{I64, Input, Output};
use crate::cuda::kernel::{Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::tensor::Meta;

static SOURCE: Source = Source::embedded("softmax.cu", include_str!("softmax.cu"));

/// The function of x, or its gradient from dy and y.
pub(super) fn kernel(kind: Kind, gradient: bool, x: &Meta, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (rows, n) = super::rows(x);
    let cut = Rows::new(x.dtype, rows, n);
    let module = Module::new(gpu, &SOURCE).of("ELEMENT", x.dtype).with("VECTOR", cut.vector).with("LANES", cut.lanes);
    let module = module.with("LOGARITHM", u8::from(kind == Kind::LogSoftmax));
    let (name, mut arguments) = match gradient {
        true => ("softmax_gradient", vec![Input(0), Input(1), Output(0)]),
        false => ("softmax", vec![Input(0), Output(0)]),
    };
    arguments.extend([I64(rows as i64), I64(n as i64)]);
    let launches = vec![module.launch(name, cut.grid(), arguments)?];
    Ok(Box::new(Launches { launches, workspace: 0, flops: (20 * rows * n) as u64 }))
}
