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

/// Two sums over rows: adds `f(values, per column value)` to `first` and `second`, each a span wide.
///
/// `streams` are matrices of the same shape, whose elements at one place are handed to `f` together.
/// Four spans are joined before they are added: fewer passes over the sums, and a shallower tree.
#[inline(always)]
pub fn two_sums<T: Real, const K: usize>(
    streams: [&[T]; K],
    column: &[T],
    first: &mut [T],
    second: &mut [T],
    f: impl Fn([T; K], T) -> (T, T) + Copy,
) {
    let w = column.len();
    let len = streams[0].len();
    let whole = w / LANES * LANES;
    let mut at = 0;
    while at + 4 * w <= len {
        let [a, b, c, d] = [0, 1, 2, 3].map(|r| streams.map(|s| &s[at + r * w..at + (r + 1) * w]));
        for j in (0..whole).step_by(LANES) {
            // Slices of one known length, so that the loop needs no bounds checks.
            let block = |row: [&[T]; K]| row.map(|s| *s[j..].first_chunk::<LANES>().unwrap());
            let (a, b, c, d) = (block(a), block(b), block(c), block(d));
            let column: &[T; LANES] = column[j..].first_chunk().unwrap();
            let (mut sum, mut other) = ([T::zero(); LANES], [T::zero(); LANES]);
            for l in 0..LANES {
                let of = |row: &[[T; LANES]; K]| f(std::array::from_fn(|k| row[k][l]), column[l]);
                let (a, b, c, d) = (of(&a), of(&b), of(&c), of(&d));
                sum[l] = (a.0 + b.0) + (c.0 + d.0);
                other[l] = (a.1 + b.1) + (c.1 + d.1);
            }
            let (first, second) = (&mut first[j..j + LANES], &mut second[j..j + LANES]);
            for l in 0..LANES {
                first[l] = first[l] + sum[l];
                second[l] = second[l] + other[l];
            }
        }
        for row in [a, b, c, d] {
            add_row(row, whole, column, first, second, f);
        }
        at += 4 * w;
    }
    while at < len {
        let n = w.min(len - at);
        add_row(streams.map(|s| &s[at..at + n]), 0, column, first, second, f);
        at += n;
    }
}

/// Adds one row from column `start` on.
#[inline(always)]
fn add_row<T: Real, const K: usize>(
    row: [&[T]; K],
    start: usize,
    column: &[T],
    first: &mut [T],
    second: &mut [T],
    f: impl Fn([T; K], T) -> (T, T),
) {
    for j in start..row[0].len() {
        let (a, b) = f(std::array::from_fn(|k| row[k][j]), column[j]);
        first[j] = first[j] + a;
        second[j] = second[j] + b;
    }
}
