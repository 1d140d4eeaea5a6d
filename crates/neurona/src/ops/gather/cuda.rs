//! Sums by places, on GPUs. Elements by their places only move: see [`crate::ops::movement`].

use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::tensor::{DType, Shape};

const SOURCE: Source = Source::embedded("scatter_add.cu", include_str!("scatter_add.cu"));

/// Warps of a block, and elements of a line that a warp sums: those of `scatter_add.cu`.
const WARPS: usize = 8;
const CHUNK: usize = 32 * 4;
/// Shorter lines leave most lanes of a warp without work.
const LONG: usize = 16;

/// Inputs: dy and the places along dimension `dim`. Output: dx.
pub(super) fn scatter_add(
    dtype: DType,
    (dy, dx): (&Shape, &Shape),
    dim: usize,
    lines: bool,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    if dx.numel() == 0 {
        return Ok(Box::new(Launches::default()));
    }
    let (outer, inner): (usize, usize) = (dx[..dim].iter().product(), dx[dim + 1..].iter().product());
    let (size, count) = (dx[dim], dy[dim]);
    let steps = if lines { [0, 1, 0] } else { [count * inner, inner, 1] };
    let sizes = [outer, size, inner, count].into_iter().chain(steps).flat_map(|n| (n as i64).to_ne_bytes()).collect();
    let (name, grid) = if lines && inner >= LONG {
        let warps = outer * size * inner.div_ceil(CHUNK);
        ("scatter_add_lines", Grid::line(warps.div_ceil(WARPS), WARPS as u32 * 32))
    } else {
        ("scatter_add", Grid::over(dx.numel()))
    };
    let launch = Launch {
        function: gpu.function(&SOURCE, name, &[("ELEMENT", cuda_type(dtype).into())])?,
        grid,
        arguments: vec![Argument::Input(0), Argument::Input(1), Argument::Output(0), Argument::Bytes(sizes)],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}
