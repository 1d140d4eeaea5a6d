//! Convolutions of images with few channels on tensor cores: windows are read where they lie, so that no part of a
//! product's tile is spent on channels that are not there.

use super::weight_grad::finish;
use super::windows::{Windows, unit};
use super::{Epilogue, Workspace, numbers};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::Units;
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

const FEW: Source = Source::embedded("conv2d_few.cu", include_str!("../conv2d_few.cu"));
const WEIGHT_GRAD: Source = Source::embedded("conv2d_few_weight_grad.cu", include_str!("../conv2d_few_weight_grad.cu"));

/// Warps of a block forward.
const WARPS: usize = 4;
/// Shared memory of a block, so that a multiprocessor has room for several: they hide each other's way from memory.
const SHARED: usize = 56 << 10;
/// Outputs of a tile, at most.
const PIXELS: usize = 1024;
/// Sums of the weight gradient that a thread has, with room for several blocks.
const SUMS: usize = 40;
/// Blocks that a multiprocessor holds, about.
const RESIDENT: usize = 4;

/// What a block computes at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    h: usize,
    w: usize,
    /// Bytes of shared memory of a block.
    shared: usize,
}

/// How a block's warps share the sums of the weight gradient: conv2d_few_weight_grad.cu.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    taken: usize,
    groups: usize,
    slices: usize,
}

/// The pass as `WindowRows` in window_rows.cuh sees it.
impl Windows {
    /// Whether there are so few channels, and kernels can count everything.
    fn suit(&self, channels: usize, wanted: usize, depth: usize) -> bool {
        let [r, s] = self.taps;
        let countable = |[h, w]: [usize; 2], c: usize| h < 1 << 28 && (w + s) * c < 1 << 28;
        let few = (1..=channels).contains(&self.channels) && (1..=wanted).contains(&self.wanted);
        let some = self.n * self.count[0] * self.count[1] > 0;
        few && some
            && (1..=depth).contains(&(r * s * self.channels))
            && self.stride.iter().all(|stride| *stride <= 16)
            && self.before.iter().all(|before| before.abs() < 1 << 20)
            && countable(self.input, self.channels)
            && countable(self.count, self.wanted)
    }

    /// Values of a window's row, and depths that it takes: `WindowRows::RUN`.
    fn run(&self) -> [usize; 2] {
        let [r, s] = self.taps;
        let (window, step) = (s * self.channels, self.stride[1] * self.channels);
        let short = window.next_multiple_of(if step.is_multiple_of(4) { 4 } else { 2 });
        let long = window.next_multiple_of(16);
        [window, if r * long / 16 * 4 <= (r * short).div_ceil(16) * 5 { long } else { short }]
    }

    fn depths(&self) -> usize {
        self.taps[0] * self.run()[1]
    }

    /// Rows under a tile, and values of a row.
    fn under(&self, h: usize, w: usize) -> [usize; 2] {
        [(h - 1) * self.stride[0] + self.taps[0], ((w - 1) * self.stride[1] + self.taps[1]) * self.channels]
    }

    /// The longest pieces that rows can be moved in, and how far before the first window they begin.
    fn pieces(&self, image: DType, w: usize) -> [usize; 2] {
        let [c, step] = [self.channels as i64, (self.stride[1] * self.channels) as i64];
        let lead = |unit: usize| (-self.before[1] * c).rem_euclid(unit as i64);
        // Windows are read in pairs of neighbours, or in fours.
        let aligned = |lead: i64| step % 2 == 1 || lead % (if step % 4 == 0 { 4 } else { 2 }) == 0;
        let apart = if w < self.count[1] { w as i64 * step } else { 0 };
        let longest = unit(image, &[self.input[1] as i64 * c, apart]);
        let units = [8, 4, 2, 1].into_iter().filter(|unit| *unit <= longest);
        let found = units.map(|unit| (unit, lead(unit))).find(|(_, lead)| aligned(*lead));
        found.map_or([1, 0], |(unit, lead)| [unit, lead as usize])
    }

    /// Bytes of the rows under two tiles: `WindowRows::SIZE`.
    fn rows_bytes(&self, h: usize, w: usize) -> usize {
        let [rows, line] = self.under(h, w);
        let lead = self.pieces(DType::BF16, w)[1];
        let size = rows * ((lead + line) / 8 + 1) * 8 + 16;
        // Odd windows are read from a second copy.
        let shifted = !(self.stride[1] * self.channels).is_multiple_of(2);
        2 * if shifted { 3 * ((size + 31) / 64 * 64 + 32) } else { 2 * size }
    }

    /// `Shared` in conv2d_few.cu.
    fn forward_bytes(&self, h: usize, w: usize) -> usize {
        let lines = self.wanted.next_multiple_of(16);
        lines * (self.depths().next_multiple_of(16) + 8) * 2 + lines * 4 + self.rows_bytes(h, w)
    }

    /// `Shared` in conv2d_few_weight_grad.cu.
    fn gradient_bytes(&self, split: &Split, h: usize, w: usize) -> usize {
        let (pixels, k) = ((h * w).next_multiple_of(16), self.wanted);
        let pitch = if self.reads_matrices() { k.next_multiple_of(16) + 8 } else { k };
        let over = if self.reads_matrices() { 0 } else { k.next_multiple_of(8) };
        let staged = 2 * (pixels * pitch + over).next_multiple_of(8) * 2 + self.rows_bytes(h, w);
        staged.max(4 * split.groups * split.taken * 16 * self.wanted.next_multiple_of(8))
    }

    /// Whether channels of the output fill matrices.
    fn reads_matrices(&self) -> bool {
        self.wanted.is_multiple_of(8)
    }

    fn tiles(&self, h: usize, w: usize) -> [usize; 2] {
        [self.count[0].div_ceil(h), self.count[1].div_ceil(w)]
    }

    /// The tile that takes least time, where one fits. Warps together compute `step` pixels at a time.
    fn tensor_tile(&self, step: usize, multiprocessors: usize, bytes: impl Fn(usize, usize) -> usize) -> Option<Tile> {
        let [p, q] = self.count;
        let time = |h: usize, w: usize| {
            let unit = self.pieces(DType::BF16, w)[0];
            let ([down, right], [rows, line]) = (self.tiles(h, w), self.under(h, w));
            let rounds = (self.n * down * right).div_ceil(multiprocessors * RESIDENT);
            // A pixel's products take as long as some reads, and warps wait for each other at every tile.
            rounds * ((h * w).next_multiple_of(step) * 8 + rows * line / unit + 512)
        };
        let widths = [128, 64, 32, 16, 8].map(|most| q.div_ceil(q.div_ceil(most)));
        let shapes = widths.into_iter().flat_map(|w| (1..=p.min(PIXELS / w)).map(move |h| (h, w)));
        let (h, w) = shapes.filter(|(h, w)| bytes(*h, *w) <= SHARED).min_by_key(|(h, w)| time(*h, *w))?;
        Some(Tile { h, w, shared: bytes(h, w) })
    }

    fn split(&self) -> Split {
        // The bias takes a depth of its own where rows leave none over.
        let [window, run] = self.run();
        let ones = usize::from(window == run);
        let matrices = (self.depths() + ones).div_ceil(16);
        let most = (SUMS / (self.wanted.div_ceil(8) * 4)).max(1);
        let groups = matrices.div_ceil(most);
        Split { taken: matrices.div_ceil(groups), groups, slices: (WARPS / groups).max(1) }
    }

    fn macros(&self, image: DType, tile: &Tile) -> Vec<(&'static str, String)> {
        let [unit, lead] = self.pieces(image, tile.w);
        let sizes = [
            ("CHANNELS", self.channels),
            ("WANTED", self.wanted),
            ("R", self.taps[0]),
            ("S", self.taps[1]),
            ("STRIDE_H", self.stride[0]),
            ("STRIDE_W", self.stride[1]),
            ("TILE_H", tile.h),
            ("TILE_W", tile.w),
            ("UNIT", unit),
            ("LEAD", lead),
        ];
        let element = ("ELEMENT", cuda_type(image).to_string());
        std::iter::once(element).chain(sizes.map(|(name, value)| (name, value.to_string()))).collect()
    }

    /// `Frame` of both kernels, but for what follows the number of tiles.
    fn frame(&self, tile: &Tile) -> Vec<i64> {
        let [down, right] = self.tiles(tile.h, tile.w);
        let sizes = |list: [usize; 2]| list.map(|size| size as i64);
        let total = (self.n * down * right) as i64;
        [sizes(self.input), sizes(self.count), self.before, sizes([down, right])]
            .concat()
            .into_iter()
            .chain([total])
            .collect()
    }

    /// Blocks that go through all tiles, each with as many as the others or one less.
    fn blocks(&self, tile: &Tile, resident: usize) -> usize {
        let tiles = self.tiles(tile.h, tile.w).iter().product::<usize>() * self.n;
        tiles.div_ceil(tiles.div_ceil(resident.max(1)))
    }
}

fn candidate(launches: Vec<Launch>, workspace: usize, g: &Geometry) -> Option<Candidate> {
    let kernel = Box::new(Launches { launches, workspace, flops: g.flops() });
    Some(Candidate { name: "own few channels".into(), kernel })
}

fn suits(g: &Geometry, image: DType, gpu: &Gpu) -> bool {
    Units::of(gpu, image).tensor_cores && g.groups == 1 && g.dilation == [1, 1]
}

/// Forward, where it suits.
pub(super) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Candidate>> {
    let windows = Windows::forward(g);
    if !suits(g, image, gpu) || !windows.suit(16, 128, 512) {
        return Ok(None);
    }
    pass(g, &windows, false, [image, weight], epilogue, gpu)
}

/// The gradient by the input, where it suits.
pub(super) fn input_grad(g: &Geometry, image: DType, weight: DType, gpu: &Gpu) -> Result<Option<Candidate>> {
    let windows = Windows::input_grad(g);
    if !suits(g, image, gpu) || g.stride != [1, 1] || !windows.suit(64, 16, 1600) {
        return Ok(None);
    }
    pass(g, &windows, true, [image, weight], &Epilogue { bias: None, scale: None, relu: false }, gpu)
}

fn pass(
    g: &Geometry,
    windows: &Windows,
    input_grad: bool,
    [image, weight]: [DType; 2],
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Candidate>> {
    // Warps take one or two matrices of 16 pixels at a time.
    let step = WARPS * if windows.wanted <= 64 { 32 } else { 16 };
    let Some(tile) = windows.tensor_tile(step, gpu.multiprocessors(), |h, w| windows.forward_bytes(h, w)) else {
        return Ok(None);
    };
    let name = |dtype: DType| cuda_type(dtype).to_string();
    let mut macros = windows.macros(image, &tile);
    macros.extend([
        ("WEIGHT_ELEMENT", name(weight)),
        ("SCALE_ELEMENT", name(epilogue.scale.map_or(weight, |(_, dtype)| dtype))),
        ("BIAS_ELEMENT", name(epilogue.bias.map_or(image, |(_, dtype)| dtype))),
        super::flag("INPUT_GRAD", input_grad),
    ]);
    let function = gpu.function(&FEW, "conv2d_few", &macros)?;
    let (threads, shared) = (32 * WARPS as u32, tile.shared as u32);
    let blocks = windows.blocks(&tile, function.occupancy(threads, shared)? * gpu.multiprocessors());
    let operand = |position: Option<usize>| position.map_or(Argument::Null, Argument::Input);
    let frame = windows.frame(&tile).into_iter().chain([i64::from(epilogue.relu)]);
    let launch = Launch {
        function,
        grid: Grid { blocks: [blocks as u32, 1, 1], threads: [threads, 1, 1], shared },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            operand(epilogue.scale.map(|(position, _)| position)),
            operand(epilogue.bias.map(|(position, _)| position)),
            Argument::Output(0),
            numbers(frame)?,
        ],
    };
    Ok(candidate(vec![launch], 0, g))
}

/// The gradients by filters and bias, where that suits.
pub(super) fn weight_grad(g: &Geometry, image: DType, out: DType, bias: bool, gpu: &Gpu) -> Result<Option<Candidate>> {
    let windows = Windows::forward(g);
    if !suits(g, image, gpu) || !windows.suit(16, 128, 512) {
        return Ok(None);
    }
    let split = windows.split();
    let bytes = |h: usize, w: usize| windows.gradient_bytes(&split, h, w);
    let Some(tile) = windows.tensor_tile(16 * split.slices, gpu.multiprocessors(), bytes) else { return Ok(None) };
    // More groups than this would each read every gradient for few sums.
    if split.groups > 8 {
        return Ok(None);
    }
    let mut macros = windows.macros(image, &tile);
    let k = g.k as i64;
    let of_gradient =
        unit(image, &if windows.reads_matrices() { [k; 2] } else { [g.ow(), tile.w].map(|w| w as i64 * k) });
    let sizes =
        [("TAKEN", split.taken), ("GROUPS", split.groups), ("SLICES", split.slices), ("GRADIENT_UNIT", of_gradient)];
    macros.extend(sizes.map(|(name, value)| (name, value.to_string())));
    let function = gpu.function(&WEIGHT_GRAD, "conv2d_few_weight_grad", &macros)?;
    let (threads, shared) = ((32 * split.groups * split.slices) as u32, tile.shared as u32);
    let parts = windows.blocks(&tile, function.occupancy(threads, shared)? * gpu.multiprocessors());
    let mut workspace = Workspace::default();
    let sums = workspace.take(4 * parts * g.k * g.c * g.r * g.s);
    let bias_sums = if bias { workspace.take(4 * parts * g.k) } else { Argument::Null };
    let launches = vec![
        Launch {
            function,
            grid: Grid { blocks: [parts as u32, 1, 1], threads: [threads, 1, 1], shared },
            arguments: vec![
                Argument::Input(0),
                Argument::Input(1),
                sums.clone(),
                bias_sums.clone(),
                numbers(windows.frame(&tile))?,
            ],
        },
        finish(g, image, out, bias, parts, sums, bias_sums, gpu)?,
    ];
    Ok(candidate(launches, workspace.bytes, g))
}

#[cfg(test)]
mod tests {
    use super::super::windows::tests::geometry;
    use super::*;

    #[test]
    fn tiles_fit_shared_memory_and_cover_all_windows() {
        for g in [
            geometry(2048, 3, 32, 6, 5, 1, 0),
            geometry(2048, 3, 32, 32, 3, 1, 1),
            geometry(2048, 3, 224, 64, 7, 2, 3),
            geometry(2048, 1, 28, 128, 3, 1, 1),
            geometry(2048, 16, 9, 16, 5, 1, 2),
        ] {
            let windows = Windows::forward(&g);
            let split = windows.split();
            let forward = windows.tensor_tile(128, 132, |h, w| windows.forward_bytes(h, w)).unwrap();
            let gradient = windows.tensor_tile(64, 132, |h, w| windows.gradient_bytes(&split, h, w)).unwrap();
            for tile in [forward, gradient] {
                assert!(tile.shared <= SHARED && tile.h * tile.w <= PIXELS, "{g:?}: {tile:?}");
                let [down, right] = windows.tiles(tile.h, tile.w);
                assert!(down * tile.h >= g.oh() && right * tile.w >= g.ow());
                let (blocks, tiles) = (windows.blocks(&tile, 528), g.n * down * right);
                assert!(blocks <= 528 && blocks * tiles.div_ceil(blocks) >= tiles);
            }
        }
    }

    #[test]
    fn warps_have_all_depths_and_that_of_the_bias() {
        for (c, k, r) in [(3, 32, 3), (3, 6, 5), (6, 16, 5), (1, 1, 1), (16, 128, 5), (2, 128, 16)] {
            let windows = Windows::forward(&geometry(2048, c, 32, k, r, 1, 0));
            let split = windows.split();
            let ones = usize::from(windows.run()[0] == windows.run()[1]);
            assert!(split.taken * split.groups * 16 >= windows.depths() + ones, "{split:?}");
            assert!(split.taken == 1 || split.taken * k.div_ceil(8) * 4 <= SUMS, "{split:?}");
        }
    }

    #[test]
    fn the_turned_convolution_gives_the_input_back() {
        for (r, padding) in [(3, 1), (5, 0), (1, 0), (3, 4)] {
            let g = geometry(2048, 6, 14, 16, r, 1, padding);
            let windows = Windows::input_grad(&g);
            let size = windows.input[0] as i64 + 2 * windows.before[0] - r as i64 + 1;
            assert_eq!((size, windows.count), (14, [14, 14]));
        }
    }
}
