//! Filters in a register's lanes.

use super::filters::Block;
use super::micro::{Apart, Deal, Lines, WIDEST, loops};
use super::{Geometry, POINTS, SIDE, pooled, possible};
use crate::cpu::kernel::{Io, Prepared, share};
use std::ops::Range;

/// Tasks that transform filters, about.
const PACKS: usize = 8;

/// The elements of windows, a few rows of them at a time, from images `[n, h, w, c]`.
pub(in super::super) struct Tiles {
    g: Geometry,
    scaled: bool,
    /// Rows of windows at most.
    rows: usize,
    /// Floats of a row's windows, `[window][channel]`, with those that fill the last register.
    wide: usize,
    /// Floats of a row's even or odd columns.
    deck: usize,
}

impl Tiles {
    /// Up to so many rows of windows at a time, where this way is possible.
    pub fn possible(g: &Geometry, scaled: bool, rows: usize) -> Option<Self> {
        let wide = (pooled(g)[1] * g.c).next_multiple_of(WIDEST);
        // The last pixel is written as a whole register.
        let deck = (wide + 2 * g.c).max(g.padded_w().div_ceil(2) * g.c + WIDEST).next_multiple_of(WIDEST);
        possible(g).then_some(Tiles { g: *g, scaled, rows, wide, deck })
    }

    /// Registers of filters.
    fn blocks(&self) -> usize {
        self.g.k.div_ceil(loops().lanes)
    }

    /// Pieces of the channels, whose filters are transformed by a task each.
    fn pieces(&self) -> usize {
        (PACKS / self.blocks()).clamp(1, self.g.c.div_ceil(3))
    }

    /// Floats of an element: a whole number of the widest registers, on every machine.
    pub fn filters_wide(&self) -> usize {
        self.g.k.next_multiple_of(WIDEST)
    }

    /// Tasks that transform the filters.
    pub fn packs(&self) -> usize {
        self.blocks() * self.pieces()
    }

    /// The transformed filters.
    pub fn prepared(&self) -> Prepared {
        let form = ("5×5 filters transformed", vec![self.g.k, self.g.c, usize::from(self.scaled)]);
        Prepared { inputs: if self.scaled { vec![1, 3] } else { vec![1] }, form }
    }

    /// Bytes for transformed filters.
    pub fn workspace(&self) -> usize {
        Block::floats(&self.g, self.blocks() * loops().lanes) * size_of::<f32>()
    }

    /// Floats of dealt rows, of rows transformed along, of a row of windows transformed down, and of what is halfway done.
    fn floats(&self) -> [usize; 4] {
        let rows = self.g.rows_under(2 * self.rows);
        let half = loops().apart.len() * 2 * SIDE * WIDEST;
        [rows * 2 * self.deck, rows * SIDE * self.wide, POINTS * self.wide, half]
    }

    /// Bytes at the start of scratch that rows need, and filters.
    pub fn scratch(&self) -> usize {
        let filters = Block::scratch(self.g.c.div_ceil(self.pieces()));
        (self.floats().iter().sum::<usize>() * size_of::<f32>()).max(filters)
    }

    /// Transforms some channels of a register's filters into the workspace.
    pub fn pack(&self, task: usize, io: &Io<'_>) {
        let (g, lanes) = (&self.g, loops().lanes);
        let (block, piece) = (task / self.pieces(), task % self.pieces());
        let first = block * lanes;
        let some = Block {
            filters: first..g.k.min(first + lanes),
            channels: share(g.c, self.pieces(), piece),
            scaled: self.scaled,
        };
        // SAFETY: these channels of these filters belong to this task; the workspace has room for all.
        unsafe { some.pack(g, Block::floats(g, first), io) };
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

    /// The elements of some rows of windows: `[window][element][filter]`.
    pub fn rows(&self, image: usize, rows: Range<usize>, out: &mut [f32], io: &Io<'_>) {
        let g = &self.g;
        let [down, across] = pooled(g);
        let window = 4 * self.filters_wide();
        assert!(rows.len() <= self.rows && rows.end <= down && image < g.n);
        assert!(!rows.is_empty() && out.len() >= rows.len() * across * window);
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
        let lines = Lines {
            from: dealt.as_ptr(),
            values: [0, 1, 2, 3, 4, 5].map(|column| column % 2 * self.deck + column / 2 * g.c),
            to: along.as_mut_ptr(),
            step: self.wide,
            count: self.wide,
            lines: [(1, [0; 2]), (looked, [2 * self.deck, line])],
        };
        // SAFETY: decks are as long as the last register reaches, and there are as many rows of both.
        unsafe { (loops().lines)(&lines) };
        for (row, out) in out.chunks_exact_mut(across * window).take(rows.len()).enumerate() {
            let lines = Lines {
                from: along[2 * row * line..][..SIDE * line].as_ptr(),
                values: [0, 1, 2, 3, 4, 5].map(|row| row * line),
                to: points.as_mut_ptr(),
                step: self.wide,
                count: self.wide,
                lines: [(1, [0; 2]), (SIDE, [self.wide, line])],
            };
            // SAFETY: six rows from there are transformed, and points have room for their six times six lines.
            unsafe { (loops().lines)(&lines) };
            let parts = across.div_ceil(loops().apart.len());
            for part in 0..parts {
                let windows = share(across, parts, part);
                self.windows(windows.clone(), points, half, &mut out[windows.start * window..], io);
            }
        }
    }

    /// The elements of some windows of a row.
    fn windows(&self, windows: Range<usize>, points: &[f32], half: &mut [f32], out: &mut [f32], io: &Io<'_>) {
        let g = &self.g;
        // SAFETY: filters were transformed in the earlier phase.
        let packed = unsafe { io.workspace.slice::<f32>() };
        let of_block = Block::floats(g, loops().lanes);
        for block in 0..self.blocks() {
            let some = Apart {
                x: points[windows.start * g.c..].as_ptr(),
                steps: [self.wide, g.c],
                channels: g.c,
                filters: packed[block * of_block..][..of_block].as_ptr(),
                out: out[block * loops().lanes..].as_mut_ptr(),
                wide: self.filters_wide(),
                half: half.as_mut_ptr(),
            };
            // SAFETY: points hold all windows of a row, `out` all their elements, and half as many windows as there are
            // loops for.
            unsafe { (loops().apart[windows.len() - 1])(&some) };
        }
    }
}
