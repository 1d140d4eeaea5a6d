//! Winograd's way for f32 with 3×3 filters and stride 1, in all three passes (the transforms are in `winograd.cuh`).
//!
//! Windows, filters and gradients are transformed into one matrix for each interpolation point; the matrices are
//! multiplied by the kernel of plain products, and the sums are transformed back. That is 2.25 to 4 times less
//! arithmetic, but each tile's transformed values are written and read again: with few channels there is too little
//! arithmetic to save for that traffic.

use super::{Epilogue, Workspace, flag, numbers};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::{Cut, Products, Units};
use crate::cuda::{Gpu, Source};
use crate::ops::conv2d::cpu::Geometry;
use crate::ops::matmul::cuda::Batch;
use crate::tensor::DType;
use std::sync::LazyLock;

const SOURCE: Source = Source::embedded("conv2d_winograd.cu", include_str!("../conv2d_winograd.cu"));
const WEIGHT_GRAD: Source =
    Source::embedded("conv2d_winograd_weight_grad.cu", include_str!("../conv2d_winograd_weight_grad.cu"));

/// `NEURONA_WINOGRAD`: 0 switches it off, 1 uses it wherever it is possible, whatever is faster.
static ASKED: LazyLock<Option<bool>> = LazyLock::new(|| match std::env::var("NEURONA_WINOGRAD").as_deref() {
    Ok("0") => Some(false),
    Ok("1") => Some(true),
    _ => None,
});

/// Values of a side of a filter.
const TAPS: usize = 3;
/// Channels of a thread: 16 bytes.
const LANES: usize = 4;
/// Threads of a block that transforms tiles.
const THREADS: usize = 128;
/// Rows of the products' largest tiles: chunks are multiples of it.
const ROWS: usize = 128;
/// Bytes of transformed tiles that the products work on at a time.
const CHUNK: usize = 256 << 20;
/// So few that they stay in the cache of a large GPU. Then there are more launches, each with multiprocessors that wait
/// for the last blocks.
const CACHED_CHUNK: usize = 32 << 20;
/// Arithmetic in the time of a byte from or to memory: what ordinary products reach on large GPUs.
const BALANCE: f64 = 13.0;

/// Whether it is used wherever it is possible.
pub(super) fn forced() -> bool {
    *ASKED == Some(true)
}

/// What is to be done, in the direction of the pass: images `[n, h, w, c]` to `[n, oh, ow, k]`.
#[derive(Clone, Copy, Debug)]
struct Plan<'a> {
    g: &'a Geometry,
    /// Pixels of a side of a tile.
    pixels: usize,
    size: [usize; 2],
    out: [usize; 2],
    padding: [usize; 2],
    channels: [usize; 2],
    /// Channels of the matrices: multiples of four.
    c: usize,
    k: usize,
    /// Tiles down and across an image.
    tiles: [usize; 2],
    total: usize,
    /// Tiles that are worked on at a time.
    chunk: usize,
}

impl<'a> Plan<'a> {
    /// The pass in this way, where it is possible.
    fn possible(g: &'a Geometry, input_grad: bool) -> Option<Self> {
        let simple = [g.r, g.s] == [TAPS, TAPS] && g.stride == [1, 1] && g.dilation == [1, 1] && g.groups == 1;
        let something = [g.n, g.c, g.k, g.h, g.w, g.oh(), g.ow()].iter().all(|&size| size > 0);
        if !simple || !something || g.padding.iter().any(|&p| p >= TAPS) {
            return None;
        }
        let (size, out) = ([g.h, g.w], [g.oh(), g.ow()]);
        let (size, out, channels, padding) = if input_grad {
            (out, size, [g.k, g.c], g.padding.map(|p| TAPS - 1 - p))
        } else {
            (size, out, [g.c, g.k], g.padding)
        };
        // The fewest products, with those for pixels outside; of equals the smallest tile, which loses the least.
        let products = |pixels: usize| out.map(|size| size.div_ceil(pixels) * (pixels + 2)).iter().product::<usize>();
        let pixels = (2..=4).min_by_key(|&pixels| products(pixels))?;
        let tiles = out.map(|size| size.div_ceil(pixels));
        let total = g.n * tiles[0] * tiles[1];
        let [c, k] = channels.map(|channels| channels.next_multiple_of(4));
        let countable = total < 1 << 31 && c.max(k) < 1 << 18;
        countable.then_some(Plan { g, pixels, size, out, padding, channels, c, k, tiles, total, chunk: total })
    }

    fn points(&self) -> usize {
        (self.pixels + 2).pow(2)
    }

    /// Bytes of a tile's transformed values, before and after the products.
    fn tile_bytes(&self) -> usize {
        4 * self.points() * (self.c + self.k)
    }

    /// Arithmetic of the products, in the bytes that memory moves in its time.
    fn products(&self) -> f64 {
        2.0 * (self.points() * self.total) as f64 * (self.c * self.k) as f64 / BALANCE
    }

    /// Bytes of transformed tiles that are written and read.
    fn traffic(&self) -> f64 {
        2.0 * (self.total * self.tile_bytes()) as f64
    }

    /// Whether it may cost less than plain sums; timing tells what this does not know.
    fn pays(&self) -> bool {
        let [from, to] =
            [(self.size, self.c), (self.out, self.k)].map(|([h, w], channels)| self.g.n * h * w * channels);
        let filters = self.points() * self.c * self.k;
        let rest = (4 * (from + to) + 8 * filters) as f64;
        self.products() + self.traffic() + rest < 1.25 * self.g.flops() as f64 / BALANCE
    }

    /// Whether smaller chunks may cost less: where much of the time is the transformed tiles' traffic.
    fn cached_pays(&self) -> bool {
        self.total * self.tile_bytes() > 2 * CACHED_CHUNK && self.traffic() > 0.5 * self.products()
    }

    /// The same in chunks of about so many bytes.
    fn in_chunks(self, bytes: usize) -> Self {
        let most = (bytes / self.tile_bytes() / ROWS).max(1) * ROWS;
        let chunk = self.total.div_ceil(self.total.div_ceil(most)).next_multiple_of(ROWS);
        Plan { chunk: chunk.min(self.total), ..self }
    }

    /// First tile and number of tiles of each chunk.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> {
        let (total, chunk) = (self.total, self.chunk);
        (0..total).step_by(chunk).map(move |first| (first, chunk.min(total - first)))
    }

    /// `Tiles` in the kernels: of the images that are read, or of those that are written.
    fn tiles(&self, read: bool, (first, count): (usize, usize)) -> Result<Argument> {
        let ([h, w], channels, pitch, padding) = if read {
            (self.size, self.channels[0], self.c, self.padding)
        } else {
            (self.out, self.channels[1], self.k, [0, 0])
        };
        let fields = [h, w, channels, pitch, padding[0], padding[1], self.tiles[0], self.tiles[1], first, count];
        numbers(fields.map(|field| field as i64))
    }

    /// The macros of kernels that read or write images: the same ones for all of a pass as a rule, so that they are
    /// compiled together.
    fn macros(&self, read: bool) -> [(&'static str, String); 3] {
        let (channels, pitch) = if read { (self.channels[0], self.c) } else { (self.channels[1], self.k) };
        [("PIXELS", self.pixels.to_string()), ("LANES", LANES.to_string()), flag("VECTOR", channels == pitch)]
    }

    /// A kernel that works on the tiles of a chunk, each thread on some channels of one.
    fn transform(
        &self,
        name: &str,
        read: bool,
        chunk: (usize, usize),
        mut arguments: Vec<Argument>,
        gpu: &Gpu,
    ) -> Result<Launch> {
        let pitch = if read { self.c } else { self.k };
        arguments.push(self.tiles(read, chunk)?);
        Ok(Launch {
            function: gpu.function(&SOURCE, name, &self.macros(read))?,
            grid: Grid::line((chunk.1 * pitch / LANES).div_ceil(THREADS), THREADS as u32),
            arguments,
        })
    }

    /// Forward, or the gradient by the input.
    fn pass(&self, input_grad: bool, epilogue: &Epilogue, gpu: &Gpu) -> Result<Launches> {
        let (points, c, k) = (self.points(), self.c, self.k);
        let mut workspace = Workspace::default();
        let filters = workspace.take(4 * points * c * k);
        let windows = workspace.take(4 * points * self.chunk * c);
        let sums = workspace.take(4 * points * self.chunk * k);
        let operand = |operand: Option<(usize, DType)>| operand.map_or(Argument::Null, |(i, _)| Argument::Input(i));
        let number = |x: usize| Argument::I32(x as i32);
        let mut launches = vec![Launch {
            function: gpu.function(&SOURCE, "conv2d_winograd_filter", &self.macros(false))?,
            grid: Grid { blocks: [k.div_ceil(32) as u32, c.div_ceil(8) as u32, 1], threads: [256, 1, 1], shared: 0 },
            arguments: vec![
                Argument::Input(1),
                operand(epilogue.scale),
                filters.clone(),
                number(self.g.k),
                number(self.g.c),
                number(c),
                number(k),
                Argument::I32(i32::from(input_grad)),
            ],
        }];
        for chunk in self.chunks() {
            let arguments = vec![Argument::Input(0), windows.clone()];
            launches.push(self.transform("conv2d_winograd_window", true, chunk, arguments, gpu)?);
            let products = Products { rows: chunk.1, columns: k, depth: c, count: points, always_finished: false };
            // There are enough products that sums need not be shared.
            let tile = products.cut(Units::of(gpu, DType::F32), [c, k]).tile;
            let batch = Batch { count: points, size: [chunk.1, k], depth: c, transposed: false };
            let operands = [windows.clone(), filters.clone(), sums.clone()];
            launches.push(batch.launch(&Cut { tile, parts: 1, part: c }, operands, gpu)?);
            let arguments = vec![sums.clone(), operand(epilogue.bias), Argument::Output(0)];
            let mut pixels = self.transform("conv2d_winograd_pixels", false, chunk, arguments, gpu)?;
            pixels.arguments.push(Argument::I32(i32::from(epilogue.relu)));
            launches.push(pixels);
        }
        Ok(Launches { launches, workspace: workspace.bytes, flops: self.g.flops() })
    }

    /// The gradients by the filters and, with `bias`, by the bias.
    fn weight_grad(&self, bias: bool, gpu: &Gpu) -> Result<Launches> {
        let (points, c, k) = (self.points(), self.c, self.k);
        let cut_of = |count: usize| {
            Products { rows: k, columns: c, depth: count, count: points, always_finished: true }
                .cut(Units::of(gpu, DType::F32), [k, c])
        };
        // Sums of the bias: enough blocks to keep memory busy.
        let run_of = |count: usize| count.div_ceil((2 * gpu.multiprocessors()).div_ceil(k.div_ceil(32))).max(64);
        let parts: usize = self.chunks().map(|(_, count)| cut_of(count).parts).sum();
        let runs: usize = self.chunks().map(|(_, count)| count.div_ceil(run_of(count))).sum();

        let mut workspace = Workspace::default();
        let windows = workspace.take(4 * points * self.chunk * c);
        let gradients = workspace.take(4 * points * self.chunk * k);
        let part_bytes = 4 * points * k * c;
        let tile_sums = if bias { workspace.take(4 * self.chunk * k) } else { Argument::Null };
        let sums = workspace.bytes;
        workspace.take(parts * part_bytes);
        let bias_sums = workspace.bytes;
        workspace.take(if bias { 4 * runs * k } else { 0 });
        let number = |x: usize| Argument::I32(x as i32);
        let macros = [("PIXELS", self.pixels.to_string())];

        let (mut launches, mut part, mut run) = (Vec::new(), 0, 0);
        for chunk in self.chunks() {
            let arguments = vec![Argument::Input(0), windows.clone()];
            launches.push(self.transform("conv2d_winograd_window", true, chunk, arguments, gpu)?);
            let arguments = vec![Argument::Input(1), gradients.clone(), tile_sums.clone()];
            launches.push(self.transform("conv2d_winograd_gradient", false, chunk, arguments, gpu)?);
            let batch = Batch { count: points, size: [k, c], depth: chunk.1, transposed: true };
            let (cut, to) = (cut_of(chunk.1), Argument::Workspace(sums + part * part_bytes));
            launches.push(batch.launch(&cut, [gradients.clone(), windows.clone(), to], gpu)?);
            part += cut.parts;
            if bias {
                let (tiles, length) = (chunk.1, run_of(chunk.1));
                let blocks = [k.div_ceil(32) as u32, tiles.div_ceil(length) as u32, 1];
                let to = Argument::Workspace(bias_sums + 4 * run * k);
                launches.push(Launch {
                    function: gpu.function(&WEIGHT_GRAD, "conv2d_winograd_bias", &macros)?,
                    grid: Grid { blocks, threads: [512, 1, 1], shared: 0 },
                    arguments: vec![tile_sums.clone(), to, number(tiles), number(k), number(length)],
                });
                run += tiles.div_ceil(length);
            }
        }
        let or_null = |argument: Argument| if bias { argument } else { Argument::Null };
        launches.push(Launch {
            function: gpu.function(&WEIGHT_GRAD, "conv2d_winograd_weight_grad", &macros)?,
            grid: Grid::line((k * c).div_ceil(32) + if bias { k.div_ceil(32) } else { 0 }, 512),
            arguments: vec![
                Argument::Workspace(sums),
                or_null(Argument::Workspace(bias_sums)),
                Argument::Output(0),
                or_null(Argument::Output(1)),
                number(self.channels[1]),
                number(self.channels[0]),
                number(k),
                number(c),
                number(parts),
                number(runs),
            ],
        });
        Ok(Launches { launches, workspace: workspace.bytes, flops: self.g.flops() })
    }
}

/// The pass in this way, where it is possible and may be faster.
fn plan<'a>(g: &'a Geometry, input_grad: bool, types: &[DType]) -> Option<Plan<'a>> {
    let plan = Plan::possible(g, input_grad).filter(|_| types.iter().all(|dtype| *dtype == DType::F32));
    plan.filter(|plan| ASKED.unwrap_or_else(|| plan.pays())).map(|plan| plan.in_chunks(CHUNK))
}

fn candidate(name: &str, launches: Launches) -> Candidate {
    Candidate { name: name.into(), kernel: Box::new(launches) }
}

/// Forward and the gradient by the input: in large chunks, and in small ones where they may be faster.
fn passes(plan: Option<Plan>, input_grad: bool, epilogue: &Epilogue, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let Some(plan) = plan else { return Ok(Vec::new()) };
    let mut all = vec![candidate("own winograd", plan.pass(input_grad, epilogue, gpu)?)];
    if plan.cached_pays() {
        let cached = plan.in_chunks(CACHED_CHUNK).pass(input_grad, epilogue, gpu)?;
        all.push(candidate("own winograd in cache", cached));
    }
    Ok(all)
}

/// Operands: images, filters, and those of the epilogue.
pub(super) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let of = |operand: Option<(usize, DType)>| operand.map_or(DType::F32, |(_, dtype)| dtype);
    let types = [image, weight, of(epilogue.bias), of(epilogue.scale)];
    passes(plan(g, false, &types), false, epilogue, gpu)
}

/// Operands: the gradient by the output, filters.
pub(super) fn input_grad(g: &Geometry, image: DType, weight: DType, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let none = Epilogue { bias: None, scale: None, relu: false };
    passes(plan(g, true, &[image, weight]), true, &none, gpu)
}

/// Operands: images, the gradient by the output. Never in small chunks: each has sums of its own to add.
pub(super) fn weight_grad(g: &Geometry, image: DType, out: DType, bias: bool, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let Some(plan) = plan(g, false, &[image, out]) else { return Ok(Vec::new()) };
    Ok(vec![candidate("own winograd", plan.weight_grad(bias, gpu)?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(n: usize, c: usize, size: usize, k: usize) -> Geometry {
        let pair = |x| [x, x];
        let [stride, padding, dilation] = [1, 1, 1].map(pair);
        Geometry { n, c, h: size, w: size, k, r: 3, s: 3, stride, padding, dilation, groups: 1 }
    }

    #[test]
    fn tiles_waste_least_on_pixels_outside() {
        for (size, pixels) in [(1, 2), (2, 2), (3, 3), (4, 4), (5, 3), (6, 3), (7, 4), (8, 4), (9, 3), (15, 4), (28, 4)]
        {
            let g = geometry(1, 8, size, 8);
            assert_eq!(Plan::possible(&g, false).map(|plan| plan.pixels), Some(pixels), "{size}");
        }
        let strided = Geometry { stride: [2, 1], ..geometry(1, 8, 8, 8) };
        assert!(Plan::possible(&strided, false).is_none());
    }

    #[test]
    fn it_pays_where_channels_are_many() {
        let pays = |n, c, size, k| Plan::possible(&geometry(n, c, size, k), true).is_some_and(|plan| plan.pays());
        assert!(pays(512, 256, 8, 256) && pays(512, 64, 32, 64) && pays(2000, 256, 3, 256));
        assert!(!pays(512, 3, 32, 64) && !pays(512, 16, 32, 16));
    }

    #[test]
    fn chunks_cover_all_tiles_and_are_as_large_as_they_may_be() {
        for (n, c, size, k) in [(1, 8, 4, 8), (2000, 64, 15, 256), (2000, 256, 7, 256), (77, 512, 14, 512)] {
            let g = geometry(n, c, size, k);
            let Some(plan) = Plan::possible(&g, false) else { panic!("{g:?} is possible") };
            for bytes in [CHUNK, CACHED_CHUNK] {
                let plan = plan.in_chunks(bytes);
                let chunks: Vec<_> = plan.chunks().collect();
                assert_eq!(chunks.iter().map(|(_, count)| count).sum::<usize>(), plan.total);
                assert!(chunks.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
                assert!(plan.chunk * plan.tile_bytes() <= bytes + ROWS * plan.tile_bytes());
            }
        }
    }
}
