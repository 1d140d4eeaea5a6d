//! Winograd's way for 3×3 filters with stride 1, forward and for the input's gradient: tiles of 4×4 pixels are made
//! with 36 products for each pair of channels instead of 144.
//!
//! Tiles and filters are transformed, multiplied point by point as 36 matrix products over channels, and transformed
//! back. The gradient for the input is a convolution too, with filters turned around and channels exchanged.

mod transform;

use super::Geometry;
use crate::cpu::gemm::micro::{Start, Tile as Product};
use crate::cpu::gemm::panel::{Panel, packed_width, panels};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, share};
use crate::cpu::simd::vectorized;
use std::ops::Range;
use std::sync::LazyLock;
use transform::{LANES, OUT, POINTS, SIDE, TAPS, Tile};

/// `NEURONA_WINOGRAD=0` switches it off: sums then have the error of plain ones.
static ON: LazyLock<bool> = LazyLock::new(|| std::env::var("NEURONA_WINOGRAD").map_or(true, |v| v != "0"));

/// Bytes of transformed tiles that a task works on: they stay in the second-level cache.
const CACHE: usize = 512 << 10;

/// The sums of a point have no parts.
const START: &[usize] = &[0];

/// What is done with the sums.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// Operands as the forward convolution has them: image, filters, then maybe bias and scale.
    Forward { bias: bool, scaled: bool, activation: Activation },
    /// Operands: the output's gradient, filters.
    InputGrad,
}

/// A convolution of images `[n, h, w, c]` to `[n, oh, ow, k]`, which for the gradient is the other way round than
/// the layer's.
pub(super) struct Winograd {
    pass: Pass,
    n: usize,
    size: [usize; 2],
    out: [usize; 2],
    c: usize,
    k: usize,
    padding: [usize; 2],
    /// Tiles down and across an image.
    tiles: [usize; 2],
    /// Tiles that a task works on.
    block: usize,
    blocks: usize,
    panels: Vec<Panel>,
    /// Columns of the panels with the zeros that fill the last.
    packed_k: usize,
    panel_blocks: usize,
    /// Pieces in which one panel's filters are transformed.
    pieces: usize,
    /// Where each tile's channels start among a block's transformed tiles.
    a_rows: Vec<usize>,
    /// Where the sums of each tile start, by panel.
    c_rows: Vec<Vec<usize>>,
}

impl Winograd {
    /// The pass in this way, where it is possible and faster.
    pub fn new(g: Geometry, pass: Pass) -> Option<Self> {
        if *ON { Self::possible(g, pass).filter(Self::faster) } else { None }
    }

    /// The pass in this way, where it is possible.
    pub fn possible(g: Geometry, pass: Pass) -> Option<Self> {
        let simple = [g.r, g.s] == [TAPS, TAPS] && g.stride == [1, 1] && g.dilation == [1, 1] && g.groups == 1;
        let something = [g.n, g.c, g.k, g.oh(), g.ow()].iter().all(|&size| size > 0);
        if !simple || !something || g.padding.iter().any(|&p| p >= TAPS) {
            return None;
        }
        let (size, out, c, k, padding) = match pass {
            Pass::Forward { .. } => ([g.h, g.w], [g.oh(), g.ow()], g.c, g.k, g.padding),
            Pass::InputGrad => ([g.oh(), g.ow()], [g.h, g.w], g.k, g.c, g.padding.map(|p| TAPS - 1 - p)),
        };
        let tiles = out.map(|size| size.div_ceil(OUT));
        let total = g.n * tiles[0] * tiles[1];
        let panels = panels(k);
        let tallest = panels.iter().map(|p| p.width.rows()).max()?;
        let block = (tallest * (CACHE / (POINTS * size_of::<f32>() * c) / tallest).clamp(1, 4)).min(total);
        let blocks = total.div_ceil(block);
        let tasks = task_count(g.flops() as usize);
        // Each block of panels transforms the tiles again.
        let panel_blocks = tasks.div_ceil(blocks).clamp(1, panels.len().min(4));
        let pieces = (POINTS * c * k / 65_536).clamp(1, 64).div_ceil(panels.len()).clamp(1, c);
        let a_rows = (0..block).map(|tile| tile * c).collect();
        let c_rows = panels.iter().map(|p| (0..block).map(|tile| tile * p.width.columns).collect()).collect();
        let packed_k = packed_width(k);
        let n = g.n;
        Some(Winograd {
            pass,
            n,
            size,
            out,
            c,
            k,
            padding,
            tiles,
            block,
            blocks,
            panels,
            packed_k,
            panel_blocks,
            pieces,
            a_rows,
            c_rows,
        })
    }

    /// Whether it costs less than plain sums. For each pair of channels a tile costs 72 operations, and the transforms
    /// of its channels about 400 each; transforming a filter takes the memory as long as about 1,600 operations.
    fn faster(&self) -> bool {
        let tiles = (self.n * self.tiles[0] * self.tiles[1]) as f64;
        let pixels = (self.n * self.out[0] * self.out[1]) as f64;
        let (c, k) = (self.c as f64, self.k as f64);
        self.c.min(self.k) >= LANES && tiles * (72.0 + 400.0 / c + 400.0 / k) + 1600.0 < 0.8 * 18.0 * pixels
    }

    pub fn phases(&self) -> Vec<usize> {
        vec![self.panels.len() * self.pieces, self.blocks * self.panel_blocks]
    }

    /// The transformed filters.
    pub fn workspace(&self) -> usize {
        POINTS * self.c * self.packed_k * size_of::<f32>()
    }

    /// A block's transformed tiles, and their sums for one panel.
    pub fn scratch(&self) -> usize {
        let widest = self.panels.iter().map(|p| p.width.columns).max().unwrap_or(0);
        POINTS * self.block * (self.c + widest) * size_of::<f32>()
    }

    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 { self.filters(task, io) } else { self.multiply(task, io) }
    }

    /// Where the filters of a point and panel start: `[point][panel][c][columns]`.
    fn packed_at(&self, point: usize, panel: &Panel) -> usize {
        (point * self.packed_k + panel.start) * self.c
    }

    /// Transforms some filters of a panel.
    fn filters(&self, task: usize, io: &Io<'_>) {
        let panel = &self.panels[task / self.pieces];
        let width = panel.width.columns;
        // SAFETY: no task writes an input.
        let weight = unsafe { io.inputs[1].slice::<f32>() };
        let scale = match self.pass {
            // SAFETY: as above.
            Pass::Forward { scaled: true, .. } => Some(unsafe { io.inputs[3].slice::<f32>() }),
            _ => None,
        };
        let columns = panel.start..panel.start + panel.columns;
        let values = TAPS * TAPS;
        vectorized(
            #[inline(always)]
            || {
                for channel in share(self.c, self.pieces, task % self.pieces) {
                    for first in (0..width).step_by(LANES) {
                        let mut taps = [[0.0; LANES]; TAPS * TAPS];
                        for (lane, column) in columns.clone().skip(first).take(LANES).enumerate() {
                            let (at, turned) = match self.pass {
                                Pass::Forward { .. } => (column * self.c + channel, false),
                                Pass::InputGrad => (channel * self.k + column, true),
                            };
                            let from = &weight[at * values..][..values];
                            let scale = scale.map_or(1.0, |s| s[column]);
                            for (i, tap) in taps.iter_mut().enumerate() {
                                tap[lane] = scale * from[if turned { values - 1 - i } else { i }];
                            }
                        }
                        let lanes = LANES.min(width - first);
                        for (point, values) in transform::filter(&taps).iter().enumerate() {
                            let at = self.packed_at(point, panel) + channel * width + first;
                            // SAFETY: each task has its own channels of its own panel.
                            let to = unsafe { io.workspace.slice_mut::<f32>(at..at + lanes) };
                            to.copy_from_slice(&values[..lanes]);
                        }
                    }
                }
            },
        );
    }

    fn multiply(&self, task: usize, io: &Io<'_>) {
        let tiles = share(self.n * self.tiles[0] * self.tiles[1], self.blocks, task / self.panel_blocks);
        let chosen = share(self.panels.len(), self.panel_blocks, task % self.panel_blocks);
        self.images(tiles.clone(), io);
        let images = io.scratch.ptr::<f32>();
        let sums = POINTS * self.block * self.c;
        for index in chosen {
            let panel = &self.panels[index];
            let width = panel.width.columns;
            for point in 0..POINTS {
                let product = Product {
                    a: images.wrapping_add(point * self.block * self.c),
                    a_rows: std::ptr::null(),
                    a_segments: START.as_ptr(),
                    a_step: 1,
                    segments: 1,
                    length: self.c,
                    b: io.workspace.ptr::<f32>().wrapping_add(self.packed_at(point, panel)),
                    b_segments: START.as_ptr(),
                    b_step: width,
                    c: images.wrapping_add(sums + point * self.block * width),
                    c_rows: std::ptr::null(),
                    columns: 0,
                    start: Start::Zero,
                    relu: false,
                };
                // SAFETY: tiles and sums lie in this thread's scratch, filters in the workspace, which nobody
                // writes in this phase.
                unsafe { panel.rows(product, &self.a_rows[..tiles.len()], &self.c_rows[index][..tiles.len()]) };
            }
            self.pixels(tiles.clone(), panel, io);
        }
    }

    /// Which image a tile is of, and its first output row and column.
    fn place(&self, tile: usize) -> (usize, [usize; 2]) {
        let [down, across] = self.tiles;
        (tile / across / down, [tile / across % down * OUT, tile % across * OUT])
    }

    /// Transforms a block's image tiles: `[point][tile][c]` at the start of the scratch.
    fn images(&self, tiles: Range<usize>, io: &Io<'_>) {
        let ([h, w], c) = (self.size, self.c);
        // SAFETY: no task writes an input; scratch belongs to this thread.
        let (x, to) = unsafe { (io.inputs[0].slice::<f32>(), io.scratch.slice_mut::<f32>(0..POINTS * self.block * c)) };
        vectorized(
            #[inline(always)]
            || {
                for (i, (image, [top, left])) in tiles.map(|tile| self.place(tile)).enumerate() {
                    for first in (0..c).step_by(LANES) {
                        let lanes = LANES.min(c - first);
                        let mut tile: Tile = [[0.0; LANES]; POINTS];
                        for (point, values) in tile.iter_mut().enumerate() {
                            // Above and to the left of the image lies padding, where the difference wraps around.
                            let row = (top + point / SIDE).wrapping_sub(self.padding[0]);
                            let column = (left + point % SIDE).wrapping_sub(self.padding[1]);
                            if row < h && column < w {
                                let at = ((image * h + row) * w + column) * c + first;
                                values[..lanes].copy_from_slice(&x[at..at + lanes]);
                            }
                        }
                        transform::image(&mut tile);
                        for (point, values) in tile.iter().enumerate() {
                            let at = (point * self.block + i) * c + first;
                            to[at..at + lanes].copy_from_slice(&values[..lanes]);
                        }
                    }
                }
            },
        );
    }

    /// Transforms a block's sums for one panel back, and writes the pixels.
    fn pixels(&self, tiles: Range<usize>, panel: &Panel, io: &Io<'_>) {
        let ([oh, ow], width) = (self.out, panel.width.columns);
        let sums = POINTS * self.block * self.c;
        // SAFETY: scratch belongs to this thread.
        let from = unsafe { io.scratch.slice_mut::<f32>(sums..sums + POINTS * self.block * width) };
        let (bias, activation) = match self.pass {
            Pass::Forward { bias, activation, .. } => (bias, activation),
            Pass::InputGrad => (false, Activation::None),
        };
        // SAFETY: no task writes an input.
        let bias = bias.then(|| unsafe { io.inputs[2].slice::<f32>() });
        vectorized(
            #[inline(always)]
            || {
                for (i, (image, [top, left])) in tiles.map(|tile| self.place(tile)).enumerate() {
                    for first in (0..panel.columns).step_by(LANES) {
                        let lanes = LANES.min(panel.columns - first);
                        let mut tile: Tile = [[0.0; LANES]; POINTS];
                        for (point, values) in tile.iter_mut().enumerate() {
                            let at = (point * self.block + i) * width + first;
                            values[..lanes].copy_from_slice(&from[at..at + lanes]);
                        }
                        let column = panel.start + first;
                        for (at, mut values) in transform::pixels(&tile).into_iter().enumerate() {
                            let (row, pixel) = (top + at / OUT, left + at % OUT);
                            if row >= oh || pixel >= ow {
                                continue;
                            }
                            if let Some(bias) = bias {
                                values.iter_mut().zip(&bias[column..]).for_each(|(v, b)| *v += b);
                            }
                            values.iter_mut().for_each(|v| *v = activation.apply(*v));
                            let at = ((image * oh + row) * ow + pixel) * self.k + column;
                            // SAFETY: these columns of this tile's pixels belong to this task.
                            let y = unsafe { io.outputs[0].slice_mut::<f32>(at..at + lanes) };
                            y.copy_from_slice(&values[..lanes]);
                        }
                    }
                }
            },
        );
    }
}
