//! Columns of the right operand cut into panels one tile wide, and packed so that a tile reads
//! them in one stream.

use super::micro::{Tile, Width, column_width, widths};
use crate::cpu::simd::{Isa, isa, vectorized, whole_registers};
use std::ops::Range;

/// The most rows a tile has.
const TALLEST: usize = 14;

/// Some neighbouring columns.
pub(crate) struct Panel {
    /// The first column.
    pub start: usize,
    /// How many there are.
    pub columns: usize,
    /// The tiles to use.
    pub width: &'static Width,
}

/// Cuts `n` columns into panels: full ones, then the narrowest that holds the rest.
pub(crate) fn panels(n: usize) -> Vec<Panel> {
    cut(n, |_| None)
}

/// The same for many rows, and a reduction in runs of neighbours, so many each. Few columns at the end are panels of one
/// each, whose vectors run along the reduction, where these are full enough. And a rest that two narrow panels hold with
/// less to fill than a wide one goes into these; few rows would wait for their sums in each. Where the widest registers are
/// worked on in one piece, half of one costs as much as all of it: the wide panel then needs fewer loads for the same sums.
pub(crate) fn filled_panels(n: usize, run: usize) -> Vec<Panel> {
    let (column, lanes) = column_width();
    cut(n, |rest| match widths() {
        _ if rest <= FEW && 2 * rest * run.div_ceil(lanes) <= run => Some(column),
        [narrow, middle, _] if !whole_registers() => {
            (middle.columns + 1..=middle.columns + narrow.columns).contains(&rest).then_some(middle)
        }
        _ => None,
    })
}

/// Columns that are few beside a narrow panel's.
const FEW: usize = 4;

/// Full panels, then what is chosen for the rest, or the narrowest that holds it.
fn cut(n: usize, chosen: impl Fn(usize) -> Option<&'static Width>) -> Vec<Panel> {
    let widths = widths();
    let widest = &widths[widths.len() - 1];
    let mut panels = Vec::new();
    let mut start = 0;
    while start < n {
        let rest = n - start;
        let width = chosen(rest).or_else(|| widths.iter().find(|w| w.columns >= rest)).unwrap_or(widest);
        let columns = rest.min(width.columns);
        panels.push(Panel { start, columns, width });
        start += columns;
    }
    panels
}

/// Floats that these panels take for each step of the reduction.
pub(crate) fn width_of(panels: &[Panel]) -> usize {
    panels.iter().map(|p| p.width.columns).sum()
}

/// Floats that panels of `n` columns take for each step of the reduction.
pub(crate) fn packed_width(n: usize) -> usize {
    width_of(&panels(n))
}

impl Panel {
    /// Computes this panel's columns for the given rows. `base` names the operands; its row
    /// offsets are taken from the lists, and its columns are set here.
    ///
    /// # Safety
    /// All that `base`, `a_rows` and `c_rows` name must be readable, and the result writable
    /// by this task alone.
    pub unsafe fn rows(&self, base: Tile, a_rows: &[usize], c_rows: &[usize]) {
        // SAFETY: the caller's promise.
        unsafe { self.rows_then(base, a_rows, c_rows, |_| {}) }
    }

    /// The same. `then` is called after each tile, with the places of its rows in the result.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn rows_then(&self, mut base: Tile, a_rows: &[usize], c_rows: &[usize], mut then: impl FnMut(&[usize])) {
        let rows = a_rows.len();
        let tiles = rows.div_ceil(self.width.rows());
        base.columns = self.columns;
        if tiles == 0 {
            return;
        }
        let (even, more) = (rows / tiles, rows % tiles);
        let ahead = base.ahead;
        let mut end = 0;
        for i in 0..tiles {
            if ahead.rows > 0 {
                base.ahead = ahead.of_tile(tiles, i);
            }
            let range = end..end + even + usize::from(i < more);
            end = range.end;
            let height = self.width.height(range.len());
            let run = if self.columns == self.width.columns { height.full } else { height.part };
            let (a, c) = (&a_rows[range.clone()], &c_rows[range]);
            if height.rows == a.len() {
                base.a_rows = a.as_ptr();
                base.c_rows = c.as_ptr();
                // SAFETY: the caller's promise; the tile matches the instruction set in use.
                unsafe { run(&base) };
            } else {
                // There is no tile of just this many rows: the last one is computed again.
                let mut a_full = [a[a.len() - 1]; TALLEST];
                let mut c_full = [c[c.len() - 1]; TALLEST];
                a_full[..a.len()].copy_from_slice(a);
                c_full[..c.len()].copy_from_slice(c);
                base.a_rows = a_full.as_ptr();
                base.c_rows = c_full.as_ptr();
                // SAFETY: as above.
                unsafe { run(&base) };
            }
            then(c);
        }
    }
}

/// Packs a panel whose columns lie side by side: writes `out[t·width + j] = source[t·row + j]` for
/// `j < columns`, zeros above. `out` holds a whole number of rows.
pub(crate) fn pack(out: &mut [f32], width: usize, columns: usize, source: &[f32], row: usize) {
    match (width, columns) {
        (32, 32) => pack_full::<32>(out, source, row),
        (16, 16) => pack_full::<16>(out, source, row),
        _ => {
            for (t, to) in out.chunks_exact_mut(width).enumerate() {
                to[..columns].copy_from_slice(&source[t * row..][..columns]);
                to[columns..].fill(0.0);
            }
        }
    }
}

/// The same for a panel without gaps, whose rows are too short for a call to copy each.
fn pack_full<const WIDTH: usize>(out: &mut [f32], source: &[f32], row: usize) {
    vectorized(
        #[inline(always)]
        || {
            for (t, to) in out.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
                to.copy_from_slice(&source[t * row..][..WIDTH]);
            }
        },
    );
}

/// Steps `range` of a panel whose columns are contiguous, `stride` floats from one to the next.
/// Column `j` of step `i` is `source[i + j·stride]`. Steps may be reordered on the way: they are
/// cut into groups of `taps`, and go to `out[(i % taps · groups + i / taps)·step + j]`; with one
/// tap nothing moves. Columns up to `width` are filled with zeros.
pub(crate) struct Transposed {
    pub source: *const f32,
    pub stride: usize,
    pub columns: usize,
    pub taps: usize,
    pub groups: usize,
    pub step: usize,
    pub width: usize,
    pub range: Range<usize>,
}

impl Transposed {
    /// Packs into `out`, the start of the whole panel.
    ///
    /// # Safety
    /// The source must be readable, and these steps of `out` writable by this task alone.
    pub unsafe fn pack(&self, out: *mut f32) {
        vectorized(
            #[inline(always)]
            || {
                for first in (0..self.width).step_by(8) {
                    let live = self.columns.saturating_sub(first).min(8);
                    let mut i = self.range.start;
                    while i < self.range.end {
                        // SAFETY: the caller's promise; the block stays inside range and columns.
                        i += unsafe { self.block(out, first, live, i) };
                    }
                }
            },
        );
    }

    /// Packs up to eight steps of up to eight columns; returns how many steps.
    #[inline(always)]
    unsafe fn block(&self, out: *mut f32, first: usize, live: usize, i: usize) -> usize {
        let steps = (self.range.end - i).min(8);
        let (mut group, mut tap) = (i / self.taps, i % self.taps);
        let mut next = || {
            let at = (tap * self.groups + group) * self.step + first;
            tap += 1;
            if tap == self.taps {
                (group, tap) = (group + 1, 0);
            }
            at
        };
        // SAFETY: the caller's promise.
        unsafe {
            let source = self.source.add(i + first * self.stride);
            #[cfg(target_arch = "x86_64")]
            if steps == 8 && live == 8 && isa() >= Isa::Avx2 {
                for v in transposed(source, self.stride) {
                    std::arch::x86_64::_mm256_storeu_ps(out.add(next()), v);
                }
                return 8;
            }
            for step in 0..steps {
                let at = next();
                for j in 0..8.min(self.width - first) {
                    let value = if j < live { *source.add(step + j * self.stride) } else { 0.0 };
                    *out.add(at + j) = value;
                }
            }
        }
        steps
    }
}

/// Eight rows of eight floats as eight columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn transposed(source: *const f32, stride: usize) -> [std::arch::x86_64::__m256; 8] {
    use std::arch::x86_64::*;
    // SAFETY: the caller has eight rows at `source`.
    let r: [__m256; 8] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(source.add(i * stride)) });
    let pairs: [[__m256; 2]; 4] = std::array::from_fn(|i| {
        [_mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1])]
    });
    // Columns 0..4 of rows 0..4 and 4..8 in the low halves, columns 4..8 in the high halves.
    let quads = |i: usize, j: usize| {
        let (a, b) = (pairs[2 * i][j], pairs[2 * i + 1][j]);
        [_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b)]
    };
    let (top, bottom) = ([quads(0, 0), quads(0, 1)], [quads(1, 0), quads(1, 1)]);
    std::array::from_fn(|i| {
        let (a, b) = (top[i % 4 / 2][i % 2], bottom[i % 4 / 2][i % 2]);
        if i < 4 { _mm256_permute2f128_ps::<0x20>(a, b) } else { _mm256_permute2f128_ps::<0x31>(a, b) }
    })
}
