//! Weight gradients on Hopper's tensor cores, f16 and bf16: launches of `conv2d_hopper_weights.cu`.

use super::Workspace;
use super::hopper::{applies, chunk};
use super::parts::{self, Part};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::hopper::{Tile, integers, slices};
use crate::cuda::kernel::{Argument, Grid, Launches, Slot};
use crate::cuda::tensor_map::{Piece, TensorMap};
use crate::cuda::vendor::pack as sums;
use crate::cuda::{Gpu, Source};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

static WEIGHTS: Source = Source::embedded("conv2d_hopper_weights.cu", include_str!("../conv2d_hopper_weights.cu"));

/// Output channels that a block of `conv2d_hopper_weights_sum` adds.
const SUM_ROWS: usize = 8;

/// Candidates for the weight gradient as `out` and, with `bias`, that of the bias; inputs: images, gradient.
pub(super) fn weight_grad(g: &Geometry, image: DType, out: DType, bias: bool, gpu: &Gpu) -> Result<Vec<Candidate>> {
    if !applies(g, image, gpu) {
        return Ok(Vec::new());
    }
    let chunk = chunk(g.c).max(32);
    let taps = g.r * g.s;
    let group_taps = taps.div_ceil(3);
    let base = Tile { chunk: [64, chunk], buffers: 0, ..Tile::new(64, 0, 0, 1) };
    let mut candidates = Vec::new();
    // Many channels use what comes tap by tap; few want it once.
    if (2..=9).contains(&taps) && g.k * g.c <= 1 << 14 {
        let tile = Tile { n: 3 * group_taps * chunk, groups: [1, 3], stages: 6, ..base };
        candidates.extend(weights(g, [image, out], bias, tile, true, gpu)?);
    }
    let tiles = match (g.k, chunk) {
        (_, 32) => {
            vec![Tile { n: 288, groups: [1, 3], stages: 5, ..base }, Tile { n: 256, groups: [1, 2], stages: 5, ..base }]
        }
        (..=64, _) => {
            vec![
                Tile { n: 576, groups: [1, 3], stages: 5, depth: 32, ..base },
                Tile { n: 256, groups: [1, 2], stages: 5, ..base },
            ]
        }
        _ => vec![
            Tile { m: 128, n: 192, groups: [2, 1], stages: 5, ..base },
            Tile { m: 256, n: 128, groups: [2, 1], stages: 4, ..base },
        ],
    };
    for tile in tiles {
        candidates.extend(weights(g, [image, out], bias, tile, false, gpu)?);
    }
    Ok(candidates)
}

fn weights(
    g: &Geometry,
    [dtype, out]: [DType; 2],
    bias: bool,
    tile: Tile,
    slab: bool,
    gpu: &Gpu,
) -> Result<Option<Candidate>> {
    let taps = g.r * g.s;
    let part = parts::forward(g);
    let images = [[g.n, g.h, g.w, g.c], [g.n, g.oh(), g.ow(), g.k]];
    let map = |input, piece| Argument::Map(Slot::Input(input), TensorMap { dtype, piece });
    let run = |part: &Part, pixels| {
        let Part { low, count, step, .. } = *part;
        map(0, Piece::Pixels { sizes: images[0], low, count, step, channels: tile.chunk[1], pixels })
    };
    let blocks = g.c.div_ceil(tile.chunk[1]);
    let (part, chunks, tiles_n, slab_bytes, shared, maps) = if slab {
        let Some(part) = parts::padded(&part, [g.h, g.w]) else { return Ok(None) };
        let rows = parts::slab(tile.depth, &part, tile.chunk[1]);
        let bytes = rows * 2 * tile.chunk[1];
        let shared = tile.stages * (2 * tile.m * tile.depth + bytes + 16);
        if !tile.has_room(shared) || !Piece::pixels_fit(images[0], part.low, part.count, [1, 1], rows) {
            return Ok(None);
        }
        let (sizes, count, channels, pixels) = (images[1], part.count, tile.chunk[0], tile.depth);
        let gradient = map(1, Piece::Pixels { sizes, low: [0, 0], count, step: [1, 1], channels, pixels });
        (part, taps, blocks, bytes, shared, [gradient, run(&part, rows)])
    } else {
        let chunks = taps * blocks;
        let sizes = vec![g.k, g.n * g.oh() * g.ow()];
        let gradient = map(1, Piece::Box { sizes, piece: vec![tile.chunk[0], tile.depth] });
        let across = (chunks * tile.chunk[1]).div_ceil(tile.n);
        (part, chunks, across, 0, tile.shared(), [gradient, run(&part, tile.depth)])
    };
    let [height, width] = part.count;
    let tiles_m = g.k.div_ceil(tile.m);
    let tiles = tiles_m * tiles_n;
    let steps = (g.n * height * width).div_ceil(tile.depth);
    let shares = (gpu.multiprocessors * tile.blocks).min(tiles * steps);
    let skip = [tile.depth / (height * width), tile.depth / width % height, tile.depth % width];
    let mut plan: Vec<i64> = [height, width].iter().chain(&skip).map(|x| *x as i64).collect();
    plan.extend(part.low.map(i64::from));
    let rest = [g.stride[0], g.stride[1], g.s, g.dilation[0], g.dilation[1], blocks, chunks, g.c];
    plan.extend(rest.iter().chain(&[tiles_m, tiles_n, steps, shares, slab_bytes]).map(|x| *x as i64));
    let plan = Argument::Bytes(integers(&plan));
    let module = tile.module(gpu, &WEIGHTS, dtype).with("A_ROWS", 1).with("B_ROWS", 1).with("SLAB", u8::from(slab));
    let module = module.of("OUT_ELEMENT", out);

    let [gradient, input] = maps;
    let grid = Grid { shared: shared as u32, ..Grid::line(shares, tile.threads()) };
    let multiply =
        module.launch("conv2d_hopper_weights", grid, vec![gradient, input, Argument::Workspace(0), plan.clone()])?;
    let runs = g.k / SUM_ROWS * g.c.div_ceil(32);
    // Few weights of many slots: a block for every tap; else taps together, which lie next to each other in memory.
    let some = if runs >= gpu.multiprocessors { taps.min(16) } else { 1 };
    let slices = slices(shares, tiles).min(16);
    let warps = slices * some.min(16 / slices);
    let grid = Grid {
        blocks: [runs as u32, taps.div_ceil(some) as u32, 1],
        threads: [32, warps as u32, 1],
        shared: (4 * 32 * SUM_ROWS * (some + warps)) as u32,
    };
    let sizes = [taps, some, slices].map(|x| Argument::I32(x as i32));
    let arguments = [vec![Argument::Workspace(0), Argument::Output(0)], sizes.to_vec(), vec![plan]].concat();
    let mut launches = vec![multiply, module.launch("conv2d_hopper_weights_sum", grid, arguments)?];
    let mut workspace = Workspace::default();
    workspace.take((shares + tiles) * tile.m * tile.n * 4);
    if bias {
        let rows = g.n * g.oh() * g.ow();
        let parts = workspace.take(sums::sum_parts(rows) * g.k * 4);
        launches.extend(sums::sums([rows, g.k], (Argument::Input(1), dtype), parts, (Argument::Output(1), out), gpu)?);
    }
    let name = format!("own hopper {}{}", if slab { "slab " } else { "" }, tile.name());
    let kernel = Box::new(Launches { launches, workspace: workspace.bytes, flops: g.flops() });
    Ok(Some(Candidate { name, kernel }))
}
