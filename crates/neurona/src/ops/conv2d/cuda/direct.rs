//! Convolutions where one side has few channels, computed directly: a product's tile would be mostly empty.

use super::windows::{Windows, balanced, unit};
use super::{Epilogue, numbers};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

const DIRECT: Source = Source::embedded("conv2d_direct.cu", include_str!("../conv2d_direct.cu"));

/// Threads of a block, about.
pub(super) const THREADS: usize = 256;
/// Sums of a thread, and shared memory of a block: with few sums a multiprocessor has room for many threads, which hide each
/// other's way from memory; with many, what is read meets more of them. Which is faster depends on the shape.
const BREADTHS: [(&str, usize, usize); 2] =
    [("own direct", NARROW, 72 << 10), ("own direct, many sums", 2 * NARROW, 108 << 10)];
/// Sums of a thread of which registers leave room for many.
pub(super) const NARROW: usize = 48;

impl Windows {
    /// What a thread with at most so many sums computes in the least time, with as many threads as the GPU gains from.
    fn share(&self, sums: usize, multiprocessors: usize) -> Share {
        let ([p, q], [r, s]) = (self.count, self.taps);
        let lines = self.channels * r;
        let cost = |share: &Share| {
            let Share { pixels, channels, split } = *share;
            let under = (pixels - 1) * self.stride[1] + s;
            // A thread with whole rows leaves out taps that lie outside.
            let (reads, taps) = if self.knows_edges(pixels) {
                let inside = |x: usize| (0..self.input[1] as i64).contains(&(x as i64 - self.before[1]));
                let meets = |i: usize| (0..s).filter(|s| inside(i * self.stride[1] + s)).count();
                (self.input[1], (0..pixels).map(meets).sum())
            } else {
                (under, pixels * s)
            };
            let quads = (s * channels).div_ceil(4);
            let line = taps * channels + reads + quads + 16;
            let whole = q.is_multiple_of(pixels) && self.wanted.is_multiple_of(channels) && self.shuffle == [1, 1];
            let result = pixels * channels * (if whole { 3 } else { 12 } + 6 * split.ilog2() as usize);
            let lines = lines.div_ceil(split);
            let threads = self.n * p * q.div_ceil(pixels) * self.wanted.div_ceil(channels) * split;
            // All threads together are limited by instructions and by words from shared memory, each of which takes as long
            // as four. A scheduler with few warps waits for results, unless threads have many sums that need not wait for
            // each other.
            let scheduled = threads as f64 / (32 * 4 * multiprocessors) as f64;
            let busy = (lines * (line + 4 * (reads + 4 * quads)) + result) as f64 * scheduled;
            let waiting = (lines * line + result) as f64 * (32.0 / (pixels * channels) as f64).clamp(1.5, 4.0);
            busy.max(waiting)
        };
        let fits = |share: &Share| {
            let registers = (share.pixels - 1) * self.stride[1] + s + s * share.channels;
            share.pixels * share.channels <= sums && registers <= 64 || share.pixels * share.channels == 1
        };
        let splits = [1, 2, 4, 8, 16, 32].into_iter().filter(|split| *split < 2 * lines);
        splits
            .flat_map(|split| (1..=16.min(q)).map(move |pixels| (split, pixels)))
            .flat_map(|(split, pixels)| {
                (1..=16.min(self.wanted)).map(move |channels| Share { pixels, channels, split })
            })
            .filter(fits)
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .unwrap_or(Share { pixels: 1, channels: 1, split: 1 })
    }

    /// Whether a thread with so many pixels has whole rows, some of whose windows reach outside.
    fn knows_edges(&self, pixels: usize) -> bool {
        let [_, q] = self.count;
        let end = ((q - 1) * self.stride[1] + self.taps[1]) as i64 - self.before[1];
        pixels == q && (self.before[1] > 0 || end > self.input[1] as i64) && self.before[1] >= 0
    }

    fn tile(&self, image: DType, share: Share, room: usize, multiprocessors: usize) -> Tile {
        let [p, q] = self.count;
        let (columns, groups) = (q.div_ceil(share.pixels), self.wanted.div_ceil(share.channels));
        let mut columns_of_tile = balanced(columns, (64 / share.pixels).max(1));
        let mut groups_of_block = balanced(groups, 8);
        let row = |columns: usize, groups: usize| columns * groups * share.split;
        while groups_of_block > 1 && row(columns_of_tile, groups_of_block) > THREADS {
            groups_of_block = groups_of_block.div_ceil(2);
        }
        while columns_of_tile > 1 && row(columns_of_tile, groups_of_block) > THREADS {
            columns_of_tile = columns_of_tile.div_ceil(2);
        }
        let blocks = |h: usize, groups_of_block: usize| {
            self.n * p.div_ceil(h) * columns.div_ceil(columns_of_tile) * groups.div_ceil(groups_of_block)
        };
        let mut h = balanced(p, (THREADS / row(columns_of_tile, groups_of_block)).max(1));
        // All multiprocessors have work before one has much.
        while h > 1 && blocks(h, groups_of_block) < multiprocessors && row(columns_of_tile, groups_of_block) * h > 64 {
            h = h.div_ceil(2);
        }
        while groups_of_block > 1
            && blocks(h, groups_of_block) < multiprocessors
            && row(columns_of_tile, groups_of_block) * h > 128
        {
            groups_of_block = groups_of_block.div_ceil(2);
        }
        let threads = row(columns_of_tile, groups_of_block) * h;
        // Of several images as many as leave the fewest lanes of the last warp idle.
        let idle = |images: usize| (threads * images).next_multiple_of(32) * 64 / (threads * images);
        let most = (THREADS / threads).min(self.n.div_ceil(2 * multiprocessors)).clamp(1, 8);
        let images = if h < p || columns_of_tile < columns || groups_of_block < groups { 1 } else { most };
        let images = (1..=images).rev().min_by_key(|images| idle(*images)).unwrap_or(1);
        let edges = self.knows_edges(share.pixels);
        let (w, block_k) = (columns_of_tile * share.pixels, groups_of_block * share.channels);
        let mut tile = Tile { share, block_k, images, h, w, chunk: self.channels, unit: 1, lead: 0, edges, through: 0 };
        while tile.images > 1 && tile.shared(self, image) > room {
            tile.images -= 1;
        }
        while tile.chunk > 4 && tile.shared(self, image) > room {
            tile.chunk = tile.chunk.div_ceil(2).next_multiple_of(4);
        }
        while tile.h > 1 && tile.shared(self, image) > room {
            tile.h = tile.h.div_ceil(2);
        }
        while tile.chunk > 1 && tile.shared(self, image) > room {
            tile.chunk = tile.chunk.div_ceil(2);
        }
        let c = self.channels as i64;
        let step = if tile.w < q { (tile.w * self.stride[1]) as i64 * c } else { 0 };
        let line = self.input[1] as i64 * c;
        if tile.chunk == self.channels {
            tile.unit = unit(image, &[line, step]);
            tile.lead = if edges { 0 } else { (-self.before[1] * c).rem_euclid(tile.unit as i64) as usize };
        } else {
            tile.unit = unit(image, &[c, tile.chunk as i64]);
        }
        let whole_rows = tile.w == q && tile.block_k == self.wanted && self.shuffle == [1, 1];
        let whole_images = tile.images == 1 || tile.h == p;
        if whole_rows && whole_images {
            tile.through = unit(image, &[(q * self.wanted) as i64]);
            if tile.shared(self, image) > room {
                tile.through = 0;
            }
        }
        tile
    }
}

/// What a thread computes: neighbours in a row, channels of each, and the threads that share each sum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    pixels: usize,
    channels: usize,
    split: usize,
}

/// What a block computes at a time: the macros of conv2d_direct.cu.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    share: Share,
    block_k: usize,
    images: usize,
    h: usize,
    w: usize,
    chunk: usize,
    unit: usize,
    lead: usize,
    edges: bool,
    through: usize,
}

impl Tile {
    fn threads(&self) -> u32 {
        let Share { pixels, channels, split } = self.share;
        let workers = self.h * self.images * (self.w / pixels) * (self.block_k / channels) * split;
        workers.next_multiple_of(32) as u32
    }

    /// Bytes of shared memory: `Shared` in conv2d_direct.cu.
    fn shared(&self, windows: &Windows, image: DType) -> usize {
        let ([r, s], [down, right]) = (windows.taps, windows.stride);
        let columns = if self.edges { windows.input[1] } else { (self.w - 1) * right + s };
        let align = 16 / image.size();
        let pitch = (self.lead + columns * self.chunk + align - 1) / (2 * align) * (2 * align) + align;
        let rows = if self.height(windows) > 0 { windows.input[0] } else { (self.h - 1) * down + r };
        let input = rows * pitch;
        let input = input + if input.is_multiple_of(8 * align) { 4 * align } else { 0 };
        let output = if self.through > 0 { self.h * self.w * windows.wanted } else { 0 };
        let run = (s * self.share.channels).next_multiple_of(4);
        let weights = 4 * self.chunk * r * (self.block_k / self.share.channels) * run;
        weights + (self.images * input.max(output) * image.size()).next_multiple_of(16)
    }

    /// The input's, where a tile is a whole image.
    fn height(&self, windows: &Windows) -> usize {
        if self.h == windows.count[0] { windows.input[0] } else { 0 }
    }

    fn tiles(&self, windows: &Windows) -> [usize; 3] {
        let [p, q] = windows.count;
        [windows.n.div_ceil(self.images), p.div_ceil(self.h), q.div_ceil(self.w)]
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
) -> Result<Vec<Candidate>> {
    // A long way from window to window leaves little to share.
    if !suits(g, image, g.c, g.k) || g.stride.iter().any(|s| *s > 4) {
        return Ok(Vec::new());
    }
    candidates(g, &Windows::forward(g), false, image, weight, epilogue, gpu)
}

/// The gradient by the input, where it suits.
pub(super) fn input_grad(g: &Geometry, image: DType, weight: DType, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let windows = Windows::input_grad(g);
    if !suits(g, image, g.k, windows.wanted) {
        return Ok(Vec::new());
    }
    candidates(g, &windows, true, image, weight, &Epilogue { bias: None, scale: None, relu: false }, gpu)
}

/// One for each breadth that differs from the others.
fn candidates(
    g: &Geometry,
    windows: &Windows,
    input_grad: bool,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    if windows.n * windows.count[0] * windows.count[1] == 0 {
        return Ok(Vec::new());
    }
    let (mut found, mut shares) = (Vec::new(), Vec::new());
    for (name, sums, room) in BREADTHS {
        let share = windows.share(sums, gpu.multiprocessors());
        let tile = windows.tile(image, share, room, gpu.multiprocessors());
        // Tensor cores are faster for the many pixels of 16 bits that many sums are for.
        let unlikely = sums > NARROW && image != DType::F32;
        if unlikely || shares.contains(&share) || tile.shared(windows, image) > room {
            continue;
        }
        shares.push(share);
        let launch = launch(g, windows, &tile, input_grad, [image, weight], epilogue, gpu)?;
        let kernel = launch.map(|launch| Launches { launches: vec![launch], workspace: 0, flops: g.flops() });
        found.extend(kernel.map(|kernel| Candidate { name: name.into(), kernel: Box::new(kernel) }));
    }
    Ok(found)
}

fn launch(
    g: &Geometry,
    windows: &Windows,
    tile: &Tile,
    input_grad: bool,
    [image, weight]: [DType; 2],
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Launch>> {
    let ([r, s], [p, q]) = (windows.taps, windows.count);
    let shared = tile.shared(windows, image);
    let tiles = tile.tiles(windows);
    let count = tiles.iter().product::<usize>();
    let countable = windows.n * tile.images < 1 << 31 && windows.input[1] * windows.channels < 1 << 28;
    if count >= 1 << 31 || !countable {
        return Ok(None);
    }
    let operand = |position: Option<usize>| position.map_or(Argument::Null, Argument::Input);
    let name = |dtype: DType| cuda_type(dtype).to_string();
    let sizes = [
        ("CHANNELS", windows.channels),
        ("CHUNK", tile.chunk),
        ("WANTED", windows.wanted),
        ("BLOCK_K", tile.block_k),
        ("THREAD_K", tile.share.channels),
        ("PIXELS", tile.share.pixels),
        ("SPLIT", tile.share.split),
        ("R", r),
        ("S", s),
        ("STRIDE_H", windows.stride[0]),
        ("STRIDE_W", windows.stride[1]),
        ("IMAGES", tile.images),
        ("TILE_H", tile.h),
        ("TILE_W", tile.w),
        ("UNIT", tile.unit),
        ("LEAD", tile.lead),
        ("HEIGHT", tile.height(windows)),
        ("WIDTH", if tile.edges { windows.input[1] } else { 0 }),
        ("THROUGH", tile.through),
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
        sizes(&[windows.n, windows.input[0], windows.input[1], p, q]),
        vec![before_h, before_w],
        sizes(&[windows.result[0], windows.result[1], tiles[1], tiles[2], count]),
        vec![i64::from(epilogue.relu)],
    ];
    let function = gpu.function(&DIRECT, "conv2d_direct", &macros)?;
    let resident = function.occupancy(tile.threads(), shared as u32)?.max(1) * gpu.multiprocessors();
    let parts = windows.wanted.div_ceil(tile.block_k);
    // Each block has as many tiles as the others or one less.
    let blocks = count.div_ceil(count.div_ceil(resident.div_ceil(parts)));
    Ok(Some(Launch {
        function,
        grid: Grid { blocks: [blocks as u32, parts as u32, 1], threads: [tile.threads(), 1, 1], shared: shared as u32 },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            operand(epilogue.scale.map(|(position, _)| position)),
            operand(epilogue.bias.map(|(position, _)| position)),
            Argument::Output(0),
            numbers(frame.concat())?,
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::super::windows::tests::geometry;
    use super::*;

    #[test]
    fn tiles_fit_shared_memory_and_a_block() {
        for g in [geometry(8, 3, 32, 6, 5, 1, 0), geometry(8, 3, 224, 64, 7, 2, 3), geometry(8, 1, 28, 128, 3, 1, 1)] {
            for windows in [Windows::forward(&g), Windows::input_grad(&g)] {
                for (image, (_, sums, room)) in [DType::F32, DType::BF16].into_iter().zip(BREADTHS) {
                    let tile = windows.tile(image, windows.share(sums, 132), room, 132);
                    assert!(tile.threads() <= 512 && tile.threads() >= 32, "{tile:?}");
                    assert!(tile.shared(&windows, image) <= room, "{tile:?}");
                    assert!(tile.unit * image.size() <= 16 && tile.through * image.size() <= 16);
                }
            }
        }
    }
}
