//! Sorting on GPUs.

use super::ArgSort;
use crate::Result;
use crate::cuda::cut::Module;
use crate::cuda::kernel::Argument::{I64, Input, Null, Output, Workspace};
use crate::cuda::kernel::{Grid, Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::tensor::Meta;

static SOURCE: Source = Source::embedded("arg_sort.cu", include_str!("arg_sort.cu"));

/// Elements of the largest tile: as many as fit the shared memory that every block can have.
const TILE: usize = 2048;

/// Bytes of an element with its place.
const ITEM: usize = 16;

pub(super) fn kernel(op: &ArgSort, x: &Meta, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let outer: usize = x.shape[..op.dim].iter().product();
    let inner: usize = x.shape[op.dim + 1..].iter().product();
    let (lines, size) = (outer * inner, x.shape[op.dim]);
    let tile = size.next_power_of_two().clamp(2, TILE);
    let tiles = size.div_ceil(tile);
    let together = if tiles == 1 { (512 / tile).max(1) } else { 1 };
    let module = Module::new(gpu, &SOURCE).of("ELEMENT", x.dtype).with("DESCENDING", u8::from(op.descending));
    let module = module.with("TILE", tile).with("TILES", together);
    let blocks = [(lines * tiles).div_ceil(together) as u32, 1, 1];
    let grid = Grid { blocks, threads: [tile as u32 / 2, together as u32, 1], shared: 0 };
    let numbers = |numbers: &[usize]| numbers.iter().map(|n| I64(*n as i64)).collect::<Vec<_>>();
    let mut arguments = vec![Input(0), Output(0), if tiles > 1 { Workspace(0) } else { Null }];
    arguments.extend(numbers(&[lines, tiles, size, inner, op.keep]));
    let mut launches = vec![module.launch("arg_sort", grid, arguments)?];
    let mut workspace = 0;
    if tiles > 1 {
        let length = tiles * tile;
        let (mut from, mut to) = (0, lines * length * ITEM);
        workspace = 2 * to;
        let mut run = tile;
        while run < length {
            let mut arguments = vec![Workspace(from), Workspace(to)];
            arguments.extend(numbers(&[lines * length, length, run]));
            launches.push(module.launch("arg_sort_merge", Grid::over(lines * length), arguments)?);
            (from, to, run) = (to, from, 2 * run);
        }
        let mut arguments = vec![Workspace(from), Output(0)];
        arguments.extend(numbers(&[lines, length, inner, op.keep]));
        launches.push(module.launch("arg_sort_places", Grid::over(lines * op.keep), arguments)?);
    }
    Ok(Box::new(Launches { launches, workspace, flops: 0 }))
}
