//! Margins around a tensor, and their gradient, on GPUs.

use super::Fill;
use crate::Result;
use crate::cuda::index::Numbers;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::movement::{Strided, strides};
use crate::tensor::{DType, Shape};

const SOURCE: Source = Source::embedded("pad.cu", include_str!("pad.cu"));

/// The dimensions of a tensor and its margins, neighbours without margins joined.
struct Frame {
    /// (size inside, before, after)
    dims: Vec<(usize, usize, usize)>,
}

impl Frame {
    fn new(inside: &[usize], margins: &[(usize, usize)]) -> Frame {
        let mut dims: Vec<(usize, usize, usize)> = Vec::new();
        for (&size, &margin) in inside.iter().zip(margins) {
            match (dims.last_mut(), margin) {
                (Some((last, 0, 0)), (0, 0)) => *last *= size,
                (_, (before, after)) => dims.push((size, before, after)),
            }
        }
        if dims.is_empty() {
            dims.push((1, 0, 0));
        }
        Frame { dims }
    }

    fn padded(&self) -> impl Iterator<Item = usize> {
        self.dims.iter().map(|(inside, before, after)| inside + before + after)
    }

    /// Elements of the last dimension that can move together: all sizes in memory must be multiples.
    fn together(&mut self, bytes: usize) -> usize {
        let mut wide = 1;
        if let Some((last, 0, 0)) = self.dims.last_mut() {
            while bytes * wide < 16 && last.is_multiple_of(2) {
                *last /= 2;
                wide *= 2;
            }
        }
        wide
    }

    fn numbers(&self, total: usize, sizes: impl Iterator<Item = usize>) -> Numbers {
        let mut numbers = Numbers::up_to(self.padded().product());
        numbers.number(total as isize);
        sizes.for_each(|size| numbers.divisor(size.max(1)));
        self.dims.iter().for_each(|d| numbers.number(d.0 as isize));
        self.dims.iter().for_each(|d| numbers.number(d.1 as isize));
        self.dims.iter().for_each(|d| numbers.number(d.2 as isize));
        numbers
    }
}

fn fill_name(fill: Fill) -> String {
    match fill {
        Fill::Constant => "CONSTANT",
        Fill::Reflect => "REFLECT",
        Fill::Replicate => "REPLICATE",
    }
    .to_string()
}

/// Inputs: x, and the number that a constant margin has. Output: x within its margins.
pub(super) fn pad(
    dtype: DType,
    x: &Shape,
    margins: &[(usize, usize)],
    fill: Fill,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let mut frame = Frame::new(x, margins);
    let wide = frame.together(dtype.size());
    let total = frame.padded().product();
    if total == 0 {
        return Ok(Box::new(Launches::default()));
    }
    let numbers = frame.numbers(total, frame.padded());
    let macros = [
        ("FILL", fill_name(fill)),
        ("ELEMENT_BYTES", dtype.size().to_string()),
        ("BYTES", (dtype.size() * wide).to_string()),
        ("RANK", frame.dims.len().to_string()),
        ("INDEX", numbers.cuda_type().into()),
    ];
    let value = if fill == Fill::Constant { Argument::Input(1) } else { Argument::Null };
    let launch = Launch {
        function: gpu.function(&SOURCE, "pad", &macros)?,
        grid: Grid::over(total),
        arguments: vec![Argument::Input(0), value, Argument::Output(0), Argument::Bytes(numbers.bytes())],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}

/// Input: dy. Output: the sum of dy over all copies of each element.
pub(super) fn pad_grad(
    dtype: DType,
    (dy, x): (&Shape, &Shape),
    margins: &[(usize, usize)],
    fill: Fill,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let total = x.numel();
    if total == 0 {
        return Ok(Box::new(Launches::default()));
    }
    if fill == Fill::Constant {
        let from = strides(dy);
        let offset = margins.iter().zip(&from).map(|((before, _), stride)| before * *stride as usize).sum();
        return Strided::view(dtype.size(), x, &from, offset).kernel(gpu);
    }
    let frame = Frame::new(x, margins);
    let numbers = frame.numbers(total, frame.dims.iter().map(|d| d.0));
    let macros = [
        ("FILL", fill_name(fill)),
        ("ELEMENT", cuda_type(dtype).into()),
        ("RANK", frame.dims.len().to_string()),
        ("INDEX", numbers.cuda_type().into()),
    ];
    let launch = Launch {
        function: gpu.function(&SOURCE, "pad_grad", &macros)?,
        grid: Grid::over(total),
        arguments: vec![Argument::Input(0), Argument::Output(0), Argument::Bytes(numbers.bytes())],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}
