//! Forward with a convolution of a band of rows at a time, by matrix products or in Winograd's way.

use super::copies::Copies;
use super::winograd::{self, Tiles};
use super::{Geometry, LANES, NEAR, NOWHERE, Options, greatest, pooled};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, Kernel, Prepared, Strand, Strands, share};
use crate::cpu::simd::vectorized;
use crate::ops::conv2d::cpu::Band;
use crate::ops::max_pool2d::cpu::pool;
use crate::ops::permute::cpu::separate;
use crate::ops::pool::Pool;

/// See [`forward`](super::forward).
pub(super) struct Product {
    g: Geometry,
    way: Way,
    /// Rows of windows that are convolved at a time.
    rows: usize,
    tasks: usize,
    options: Options,
}

/// How a band is convolved.
enum Way {
    Plain(Box<Band>),
    Winograd(Tiles, Copies),
}

impl Product {
    /// In Winograd's way if that is `fast`er, and possible.
    pub fn new(g: Geometry, options: Options, fast: bool) -> Option<Self> {
        let [down, _] = pooled(&g);
        let rows = (NEAR / (2 * g.ow() * g.k * size_of::<f32>()).max(1)).clamp(1, down);
        let band = Band::new(g, options.bias, options.scaled, Activation::Relu, 2 * rows)?;
        let plain = task_count(g.flops() as usize).min(g.n * down);
        let (way, tasks) = match Tiles::possible(&g, options.scaled, rows).filter(|_| fast) {
            Some(tiles) => {
                let tasks = winograd::tasks(&g);
                let filters = Copies::new(tiles.workspace(), tasks);
                (Way::Winograd(tiles, filters), tasks)
            }
            None => (Way::Plain(Box::new(band)), plain),
        };
        Some(Product { g, way, rows, tasks, options })
    }

    /// Floats of a band; of its pooled rows, where they are not written in this order; and places of these.
    fn floats(&self) -> [usize; 3] {
        let across = pooled(&self.g)[1];
        let band = match &self.way {
            Way::Plain(_) => 2 * self.g.ow() * self.g.k,
            Way::Winograd(tiles, _) => across * 4 * tiles.filters_wide(),
        };
        let windows = self.rows * across * self.g.k;
        [self.rows * band, if self.options.to_rows { windows } else { 0 }, windows]
    }

    fn windows(&self, image: usize, rows: std::ops::Range<usize>, io: &Io<'_>) {
        let g = &self.g;
        let [down, across] = pooled(g);
        let [floats, results, places] = self.floats();
        let at = self.before() / size_of::<f32>();
        // SAFETY: scratch belongs to this thread, and the band's own part ends before.
        let band = unsafe { io.scratch.slice_mut::<f32>(at..at + floats) };
        let windows = rows.len() * across;
        let first = (image * down + rows.start) * across * g.k;
        let own = first..first + windows * g.k;
        let y = if self.options.to_rows {
            // SAFETY: scratch belongs to this thread, and the band ends before.
            unsafe { io.scratch.slice_mut::<f32>(at + floats..at + floats + windows * g.k) }
        } else {
            // SAFETY: these rows belong to this task.
            unsafe { io.outputs[0].slice_mut::<f32>(own.clone()) }
        };
        let places = if self.options.places {
            // SAFETY: these rows belong to this task.
            unsafe { io.outputs[1].slice_mut::<u8>(own) }
        } else {
            let at = (at + floats + results) * size_of::<f32>();
            // SAFETY: scratch belongs to this thread, and the band and its results end before.
            unsafe { io.scratch.slice_mut::<u8>(at..at + places) }
        };
        match &self.way {
            Way::Plain(plain) => {
                plain.rows(image, 2 * rows.start..2 * rows.end, band, io);
                self.pool(rows.len(), band, y, places);
            }
            Way::Winograd(tiles, _) => {
                tiles.rows(image, rows.clone(), band, io);
                vectorized(
                    #[inline(always)]
                    || self.pool_windows(tiles.filters_wide(), band, y, places, io),
                );
            }
        }
        if self.options.to_rows {
            let (first, step) = (image * g.k * down + rows.start, down * across);
            let planes = io.outputs[0].part::<f32>(first * across, (g.k - 1) * step + windows);
            // SAFETY: these rows belong to this task.
            unsafe { separate(y, g.k, planes, step) };
        }
    }

    /// Bytes of scratch before a band: what its convolution needs.
    fn before(&self) -> usize {
        match &self.way {
            Way::Plain(band) => band.scratch(),
            Way::Winograd(tiles, _) => tiles.scratch(),
        }
    }

    /// Pools rows of pixels after a relu.
    fn pool(&self, rows: usize, band: &[f32], y: &mut [f32], places: &mut [u8]) {
        let (c, w) = (self.g.k, self.g.ow());
        let (kernel, stride) = ([2, 2], [2, 2]);
        let geometry = Pool { n: 1, c, h: 2 * rows, w, kernel, stride, padding: [0, 0], ceil_mode: false };
        pool(&geometry, 0..rows, band, y, places);
        if self.options.places {
            vectorized(
                #[inline(always)]
                || {
                    for (place, y) in places.iter_mut().zip(&*y) {
                        *place = if *y > 0.0 { *place } else { NOWHERE };
                    }
                },
            );
        }
    }

    /// Pools windows whose elements lie one after the other, `wide` floats each.
    #[inline(always)]
    fn pool_windows(&self, wide: usize, band: &[f32], y: &mut [f32], places: &mut [u8], io: &Io<'_>) {
        let k = self.g.k;
        for first in (0..k).step_by(LANES) {
            let count = LANES.min(k - first);
            let mut bias = [0f32; LANES];
            if self.options.bias {
                // SAFETY: nobody writes an input.
                bias[..count].copy_from_slice(unsafe { &io.inputs[2].slice::<f32>()[first..][..count] });
            }
            let windows = band.chunks_exact(4 * wide).zip(y.chunks_exact_mut(k).zip(places.chunks_exact_mut(k)));
            for (window, (y, places)) in windows {
                let mut cells = [[0f32; LANES]; 4];
                for (j, cell) in cells.iter_mut().enumerate() {
                    cell.copy_from_slice(&window[j * wide + first..][..LANES]);
                }
                let (value, place) = greatest::<true>(&cells, &bias);
                match (y[first..].first_chunk_mut::<LANES>(), places[first..].first_chunk_mut::<LANES>()) {
                    (Some(y), Some(places)) => (*y, *places) = (value, place),
                    _ => {
                        y[first..].copy_from_slice(&value[..count]);
                        places[first..].copy_from_slice(&place[..count]);
                    }
                }
            }
        }
    }
}

impl Kernel for Product {
    fn phases(&self) -> Vec<usize> {
        let packs = match &self.way {
            _ if self.tasks == 0 => 0,
            Way::Plain(band) => band.packs(),
            Way::Winograd(tiles, filters) => filters.count() * tiles.packs(),
        };
        vec![packs, if self.g.k == 0 { 0 } else { self.tasks }]
    }

    fn workspace(&self) -> usize {
        match &self.way {
            Way::Plain(band) => band.workspace(),
            Way::Winograd(_, filters) => filters.bytes(),
        }
    }

    fn prepared(&self) -> Option<Prepared> {
        match &self.way {
            Way::Plain(band) => band.prepared(),
            Way::Winograd(tiles, _) => Some(tiles.prepared()),
        }
    }

    fn strands(&self) -> Option<Strands> {
        let packs = match &self.way {
            Way::Plain(_) => Strand::NONE,
            Way::Winograd(_, filters) => Strand::of(filters.count()),
        };
        let phases = vec![packs, Strand::sharing(self.g.n, self.tasks)];
        Some(Strands { phases, inputs: vec![0], outputs: self.options.outputs() })
    }

    fn scratch(&self) -> usize {
        let [floats, results, places] = self.floats();
        self.before() + (floats + results) * size_of::<f32>() + places
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            return match &self.way {
                Way::Plain(band) => band.pack(task, io),
                Way::Winograd(tiles, filters) => {
                    tiles.pack(task % tiles.packs(), &filters.io(task / tiles.packs(), io))
                }
            };
        }
        let io = match &self.way {
            Way::Plain(_) => io,
            Way::Winograd(_, filters) => &filters.io(filters.of(task, self.tasks), io),
        };
        let down = pooled(&self.g)[0];
        let rows = share(self.g.n * down, self.tasks, task);
        let mut row = rows.start;
        while row < rows.end {
            let (image, first) = (row / down, row % down);
            let count = self.rows.min(down - first).min(rows.end - row);
            self.windows(image, first..first + count, io);
            row += count;
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
