//! Convolutions where one side has few channels, computed directly: a product's tile would be mostly empty.

use super::weight_grad::finish;
use super::{Epilogue, Workspace, numbers};
use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

const DIRECT: Source = Source::embedded("conv2d_direct.cu", include_str!("../conv2d_direct.cu"));
const WEIGHT_GRAD: Source =
    Source::embedded("conv2d_direct_weight_grad.cu", include_str!("../conv2d_direct_weight_grad.cu"));

/// Outputs that a thread computes side by side.
const PIXELS: usize = 4;
/// Threads of a block, about.
const THREADS: usize = 256;
/// Shared memory of a block, so that a multiprocessor has room for several.
const SHARED: usize = 56 << 10;

/// The size of equal parts of at most `most`.
fn balanced(size: usize, most: usize) -> usize {
    size.div_ceil(size.div_ceil(most).max(1))
}

/// One pass as a convolution of windows: the gradient by the input has a window for each group of pixels that the
/// stride puts on the same outputs, with all their channels.
struct Windows {
    n: usize,
    channels: usize,
    wanted: usize,
    taps: [usize; 2],
    stride: [usize; 2],
    /// Pixels of a window's result, down and right.
    shuffle: [usize; 2],
    /// The input, the windows, the result.
    input: [usize; 2],
    count: [usize; 2],
    result: [usize; 2],
    /// Where the first window begins.
    before: [i64; 2],
}

impl Windows {
    fn forward(g: &Geometry) -> Windows {
        Windows {
            n: g.n,
            channels: g.c,
            wanted: g.k,
            taps: [g.r, g.s],
            stride: g.stride,
            shuffle: [1, 1],
            input: [g.h, g.w],
            count: [g.oh(), g.ow()],
            result: [g.oh(), g.ow()],
            before: g.padding.map(|p| p as i64),
        }
    }

    fn input_grad(g: &Geometry) -> Windows {
        // A pixel of remainder `a` meets tap `r` at the output `(a + padding - r) / stride` from its window.
        let span = |size: usize, axis: usize| {
            let (padding, stride) = (g.padding[axis] as i64, g.stride[axis] as i64);
            let first = (padding - size as i64 + 1).div_euclid(stride)
                + i64::from((padding - size as i64 + 1).rem_euclid(stride) != 0);
            let last = (stride - 1 + padding).div_euclid(stride);
            (first, (last - first + 1).max(1) as usize)
        };
        let ((top, rows), (left, columns)) = (span(g.r, 0), span(g.s, 1));
        Windows {
            n: g.n,
            channels: g.k,
            wanted: g.c * g.stride[0] * g.stride[1],
            taps: [rows, columns],
            stride: [1, 1],
            shuffle: g.stride,
            input: [g.oh(), g.ow()],
            count: [g.h.div_ceil(g.stride[0]), g.w.div_ceil(g.stride[1])],
            result: [g.h, g.w],
            before: [-top, -left],
        }
    }

    fn tile(&self, multiprocessors: usize) -> Tile {
        let [p, q] = self.count;
        // As many channels a thread as registers allow, fewer when there are too few pixels for all threads of the GPU.
        let mut thread_k = balanced(self.wanted, 16);
        while thread_k > 4 && self.n * p * q.div_ceil(PIXELS) * self.wanted.div_ceil(thread_k) < multiprocessors * 256 {
            thread_k = thread_k.div_ceil(2);
        }
        let block_k = self.wanted.next_multiple_of(thread_k).min(4 * thread_k);
        let w = (1..=8).rev().map(|i| i * PIXELS).min_by_key(|w| q.next_multiple_of(*w)).unwrap_or(PIXELS);
        let row = w / PIXELS * (block_k / thread_k);
        let blocks = |h: usize| self.n * p.div_ceil(h) * q.div_ceil(w) * self.wanted.div_ceil(block_k);
        let mut h = (THREADS / row).max(1);
        while h > 1 && blocks(h) < 2 * multiprocessors && row * h > 96 {
            h -= 1;
        }
        let mut tile = Tile { thread_k, block_k, h: balanced(p, h), w, chunk: self.channels };
        while tile.chunk > 1 && tile.shared(self) > SHARED {
            tile.chunk = tile.chunk.div_ceil(2);
        }
        while tile.h > 1 && tile.shared(self) > SHARED {
            tile.h = tile.h.div_ceil(2);
        }
        tile
    }
}

/// What a block computes.
struct Tile {
    thread_k: usize,
    block_k: usize,
    h: usize,
    w: usize,
    chunk: usize,
}

impl Tile {
    fn threads(&self) -> u32 {
        (self.w / PIXELS * self.h * (self.block_k / self.thread_k)) as u32
    }

    /// Bytes of shared memory: `Shared` in conv2d_direct.cu.
    fn shared(&self, windows: &Windows) -> usize {
        let ([r, s], [down, right]) = (windows.taps, windows.stride);
        let under = ((PIXELS - 1) * right + s).next_multiple_of(4);
        let pitch = ((self.w - PIXELS) * right + under).next_multiple_of(4);
        let vector = [4, 2, 1].into_iter().find(|v| self.thread_k.is_multiple_of(*v)).unwrap_or(1);
        4 * self.chunk * (((self.h - 1) * down + r) * pitch + r * s * (self.block_k + vector))
    }
}

/// Whether the direct kernels are the better ones.
fn suits(g: &Geometry, image: DType, channels: usize, wanted: usize) -> bool {
    let few = channels <= 4 && wanted <= 128 || wanted <= 16 && channels <= 128;
    image != DType::F64 && g.groups == 1 && g.dilation == [1, 1] && few && g.r <= 16 && g.s <= 16
}

/// Forward, where it suits.
pub(super) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Box<dyn Kernel>>> {
    // A long way from window to window leaves little to share.
    if !suits(g, image, g.c, g.k) || g.stride.iter().any(|s| *s > 4) {
        return Ok(None);
    }
    launches(g, &Windows::forward(g), false, image, weight, epilogue, gpu)
}

/// The gradient by the input, where it suits.
pub(super) fn input_grad(g: &Geometry, image: DType, weight: DType, gpu: &Gpu) -> Result<Option<Box<dyn Kernel>>> {
    let windows = Windows::input_grad(g);
    if !suits(g, image, g.k, windows.wanted) {
        return Ok(None);
    }
    launches(g, &windows, true, image, weight, &Epilogue { bias: None, scale: None, relu: false }, gpu)
}

fn launches(
    g: &Geometry,
    windows: &Windows,
    input_grad: bool,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Box<dyn Kernel>>> {
    let tile = windows.tile(gpu.multiprocessors());
    let ([r, s], [p, q]) = (windows.taps, windows.count);
    let width = windows.wanted.next_multiple_of(tile.thread_k);
    let shared = tile.shared(windows);
    let tiles = [p.div_ceil(tile.h), q.div_ceil(tile.w)];
    let blocks = windows.n * tiles[0] * tiles[1];
    if shared > SHARED || blocks >= 1 << 31 {
        return Ok(None);
    }
    let operand = |position: Option<usize>| position.map_or(Argument::Null, Argument::Input);
    let name = |dtype: DType| cuda_type(dtype).to_string();
    let sizes = [
        ("CHANNELS", windows.channels),
        ("CHUNK", tile.chunk),
        ("WANTED", windows.wanted),
        ("BLOCK_K", tile.block_k),
        ("THREAD_K", tile.thread_k),
        ("R", r),
        ("S", s),
        ("STRIDE_H", windows.stride[0]),
        ("STRIDE_W", windows.stride[1]),
        ("TILE_H", tile.h),
        ("TILE_W", tile.w),
        ("SHUFFLE_H", windows.shuffle[0]),
        ("SHUFFLE_W", windows.shuffle[1]),
        ("FILTER_R", g.r),
        ("FILTER_S", g.s),
        ("PADDING_H", g.padding[0]),
        ("PADDING_W", g.padding[1]),
        ("INPUT_GRAD", usize::from(input_grad)),
    ];
    let mut macros = vec![
        ("ELEMENT", name(image)),
        ("WEIGHT_ELEMENT", name(weight)),
        ("SCALE_ELEMENT", name(epilogue.scale.map_or(weight, |(_, dtype)| dtype))),
        ("BIAS_ELEMENT", name(epilogue.bias.map_or(image, |(_, dtype)| dtype))),
    ];
    macros.extend(sizes.map(|(macro_name, value)| (macro_name, value.to_string())));
    let [before_h, before_w] = windows.before;
    macros.extend([("FIRST_H", format!("({})", -before_h)), ("FIRST_W", format!("({})", -before_w))]);
    let sizes = |list: &[usize]| list.iter().map(|size| *size as i64).collect::<Vec<_>>();
    let frame = [
        sizes(&[windows.input[0], windows.input[1], p, q]),
        vec![before_h, before_w],
        sizes(&[windows.result[0], windows.result[1], tiles[0], tiles[1]]),
        vec![i64::from(epilogue.relu)],
    ];
    let launches = vec![Launch {
        function: gpu.function(&DIRECT, "conv2d_direct", &macros)?,
        grid: Grid {
            blocks: [blocks as u32, width.div_ceil(tile.block_k) as u32, 1],
            threads: [tile.threads(), 1, 1],
            shared: shared as u32,
        },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            operand(epilogue.scale.map(|(position, _)| position)),
            operand(epilogue.bias.map(|(position, _)| position)),
            Argument::Output(0),
            numbers(frame.concat())?,
        ],
    }];
    Ok(Some(Box::new(Launches { launches, workspace: 0, flops: g.flops() })))
}

/// The gradients by filters and bias, where that suits.
pub(super) fn weight_grad(
    g: &Geometry,
    image: DType,
    out: DType,
    bias: bool,
    gpu: &Gpu,
) -> Result<Option<Box<dyn Kernel>>> {
    let ([down, right], (p, q)) = (g.stride, (g.oh(), g.ow()));
    let few = g.c * g.r <= 32 && g.s <= 11 && g.c <= 8;
    if !few || image == DType::F64 || g.groups != 1 || g.dilation != [1, 1] || right > 4 || g.n * p * q == 0 {
        return Ok(None);
    }
    // S × THREAD_K sums are in registers.
    let thread_k = balanced(g.k, 64 / g.s);
    let thread_k = if thread_k < 4 { thread_k } else { thread_k.next_multiple_of(2) };
    let units = (g.c * g.r + 1) * g.k.div_ceil(thread_k);
    if units > 512 {
        return Ok(None);
    }
    let tile_w = balanced(q, 128);
    // `Shared` in conv2d_direct_weight_grad.cu.
    let bytes = |h: usize| {
        let pitch = ((tile_w - 1) * right + g.s) | 1;
        4 * (h * tile_w * g.k.next_multiple_of(thread_k) + (g.c * ((h - 1) * down + g.r) + 1) * pitch)
    };
    let tiles = |h: usize| g.n * p.div_ceil(h) * q.div_ceil(tile_w);
    let mut tile_h = p;
    while tile_h > 1 && (bytes(tile_h) > 48 << 10 || tiles(tile_h) < gpu.multiprocessors()) {
        tile_h = tile_h.div_ceil(2);
    }
    let slices = balanced_slices(tile_h, THREADS / units);
    let shared = bytes(tile_h).max(4 * (slices - 1) * g.s * thread_k * units);
    if shared > 96 << 10 {
        return Ok(None);
    }
    let threads = (units * slices).next_multiple_of(32);
    let parts = tiles(tile_h).min(gpu.multiprocessors() * (512 / threads).max(2));
    let macros = [
        ("ELEMENT", cuda_type(image).to_string()),
        ("CHANNELS", g.c.to_string()),
        ("WANTED", g.k.to_string()),
        ("THREAD_K", thread_k.to_string()),
        ("R", g.r.to_string()),
        ("S", g.s.to_string()),
        ("STRIDE_H", down.to_string()),
        ("STRIDE_W", right.to_string()),
        ("TILE_H", tile_h.to_string()),
        ("TILE_W", tile_w.to_string()),
        ("SLICES", slices.to_string()),
    ];
    let mut workspace = Workspace::default();
    let sums = workspace.take(4 * parts * g.k * g.c * g.r * g.s);
    let bias_sums = if bias { workspace.take(4 * parts * g.k) } else { Argument::Null };
    let frame = [g.h, g.w, p, q, g.padding[0], g.padding[1], p.div_ceil(tile_h), q.div_ceil(tile_w), tiles(tile_h)];
    let launches = vec![
        Launch {
            function: gpu.function(&WEIGHT_GRAD, "conv2d_direct_weight_grad", &macros)?,
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
    Ok(Some(Box::new(Launches { launches, workspace: workspace.bytes, flops: g.flops() })))
}

/// As many slices as fit, without one that has fewer rows than it could.
fn balanced_slices(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most.clamp(1, rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(c: usize, size: usize, k: usize, r: usize, stride: usize, padding: usize) -> Geometry {
        let (stride, padding) = ([stride; 2], [padding; 2]);
        Geometry { n: 8, c, h: size, w: size, k, r, s: r, stride, padding, dilation: [1, 1], groups: 1 }
    }

    #[test]
    fn windows_of_the_gradient_reach_every_tap() {
        for (r, stride, padding) in [(3, 1, 1), (5, 1, 0), (7, 2, 3), (3, 2, 1), (1, 3, 0), (4, 4, 0)] {
            let g = geometry(3, 32, 8, r, stride, padding);
            let windows = Windows::input_grad(&g);
            let reached = |tap: usize| {
                (0..stride).any(|a| {
                    let at = a as i64 + padding as i64 - tap as i64;
                    let row = at.div_euclid(stride as i64) + windows.before[0];
                    at.rem_euclid(stride as i64) == 0 && (0..windows.taps[0] as i64).contains(&row)
                })
            };
            assert!((0..r).all(reached), "{r} {stride} {padding}");
        }
    }

    #[test]
    fn tiles_fit_shared_memory_and_a_block() {
        for g in [geometry(3, 32, 6, 5, 1, 0), geometry(3, 224, 64, 7, 2, 3), geometry(1, 28, 128, 3, 1, 1)] {
            for windows in [Windows::forward(&g), Windows::input_grad(&g)] {
                let tile = windows.tile(132);
                assert!(tile.threads() <= 512 && tile.threads() >= 32, "{}", tile.threads());
                assert!(tile.shared(&windows) <= SHARED);
            }
        }
    }
}
