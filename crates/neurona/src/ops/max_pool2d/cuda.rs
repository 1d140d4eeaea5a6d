//! Max pooling on GPUs.

use crate::Result;
use crate::cuda::cut::vector;
use crate::cuda::kernel::Argument::{Input, Null, Output};
use crate::cuda::kernel::{Grid, Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::ops::pool::{self, Pool};
use crate::tensor::DType;

static SOURCE: Source = Source::embedded("max_pool2d.cu", include_str!("max_pool2d.cu"));

pub(super) fn forward(g: &Pool, dtype: DType, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let module = pool::module(g, dtype, gpu, &SOURCE);
    let grid = Grid::over(g.output_len() / vector(dtype, g.c));
    let arguments = vec![Input(0), Output(0), Output(1), pool::images(g)];
    let flops = (g.output_len() * g.kernel.iter().product::<usize>()) as u64;
    Ok(Box::new(Launches { launches: vec![module.launch("max_pool2d", grid, arguments)?], workspace: 0, flops }))
}

pub(super) fn gradient(g: &Pool, relu: bool, dtype: DType, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let module = pool::module(g, dtype, gpu, &SOURCE);
    let grid = Grid::over(g.input_len() / vector(dtype, g.c));
    let result = if relu { Input(2) } else { Null };
    let arguments = vec![Input(0), Input(1), result, Output(0), pool::images(g)];
    let launches = vec![module.with("RELU", i32::from(relu)).launch("max_pool2d_gradient", grid, arguments)?];
    Ok(Box::new(Launches { launches, workspace: 0, flops: g.output_len() as u64 }))
}
