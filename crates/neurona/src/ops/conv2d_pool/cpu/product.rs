//! Forward with a convolution of a band of rows at a time, by matrix products or in Winograd's way.

use super::winograd::{self, Tiles};
use super::{Geometry, NEAR, NOWHERE, Options, pooled};
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Io, Kernel, Prepared, share};
use crate::cpu::simd::vectorized;
use crate::ops::conv2d::cpu::Band;
use crate::ops::max_pool2d::cpu::pool;
use crate::ops::pool::Pool;

/// See [`forward`](super::forward).
pub(super) struct Product {
    g: Geometry,
    band: Way,
    /// Rows of windows that are convolved at a time.
    rows: usize,
    tasks: usize,
    places: bool,
    to_rows: bool,
}

/// How a band is convolved.
enum Way {
    Plain(Band),
    Winograd(Tiles),
}

impl Way {
    /// Tasks that pack the weights.
    fn packs(&self) -> usize {
        match self {
            Way::Plain(band) => band.packs(),
            Way::Winograd(tiles) => tiles.packs(),
        }
    }

    /// Bytes at the start of scratch.
    fn scratch(&self) -> usize {
        match self {
            Way::Plain(band) => band.scratch(),
            Way::Winograd(tiles) => tiles.scratch(),
        }
    }

    /// Two rows of pixels for each row of windows.
    fn rows(&self, image: usize, rows: std::ops::Range<usize>, y: &mut [f32], io: &Io<'_>) {
        match self {
            Way::Plain(band) => band.rows(image, 2 * rows.start..2 * rows.end, y, io),
            Way::Winograd(tiles) => tiles.rows(image, rows, y, io),
        }
    }
}

impl Product {
    /// In Winograd's way if that is `fast`er, and possible.
    pub fn new(g: Geometry, options: Options, fast: bool) -> Option<Self> {
        let [down, _] = pooled(&g);
        let rows = (NEAR / (2 * g.ow() * g.k * size_of::<f32>()).max(1)).clamp(1, down);
        let band = Band::new(g, options.bias, options.scaled, Activation::Relu, 2 * rows)?;
        let plain = task_count(g.flops() as usize).min(g.n * down);
        let (band, tasks) = match Tiles::possible(&g, options.bias, options.scaled, rows).filter(|_| fast) {
            Some(tiles) => (Way::Winograd(tiles), winograd::tasks(&g)),
            None => (Way::Plain(band), plain),
        };
        Some(Product { g, band, rows, tasks, places: options.places, to_rows: options.to_rows })
    }

    /// Floats of a band; of its pooled rows, where they are not written in this order; and places of these.
    fn floats(&self) -> [usize; 3] {
        let line = self.g.ow() * self.g.k;
        let windows = self.rows * pooled(&self.g)[1] * self.g.k;
        [2 * self.rows * line, if self.to_rows { windows } else { 0 }, windows]
    }

    fn windows(&self, image: usize, rows: std::ops::Range<usize>, io: &Io<'_>) {
        let g = &self.g;
        let [down, across] = pooled(g);
        let [floats, results, places] = self.floats();
        let at = self.band.scratch() / size_of::<f32>();
        // SAFETY: scratch belongs to this thread, and the band's own part ends before.
        let band = unsafe { io.scratch.slice_mut::<f32>(at..at + floats) };
        self.band.rows(image, rows.clone(), band, io);
        let windows = rows.len() * across;
        let first = (image * down + rows.start) * across * g.k;
        let own = first..first + windows * g.k;
        let y = if self.to_rows {
            // SAFETY: scratch belongs to this thread, and the band ends before.
            unsafe { io.scratch.slice_mut::<f32>(at + floats..at + floats + windows * g.k) }
        } else {
            // SAFETY: these rows belong to this task.
            unsafe { io.outputs[0].slice_mut::<f32>(own.clone()) }
        };
        let places = if self.places {
            // SAFETY: these rows belong to this task.
            unsafe { io.outputs[1].slice_mut::<u8>(own) }
        } else {
            let at = (at + floats + results) * size_of::<f32>();
            // SAFETY: scratch belongs to this thread, and the band and its results end before.
            unsafe { io.scratch.slice_mut::<u8>(at..at + places) }
        };
        let geometry = Pool {
            n: 1,
            c: g.k,
            h: 2 * rows.len(),
            w: g.ow(),
            kernel: [2, 2],
            stride: [2, 2],
            padding: [0, 0],
            ceil_mode: false,
        };
        pool(&geometry, 0..rows.len(), band, y, places);
        if self.places {
            vectorized(
                #[inline(always)]
                || {
                    for (place, y) in places.iter_mut().zip(&*y) {
                        *place = if *y > 0.0 { *place } else { NOWHERE };
                    }
                },
            );
        }
        if self.to_rows {
            for k in 0..g.k {
                let at = ((image * g.k + k) * down + rows.start) * across;
                // SAFETY: these rows belong to this task.
                let out = unsafe { io.outputs[0].slice_mut::<f32>(at..at + windows) };
                out.iter_mut().zip(y[k..].iter().step_by(g.k)).for_each(|(out, y)| *out = *y);
            }
        }
    }
}

impl Kernel for Product {
    fn phases(&self) -> Vec<usize> {
        let packs = if self.tasks == 0 { 0 } else { self.band.packs() };
        vec![packs, if self.g.k == 0 { 0 } else { self.tasks }]
    }

    fn workspace(&self) -> usize {
        match &self.band {
            Way::Plain(band) => band.workspace(),
            Way::Winograd(tiles) => tiles.workspace(),
        }
    }

    fn prepared(&self) -> Option<Prepared> {
        match &self.band {
            Way::Plain(band) => band.prepared(),
            Way::Winograd(tiles) => Some(tiles.prepared()),
        }
    }

    fn scratch(&self) -> usize {
        let [floats, results, places] = self.floats();
        self.band.scratch() + (floats + results) * size_of::<f32>() + places
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            return match &self.band {
                Way::Plain(band) => band.pack(task, io),
                Way::Winograd(tiles) => tiles.pack(task, io),
            };
        }
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
