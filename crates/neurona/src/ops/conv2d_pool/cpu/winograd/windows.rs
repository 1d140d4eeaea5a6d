//! Neighbouring windows in a register's lanes, for few filters.

use super::filters::Block;
use super::micro::{Abreast, Lines, WIDEST, loops};
use super::{Geometry, SIDE, possible, rows};
use crate::cpu::kernel::{Io, Prepared, share};

/// The elements of windows, from rows that are dealt out to two decks.
pub(in super::super) struct Windows {
    g: Geometry,
    /// Windows of a row with those that fill the last register.
    wide: usize,
    rows: usize,
}

impl Windows {
    /// Windows `wide` at a time, where this way is possible.
    pub fn possible(g: &Geometry, wide: usize) -> Option<Self> {
        let line = SIDE * g.c * wide;
        possible(g).then(|| Windows { g: *g, wide, rows: rows(g, line) })
    }

    /// Rows of windows at most that are computed from rows transformed at once.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Floats from row to row of transformed ones, `[row][point][channel][window]`.
    fn line(&self) -> usize {
        SIDE * self.g.c * self.wide
    }

    /// Floats of transformed rows, and of what is halfway done.
    fn floats(&self) -> [usize; 2] {
        [self.g.rows_under(2 * self.rows) * self.line(), loops().abreast.len() * 2 * SIDE * WIDEST]
    }

    /// Floats of scratch for rows, and bytes for filters.
    pub fn scratch(&self) -> (usize, usize) {
        (self.floats().iter().sum(), Block::scratch(self.g.c))
    }

    /// Bytes for transformed filters.
    pub fn workspace(&self) -> usize {
        Block::floats(&self.g, self.g.k) * size_of::<f32>()
    }

    /// The transformed filters.
    pub fn prepared(&self) -> Prepared {
        Prepared { inputs: vec![1], form: ("5×5 filters transformed in blocks", vec![self.g.k, self.g.c]) }
    }

    /// Filters that are computed at a time.
    fn blocks(&self) -> usize {
        self.g.k.div_ceil(loops().abreast.len())
    }

    /// Transforms all filters, block after block, into the workspace.
    pub fn pack(&self, io: &Io<'_>) {
        let g = &self.g;
        for block in 0..self.blocks() {
            let filters = share(g.k, self.blocks(), block);
            let (at, width) = (Block::floats(g, filters.start), filters.len());
            // SAFETY: the only task of its phase; the workspace has room for all filters.
            unsafe { Block { filters, channels: 0..g.c, width, scaled: false }.pack(g, at, io) };
        }
    }

    /// Transforms `count` rows along: their two decks of `deck` floats lie side by side, `steps` are from row to row and
    /// from channel to channel.
    pub fn transform(&self, count: usize, dealt: &[f32], deck: usize, steps: [usize; 2], scratch: &mut [f32]) {
        let (c, line) = (self.g.c, self.line());
        assert!(deck >= self.wide + 2 && dealt.len() >= (c - 1) * steps[1] + (count - 1) * steps[0] + 2 * deck);
        assert!(scratch.len() >= count * line);
        let lines = Lines {
            from: dealt.as_ptr(),
            values: [0, 1, 2, 3, 4, 5].map(|column| column % 2 * deck + column / 2),
            to: scratch.as_mut_ptr(),
            step: c * self.wide,
            count: self.wide,
            lines: [(count, [steps[0], line]), (c, [steps[1], self.wide])],
        };
        // SAFETY: decks are as long as the last register reaches, and all lines are there, by the checks above.
        unsafe { (loops().lines)(&lines) };
    }

    /// The elements of a row of windows, counted in those transformed at once: for each filter and each of a window's four
    /// elements, all windows side by side.
    pub fn convolve(&self, row: usize, scratch: &mut [f32], io: &Io<'_>, out: &mut [f32]) {
        let g = &self.g;
        // SAFETY: filters were transformed in the earlier phase.
        let packed = unsafe { io.workspace.slice::<f32>() };
        let (transformed, half) = scratch.split_at_mut(self.floats()[0]);
        assert!(row < self.rows && half.len() >= self.floats()[1] && out.len() >= 4 * g.k * self.wide);
        for block in 0..self.blocks() {
            let filters = share(g.k, self.blocks(), block);
            let own = &packed[Block::floats(g, filters.start)..Block::floats(g, filters.end)];
            for window in (0..self.wide).step_by(loops().lanes) {
                let some = Abreast {
                    x: transformed[2 * row * self.line() + window..].as_ptr(),
                    steps: [self.line(), g.c * self.wide, self.wide],
                    channels: g.c,
                    filters: own.as_ptr(),
                    out: out[filters.start * 4 * self.wide + window..].as_mut_ptr(),
                    wide: self.wide,
                    half: half.as_mut_ptr(),
                };
                // SAFETY: six rows from there are transformed; sizes are checked above.
                unsafe { (loops().abreast[filters.len() - 1])(&some) };
            }
        }
    }
}
