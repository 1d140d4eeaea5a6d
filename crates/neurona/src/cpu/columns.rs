//! Sweeps over a matrix `[rows, c]` stored by rows that treat every column alike.
//!
//! Vector units want long runs, but `c` may be 3. A *span* is therefore a whole number of rows,
//! at least 256 elements: per-column values are repeated to a span's width once, and loops then
//! run over spans as if they were rows. Sums over rows are kept a span wide and folded at the end.

use crate::cpu::kernel::Plain;
use crate::cpu::math::Real;

/// Elements that pass through registers together.
const LANES: usize = 32;

/// Elements of a span of rows of `c` columns: a multiple of the vector width where that is not long.
///
/// ```
/// use neurona::cpu::columns::span;
/// assert_eq!((span(1), span(6), span(64), span(300)), (256, 288, 256, 300));
/// ```
pub fn span(c: usize) -> usize {
    let c = c.max(1);
    let even = c * (LANES >> c.trailing_zeros().min(LANES.trailing_zeros()));
    let unit = if even <= 1024 { even } else { c };
    unit * 256usize.div_ceil(unit)
}

/// Repeats `columns` over a span.
#[inline(always)]
pub fn widen<T: Plain>(columns: &[T], span: &mut [T]) {
    for row in span.chunks_mut(columns.len().max(1)) {
        row.copy_from_slice(&columns[..row.len()]);
    }
}

/// The sum of column `j` of a span of `c` columns.
#[inline(always)]
pub fn narrow<T: Real>(span: &[T], c: usize, j: usize) -> f64 {
    span[j..].iter().step_by(c).map(|v| v.wide()).sum()
}

/// Sums over rows: adds the numbers of `f(values, per column value)` to `sums`, each a span wide.
///
/// `streams` are matrices of the same shape, whose elements at one place are handed to `f` together.
/// Four spans are joined before they are added: fewer passes over the sums, and a shallower tree.
#[inline(always)]
pub fn add_rows<T: Real, const K: usize, const N: usize>(
    streams: [&[T]; K],
    column: &[T],
    sums: [&mut [T]; N],
    f: impl Fn([T; K], T) -> [T; N] + Copy,
) {
    let w = column.len();
    let len = streams[0].len();
    let mut sums = sums.map(|s| &mut s[..w]);
    let mut at = 0;
    while at + 4 * w <= len {
        let streams = streams.map(|s| &s[at..at + 4 * w]);
        add_spans::<T, K, N, 4>(streams, column, sums.each_mut().map(|s| &mut **s), f);
        at += 4 * w;
    }
    while at < len {
        let n = w.min(len - at);
        let streams = streams.map(|s| &s[at..at + n]);
        let sums = sums.each_mut().map(|s| &mut s[..n]);
        add_spans::<T, K, N, 1>(streams, &column[..n], sums, f);
        at += n;
    }
}

/// Adds `R` spans, 1 or 4.
#[inline(always)]
fn add_spans<T: Real, const K: usize, const N: usize, const R: usize>(
    streams: [&[T]; K],
    column: &[T],
    sums: [&mut [T]; N],
    f: impl Fn([T; K], T) -> [T; N],
) {
    let w = column.len();
    let whole = w / LANES * LANES;
    let rows: [[&[T]; K]; R] = std::array::from_fn(|r| streams.map(|s| &s[r * w..(r + 1) * w]));
    for at in (0..whole).step_by(LANES) {
        let column = &column[at..at + LANES];
        let rows = rows.map(|streams| streams.map(|s| &s[at..at + LANES]));
        // Results go through an array of our own: of that the compiler knows that it overlaps
        // nothing, and needs no checks before it vectorises.
        let mut block = [[T::zero(); LANES]; N];
        for l in 0..LANES {
            let new: [[T; N]; R] = std::array::from_fn(|r| f(std::array::from_fn(|k| rows[r][k][l]), column[l]));
            for n in 0..N {
                let pair = |a: usize| match R {
                    1 => T::zero(),
                    _ => new[a % R][n] + new[(a + 1) % R][n],
                };
                block[n][l] = if R == 1 { new[0][n] } else { pair(0) + pair(2) };
            }
        }
        for n in 0..N {
            for (sum, &v) in sums[n][at..at + LANES].iter_mut().zip(&block[n]) {
                *sum = *sum + v;
            }
        }
    }
    for j in whole..w {
        for row in rows {
            let new = f(std::array::from_fn(|k| row[k][j]), column[j]);
            for n in 0..N {
                sums[n][j] = sums[n][j] + new[n];
            }
        }
    }
}
