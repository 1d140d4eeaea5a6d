//! Average pooling on GPUs.

use crate::Result;
use crate::cuda::cut::vector;
use crate::cuda::kernel::Argument::{Input, Output};
use crate::cuda::kernel::{Grid, Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::ops::pool::{self, Pool};
use crate::tensor::DType;

static SOURCE: Source = Source::embedded("avg_pool2d.cu", include_str!("avg_pool2d.cu"));

/// The pooling itself, or its gradient by the input.
pub(super) fn kernel(g: &Pool, pads: bool, gradient: bool, dtype: DType, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let module = pool::module(g, dtype, gpu, &SOURCE).with("COUNT_PADDING", u8::from(pads));
    let (name, elements) =
        if gradient { ("avg_pool2d_gradient", g.input_len()) } else { ("avg_pool2d", g.output_len()) };
    let grid = Grid::over(elements / vector(dtype, g.c));
    let launches = vec![module.launch(name, grid, vec![Input(0), Output(0), pool::images(g)])?];
    let flops = (g.output_len() * g.kernel.iter().product::<usize>()) as u64;
    Ok(Box::new(Launches { launches, workspace: 0, flops }))
}
