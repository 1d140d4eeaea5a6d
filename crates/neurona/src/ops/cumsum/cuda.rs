//! Running sums on GPUs.

use super::CumSum;
use crate::Result;
use crate::cuda::cut::Module;
use crate::cuda::kernel::Argument::{I32, I64, Input, Output};
use crate::cuda::kernel::{Grid, Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::tensor::Meta;

static SOURCE: Source = Source::embedded("cumsum.cu", include_str!("cumsum.cu"));

pub(super) fn kernel(op: &CumSum, x: &Meta, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let outer: usize = x.shape[..op.dim].iter().product();
    let inner: usize = x.shape[op.dim + 1..].iter().product();
    let (lines, size) = (outer * inner, x.shape[op.dim]);
    let module = Module::new(gpu, &SOURCE).of("ELEMENT", x.dtype);
    let tail = [I64(size as i64), I64(inner as i64), I32(op.reverse.into())];
    let mut arguments = vec![Input(0), Output(0)];
    let launch = if alone(lines, size) {
        arguments.push(I64(outer as i64));
        arguments.extend(tail);
        module.launch("cumsum_lines", Grid::over(lines), arguments)?
    } else {
        arguments.extend(tail);
        module.launch("cumsum_line", Grid::line(lines, block(size)), arguments)?
    };
    Ok(Box::new(Launches { launches: vec![launch], workspace: 0, flops: x.shape.numel() as u64 }))
}

/// Whether a thread goes through a line alone: where there are many lines, or they are short.
pub(in crate::ops) fn alone(lines: usize, size: usize) -> bool {
    lines >= 1 << 14 || size <= 32
}

/// Threads of a block that goes through a line of this length.
pub(in crate::ops) fn block(size: usize) -> u32 {
    size.next_multiple_of(32).min(1024) as u32
}
