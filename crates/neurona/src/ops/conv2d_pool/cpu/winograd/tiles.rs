//! Filters in a register's lanes.

use super::micro::{Apart, Deal, Filters, Line, WIDEST, loops};
use super::{Geometry, PART, POINTS, SIDE, pooled, possible};
use crate::cpu::kernel::{Io, Prepared, share};
use std::ops::Range;

/// Tasks that transform filters, at most.
const PACKS: usize = 8;

/// A convolution with relu, a few rows at a time, in images `[n, h, w, c]`.
pub(in super::super) struct Tiles {
    g: Geometry,
    bias: bool,
    scaled: bool,
    /// Rows of windows at most.
    rows: usize,
    /// Floats of a row's windows, `[window][channel]`, with those that fill the last register.
    wide: usize,
    /// Floats of a row's even or odd columns.
    deck: usize,
}

impl Tiles {
    /// Bands of up to so many rows of windows, where this way is possible.
    pub fn possible(g: &Geometry, bias: bool, scaled: bool, rows: usize) -> Option<Self> {
        let wide = (pooled(g)[1] * g.c).next_multiple_of(WIDEST);
        // The last pixel is written as a whole register.
        let deck = (wide + 2 * g.c).max(g.padded_w().div_ceil(2) * g.c + WIDEST).next_multiple_of(WIDEST);
        possible(g).then(|| Tiles { g: *g, bias, scaled, rows, wide, deck })
    }

    /// Registers of filters.
    fn blocks(&self) -> usize {
        self.g.k.div_ceil(loops().lanes)
    }

    /// Floats of a register's filters for one channel.
    fn filters(&self) -> usize {
        POINTS * loops().lanes
    }

    /// Tasks that transform the filters.
    pub fn packs(&self) -> usize {
        (self.blocks() * self.g.c).min(PACKS)
    }

    /// The transformed filters.
    pub fn prepared(&self) -> Prepared {
        let form = ("5×5 filters transformed", vec![self.g.k, self.g.c, usize::from(self.scaled)]);
        Prepared { inputs: if self.scaled { vec![1, 3] } else { vec![1] }, form }
    }

    /// Bytes for transformed filters.
    pub fn workspace(&self) -> usize {
        self.blocks() * self.g.c * self.filters() * size_of::<f32>()
    }

    /// Floats of dealt rows, of rows transformed along, of a row of windows transformed down, and of what is halfway done.
    fn floats(&self) -> [usize; 4] {
        let rows = self.g.rows_under(2 * self.rows);
        let half = loops().apart.len() * 2 * SIDE * WIDEST;
        [rows * 2 * self.deck, rows * SIDE * self.wide, POINTS * self.wide, half]
    }

    /// Bytes at the start of scratch that a band needs.
    pub fn scratch(&self) -> usize {
        self.floats().iter().sum::<usize>() * size_of::<f32>()
    }

    /// Transforms some filters: `[register][point along][part][channel][3][filter]` in the workspace.
    pub fn pack(&self, task: usize, io: &Io<'_>) {
        let (g, lanes) = (&self.g, loops().lanes);
        // SAFETY: nobody writes an input.
        let weight = unsafe { io.inputs[1].slice::<f32>() };
        let taps = g.r * g.s;
        assert!(weight.len() >= g.k * g.c * taps);
        for pair in share(self.blocks() * g.c, self.packs(), task) {
            let (block, channel) = (pair / g.c, pair % g.c);
            let count = lanes.min(g.k - block * lanes);
            let mut some = Filters {
                taps: weight[(block * lanes * g.c + channel) * taps..].as_ptr(),
                step: g.c * taps,
                count,
                points: [[0.0; WIDEST]; POINTS],
            };
            // SAFETY: there are so many filters.
            unsafe { (loops().filters)(&mut some) };
            let mut scale = [1f32; WIDEST];
            if self.scaled {
                // SAFETY: nobody writes an input.
                let from = unsafe { &io.inputs[3].slice::<f32>()[block * lanes..][..count] };
                scale[..count].copy_from_slice(from);
            }
            for (i, points) in some.points.iter().enumerate() {
                let at = block * g.c * self.filters() + ((i / PART * g.c + channel) * PART + i % PART) * lanes;
                // SAFETY: this channel's values of these filters belong to this task.
                let to = unsafe { io.workspace.slice_mut::<f32>(at..at + lanes) };
                to.iter_mut().zip(points.iter().zip(&scale)).for_each(|(to, (point, scale))| *to = point * scale);
            }
        }
    }

    /// Deals out rows of an image, counted from the top of its padding, to even and odd columns.
    fn deal(&self, image: usize, rows: Range<usize>, dealt: &mut [f32], x: &[f32]) {
        let g = &self.g;
        let [top, left] = g.padding;
        let image = &x[image * g.h * g.w * g.c..][..g.h * g.w * g.c];
        for (row, dealt) in rows.zip(dealt.chunks_exact_mut(2 * self.deck)) {
            if g.padded() {
                dealt.fill(0.0);
            }
            let Some(y) = row.checked_sub(top).filter(|y| *y < g.h) else { continue };
            let deck = |column: usize| column % 2 * self.deck + column / 2 * g.c;
            let to = [left, left + 1].map(|column| dealt[deck(column)..].as_mut_ptr());
            let all = Deal { from: image[y * g.w * g.c..].as_ptr(), pixels: g.w, channels: g.c, to };
            // SAFETY: the row lies in the image; decks hold a padded row, and a register behind it.
            unsafe { (loops().deal)(&all) };
        }
    }

    /// Two rows of elements for each row of windows, pixel after pixel with all filters; only those in windows.
    pub fn rows(&self, image: usize, rows: Range<usize>, y: &mut [f32], io: &Io<'_>) {
        let g = &self.g;
        let across = pooled(g)[1];
        assert!(rows.len() <= self.rows && rows.end <= pooled(g)[0] && image < g.n);
        assert!(y.len() >= 2 * rows.len() * g.ow() * g.k);
        let floats = self.floats();
        // SAFETY: scratch belongs to this thread; nobody writes an input.
        let (scratch, x) =
            unsafe { (io.scratch.slice_mut::<f32>(0..floats.iter().sum()), io.inputs[0].slice::<f32>()) };
        let (dealt, scratch) = scratch.split_at_mut(floats[0]);
        let (along, scratch) = scratch.split_at_mut(floats[1]);
        let (points, half) = scratch.split_at_mut(floats[2]);
        let looked = g.rows_under(2 * rows.len());
        self.deal(image, 2 * rows.start..2 * rows.start + looked, dealt, x);
        let line = SIDE * self.wide;
        for (dealt, along) in dealt.chunks_exact(2 * self.deck).zip(along.chunks_exact_mut(line)).take(looked) {
            let from = [0, 1, 2, 3, 4, 5].map(|i| dealt[i % 2 * self.deck + i / 2 * g.c..].as_ptr());
            // SAFETY: decks are as long as the last register reaches.
            unsafe { (loops().line)(&Line { from, to: along.as_mut_ptr(), step: self.wide, count: self.wide }) };
        }
        for row in 0..rows.len() {
            for (i, points) in points.chunks_exact_mut(line).enumerate() {
                let from = [0, 1, 2, 3, 4, 5].map(|j| along[(2 * row + j) * line + i * self.wide..].as_ptr());
                // SAFETY: six rows from there are transformed.
                unsafe { (loops().line)(&Line { from, to: points.as_mut_ptr(), step: self.wide, count: self.wide }) };
            }
            let y = &mut y[2 * row * g.ow() * g.k..][..2 * g.ow() * g.k];
            let parts = across.div_ceil(loops().apart.len());
            for part in 0..parts {
                self.windows(share(across, parts, part), points, half, y, io);
            }
        }
    }

    /// The elements of some windows of a row.
    fn windows(&self, windows: Range<usize>, points: &[f32], half: &mut [f32], y: &mut [f32], io: &Io<'_>) {
        let (g, lanes) = (&self.g, loops().lanes);
        // SAFETY: filters were transformed in the earlier phase.
        let packed = unsafe { io.workspace.slice::<f32>() };
        let of_block = g.c * self.filters();
        for block in 0..self.blocks() {
            let first = block * lanes;
            let count = lanes.min(g.k - first);
            let mut bias = [0f32; WIDEST];
            if self.bias {
                // SAFETY: nobody writes an input.
                bias[..count].copy_from_slice(unsafe { &io.inputs[2].slice::<f32>()[first..][..count] });
            }
            let some = Apart {
                x: points[windows.start * g.c..].as_ptr(),
                steps: [self.wide, g.c],
                channels: g.c,
                filters: packed[block * of_block..][..of_block].as_ptr(),
                bias: bias.as_ptr(),
                out: y[2 * windows.start * g.k + first..].as_mut_ptr(),
                out_steps: [2 * g.k, g.ow() * g.k, g.k],
                count,
                half: half.as_mut_ptr(),
            };
            // SAFETY: points hold all windows of a row, `y` two rows, and half as many windows as there are loops for.
            unsafe { (loops().apart[windows.len() - 1])(&some) };
        }
    }
}
