//! Neighbouring columns in a register's lanes, for few filters: Winograd's way down the columns alone.
//!
//! Four rows of elements, the strip of two rows of windows, are made of eight rows of the image, with 8 products for each
//! column of a filter instead of 20. Along the rows nothing is transformed: few filters share what an image's transform costs,
//! and one way of it is half of two.

mod micro;

use super::{Geometry, TAPS};
use crate::cpu::kernel::{Io, Prepared, share};
use micro::{Columns, Down, POINTS, loops};

/// Rows of windows in a strip.
pub(in super::super) const ROWS: usize = 2;

/// Whether filters have five rows and no row is skipped.
pub(super) fn possible(g: &Geometry) -> bool {
    g.r == TAPS && g.stride == [1, 1] && g.dilation[0] == 1
}

/// The elements of windows, strip by strip.
pub(in super::super) struct Strips {
    g: Geometry,
    /// Windows of a row with those that fill the last register.
    wide: usize,
    /// Floats of an image's row.
    line: usize,
}

impl Strips {
    /// Windows `wide` at a time, from rows of `line` floats, where this way is possible.
    pub fn possible(g: &Geometry, wide: usize, line: usize) -> Option<Self> {
        possible(g).then_some(Strips { g: *g, wide, line })
    }

    /// Floats of scratch: transformed rows `[point][channel][column]`, and sums before they are transformed back.
    fn floats(&self) -> [usize; 2] {
        [POINTS * self.g.c * self.line, loops().half()]
    }

    pub fn scratch(&self) -> usize {
        self.floats().iter().sum()
    }

    /// Values of a block's filters at one point, for each of its filters.
    fn depth(&self) -> usize {
        self.g.c * self.g.s
    }

    /// Bytes for transformed filters.
    pub fn workspace(&self) -> usize {
        POINTS * self.depth() * self.g.k * size_of::<f32>()
    }

    /// The transformed filters.
    pub fn prepared(&self) -> Prepared {
        Prepared { inputs: vec![1], form: ("filters of 5 rows transformed down", vec![self.g.k, self.g.c, self.g.s]) }
    }

    /// Filters that are computed at a time.
    fn blocks(&self) -> usize {
        self.g.k.div_ceil(loops().columns.len())
    }

    /// Transforms all filters into the workspace: `[point][channel][column][filter]`, block after block.
    #[inline(always)]
    pub fn pack(&self, io: &Io<'_>) {
        let g = &self.g;
        // SAFETY: nobody writes an input; this is the only task of its phase, and the workspace has room for all filters.
        let (weight, packed) = unsafe {
            (io.inputs[1].slice::<f32>(), io.workspace.slice_mut::<f32>(0..self.workspace() / size_of::<f32>()))
        };
        let mut packed = packed;
        for block in 0..self.blocks() {
            let filters = share(g.k, self.blocks(), block);
            let width = filters.len();
            let (own, rest) = packed.split_at_mut(POINTS * self.depth() * width);
            packed = rest;
            for (i, filter) in filters.enumerate() {
                for c in 0..g.c {
                    let taps = &weight[(filter * g.c + c) * TAPS * g.s..][..TAPS * g.s];
                    micro::filter(taps, g.s, &mut own[c * g.s * width + i..], width, self.depth() * width);
                }
            }
        }
    }

    /// The elements of a strip, whose first row is this one of `dealt`: for each row of windows, each filter and each of a
    /// window's four elements, all windows side by side.
    pub fn convolve(
        &self,
        first: usize,
        dealt: &[f32],
        channel: usize,
        scratch: &mut [f32],
        io: &Io<'_>,
        out: &mut [f32],
    ) {
        let g = &self.g;
        // SAFETY: filters were transformed in the earlier phase.
        let packed = unsafe { io.workspace.slice::<f32>() };
        let [rows, half] = self.floats();
        let (transformed, half) = scratch[..rows + half].split_at_mut(rows);
        let reach = (g.s - 1) * g.dilation[1];
        assert!(self.line >= 2 * self.wide + reach && self.line.is_multiple_of(loops().lanes));
        assert!(dealt.len() >= (g.c - 1) * channel + (first + POINTS) * self.line);
        assert!(out.len() >= ROWS * 4 * g.k * self.wide);
        let down = Down {
            from: dealt[first * self.line..].as_ptr(),
            row: self.line,
            channels: (g.c, [channel, self.line]),
            to: transformed.as_mut_ptr(),
            point: g.c * self.line,
            count: self.line,
        };
        // SAFETY: eight rows of each channel lie there, and points have room for them, by the checks above.
        unsafe { (loops().down)(&down) };
        let mut filters = packed;
        for block in 0..self.blocks() {
            let own = share(g.k, self.blocks(), block);
            let floats = POINTS * self.depth() * own.len();
            for window in (0..self.wide).step_by(loops().lanes) {
                let some = Columns {
                    x: transformed[2 * window..].as_ptr(),
                    point: g.c * self.line,
                    channels: (g.c, self.line),
                    columns: (g.s, g.dilation[1]),
                    filters: filters[..floats].as_ptr(),
                    half: half.as_mut_ptr(),
                    out: out[own.start * 4 * self.wide + window..].as_mut_ptr(),
                    wide: self.wide,
                    below: 4 * g.k * self.wide,
                };
                // SAFETY: rows are as long as the last register of the last column reaches; sums have room for the most
                // filters, `out` for all elements.
                unsafe { (loops().columns[own.len() - 1])(&some) };
            }
            filters = &filters[floats..];
        }
    }
}
