//! The gradients by filters and bias where the input has few channels, computed directly.

use super::direct::{NARROW, THREADS};
use super::weight_grad::finish;
use super::windows::{balanced, unit};
use super::{Workspace, numbers};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

const SOURCE: Source =
    Source::embedded("conv2d_direct_weight_grad.cu", include_str!("../conv2d_direct_weight_grad.cu"));

/// The gradients by filters and bias, where that suits.
pub(super) fn weight_grad(g: &Geometry, image: DType, out: DType, bias: bool, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let ([_, right], (p, q)) = (g.stride, (g.oh(), g.ow()));
    let few = g.c * g.r <= 32 && g.s <= 11 && g.c <= 8;
    if !few || image == DType::F64 || g.groups != 1 || g.dilation != [1, 1] || right > 4 || g.n * p * q == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (name, taken) in [("own direct", 1), ("own direct, many sums", 2)] {
        // Few pixels are not worth the choice, and for many of 16 bits tensor cores are faster.
        let many = g.n * p * q >= 256 * gpu.multiprocessors() && image == DType::F32;
        let pays = taken == 1 || many && g.c * g.r > 1;
        let launches = if pays { launches(g, taken, image, out, bias, gpu)? } else { None };
        found.extend(launches.map(|launches| Candidate { name: name.into(), kernel: Box::new(launches) }));
    }
    Ok(found)
}

/// With `taken` lines of filters a thread.
fn launches(g: &Geometry, taken: usize, image: DType, out: DType, bias: bool, gpu: &Gpu) -> Result<Option<Launches>> {
    let ([down, right], (p, q)) = (g.stride, (g.oh(), g.ow()));
    // S × THREAD_K sums are in registers.
    let thread_k = balanced(g.k, NARROW / g.s);
    let thread_k = if thread_k < 4 { thread_k } else { thread_k.next_multiple_of(2) };
    let units = (g.c * g.r + 1).div_ceil(taken) * g.k.div_ceil(thread_k);
    if units > 512 {
        return Ok(None);
    }
    let tile_w = balanced(q, 128);
    // `Shared` in conv2d_direct_weight_grad.cu.
    let align = 16 / image.size();
    let pieces = |w: usize| {
        let step = if w < q { w * right * g.c } else { 0 };
        let unit = unit(image, &[(g.w * g.c) as i64, step as i64]);
        (unit, (unit - g.padding[1] * g.c % unit) % unit)
    };
    let bytes = |h: usize| {
        let line = pieces(tile_w).1 + ((tile_w - 1) * right + g.s) * g.c;
        let pitch = (line + align - 1) / (2 * align) * (2 * align) + align;
        let gradient = (h * tile_w * g.k.next_multiple_of(thread_k)).next_multiple_of(align);
        image.size() * (gradient + ((h - 1) * down + g.r + 1) * pitch)
    };
    let tiles = |h: usize| g.n * p.div_ceil(h) * q.div_ceil(tile_w);
    let mut tile_h = p;
    while tile_h > 1 && (bytes(tile_h) > 48 << 10 || tiles(tile_h) < gpu.multiprocessors()) {
        tile_h = tile_h.div_ceil(2);
    }
    let slices = slices(tile_h, units);
    let shared = bytes(tile_h).max(4 * (slices - 1) * taken * g.s * thread_k * units);
    if shared > 96 << 10 || g.w * g.c >= 1 << 28 || tiles(tile_h) >= 1 << 31 {
        return Ok(None);
    }
    let threads = (units * slices).next_multiple_of(32);
    let k = g.k as i64;
    let (of_input, lead) = pieces(tile_w);
    // Rows as they lie in memory, or pixels with room for the threads' channels beyond the last.
    let width = g.k.next_multiple_of(thread_k) as i64;
    let of_gradient = unit(image, &if width == k { [q as i64 * k, tile_w as i64 * k] } else { [k, width] });
    let macros = [
        ("ELEMENT", cuda_type(image).to_string()),
        ("CHANNELS", g.c.to_string()),
        ("WANTED", g.k.to_string()),
        ("THREAD_K", thread_k.to_string()),
        ("TAKEN", taken.to_string()),
        ("R", g.r.to_string()),
        ("S", g.s.to_string()),
        ("STRIDE_H", down.to_string()),
        ("STRIDE_W", right.to_string()),
        ("TILE_H", tile_h.to_string()),
        ("TILE_W", tile_w.to_string()),
        ("SLICES", slices.to_string()),
        ("UNIT", of_input.to_string()),
        ("LEAD", lead.to_string()),
        ("GRADIENT_UNIT", of_gradient.to_string()),
    ];
    let function = gpu.function(&SOURCE, "conv2d_direct_weight_grad", &macros)?;
    let resident = function.occupancy(threads as u32, shared as u32)?.max(1) * gpu.multiprocessors();
    let parts = tiles(tile_h).div_ceil(tiles(tile_h).div_ceil(resident));
    let mut workspace = Workspace::default();
    let sums = workspace.take(4 * parts * g.k * g.c * g.r * g.s);
    let bias_sums = if bias { workspace.take(4 * parts * g.k) } else { Argument::Null };
    let frame = [g.h, g.w, p, q, g.padding[0], g.padding[1], p.div_ceil(tile_h), q.div_ceil(tile_w), tiles(tile_h)];
    let launches = vec![
        Launch {
            function,
            grid: Grid { blocks: [parts as u32, 1, 1], threads: [threads as u32, 1, 1], shared: shared as u32 },
            arguments: vec![
                Argument::Input(0),
                Argument::Input(1),
                sums.clone(),
                bias_sums.clone(),
                numbers(frame.map(|size| size as i64))?,
            ],
        },
        finish(g, image, out, bias, parts, sums, bias_sums, gpu)?,
    ];
    Ok(Some(Launches { launches, workspace: workspace.bytes, flops: g.flops() }))
}

/// As many slices of a tile's rows as leave the fewest lanes without work.
fn slices(rows: usize, units: usize) -> usize {
    let wasted = |slices: usize| {
        let lanes = (slices * units).next_multiple_of(32) * rows.div_ceil(slices);
        lanes * 64 / (rows * units)
    };
    (1..=(THREADS / units).clamp(1, rows)).rev().min_by_key(|slices| wasted(*slices)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_leave_few_lanes_idle() {
        for (rows, units, expected) in [(28, 16, 14), (10, 62, 2), (28, 8, 28), (1, 16, 1), (10, 32, 5)] {
            assert_eq!(slices(rows, units), expected, "{rows} {units}");
        }
    }
}
