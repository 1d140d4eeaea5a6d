//! The innermost loops: a block of the result held in registers while the reduction runs.

#[cfg(target_arch = "x86_64")]
use super::vector::{Avx2, Avx512, Narrow};
use super::vector::{Lanes, Vector};
use super::within;
use crate::cpu::kernel::share;
use crate::cpu::simd::by_isa;
use crate::cpu::stream::{LINE, near, prefetch};

/// One block of `C = A·B`: rows of `A` are broadcast, rows of `B` are vectors.
///
/// The reduction is cut into `segments` of `length` steps each, so that a convolution reads its
/// window straight from the image: element `t` of segment `s` of row `i` of `A` is
/// `a[a_rows[i] + a_segments[s] + t·a_step]`, and its row of `B` starts at
/// `b[b_segments[s] + t·b_step]`.
pub(crate) struct Tile {
    pub a: *const f32,
    /// One offset a row; rows of one tile may repeat.
    pub a_rows: *const usize,
    pub a_segments: *const usize,
    pub a_step: usize,
    pub segments: usize,
    pub length: usize,
    pub b: *const f32,
    pub b_segments: *const usize,
    pub b_step: usize,
    pub c: *mut f32,
    pub c_rows: *const usize,
    /// Valid columns of this tile.
    pub columns: usize,
    pub start: Start,
    /// Values beyond these become the nearest of them.
    pub limits: Option<[f32; 2]>,
    /// Whether the result lies in memory, in no cache.
    pub far: bool,
    pub ahead: Ahead,
}

/// What comes after some tiles, in rows as wide as they: it is asked for row by row with the steps of the reduction. All at
/// once, the requests would be more than a core can have on their way, and a tile would wait for them.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// The first rows of up to two matrices; null where there is none.
    pub from: [*const f32; 2],
    pub rows: usize,
    /// Floats from one row to the next.
    pub apart: usize,
}

impl Ahead {
    pub const NOTHING: Ahead = Ahead { from: [std::ptr::null(); 2], rows: 0, apart: 0 };

    /// Neighbouring floats, for tiles so wide: lines come whole.
    pub fn run(from: *const f32, floats: usize, columns: usize) -> Self {
        let apart = columns.next_multiple_of(LINE);
        Ahead { from: [from, std::ptr::null()], rows: floats.div_ceil(apart), apart }
    }

    /// What one of some tiles asks for.
    pub fn of_tile(&self, tiles: usize, tile: usize) -> Self {
        let rows = share(self.rows, tiles, tile);
        let from = self.from.map(|from| if from.is_null() { from } else { from.wrapping_add(rows.start * self.apart) });
        Ahead { from, rows: rows.len(), apart: self.apart }
    }

    #[inline(always)]
    fn ask(&self, row: usize, floats: usize) {
        for from in self.from.into_iter().filter(|from| !from.is_null()) {
            prefetch(from.wrapping_add(row * self.apart), floats);
        }
    }
}

/// What a sum starts from.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// Zero: the result is overwritten.
    Zero,
    /// One value a column.
    Bias(*const f32),
    /// What the result holds.
    Sum,
}

/// A compiled tile: reads and writes what its [`Tile`] names.
pub(crate) type TileFn = unsafe fn(&Tile);

/// The tile of one number of rows.
pub(crate) struct Height {
    pub rows: usize,
    /// For `columns` equal to the width.
    pub full: TileFn,
    /// For fewer columns than the width, but more than the width less one register.
    pub part: TileFn,
}

/// The tiles of one width, by rising number of rows.
pub(crate) struct Width {
    pub columns: usize,
    pub heights: &'static [Height],
}

impl Width {
    /// Rows of the tallest tile.
    pub fn rows(&self) -> usize {
        self.heights[self.heights.len() - 1].rows
    }

    /// The smallest tile of at least `rows` rows.
    pub fn height(&self, rows: usize) -> &'static Height {
        let found = self.heights.iter().find(|h| h.rows >= rows);
        found.unwrap_or(&self.heights[self.heights.len() - 1])
    }
}

#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const N: usize, const PART: bool>(t: &Tile) {
    let last = t.columns - (N - 1) * V::LANES;
    // SAFETY: the caller's tile names memory that it may read and write, and only `columns` of it
    // are touched beyond full registers; the vector operations are there by this function's callers.
    unsafe {
        let load = |p: *const f32, j: usize| {
            if PART && j == N - 1 { V::load_part(p.add(j * V::LANES), last) } else { V::load(p.add(j * V::LANES)) }
        };
        let rows: [*const f32; M] = std::array::from_fn(|i| t.a.add(*t.a_rows.add(i)));
        let mut sum = [[V::splat(0.0); N]; M];
        // Lines come from memory even to be overwritten: asked for now, they are there when the sums are.
        if t.far {
            for i in 0..M {
                near(t.c.add(*t.c_rows.add(i)), N * V::LANES);
            }
        }
        match t.start {
            Start::Zero => {}
            Start::Bias(bias) => {
                let bias: [V; N] = std::array::from_fn(|j| load(bias, j));
                sum.fill(bias);
            }
            // All rows are read before any is written: a repeated row then stays right.
            Start::Sum => {
                for (i, row) in sum.iter_mut().enumerate() {
                    let c = t.c.add(*t.c_rows.add(i));
                    *row = std::array::from_fn(|j| load(c, j));
                }
            }
        }
        let mut asked = 0;
        for s in 0..t.segments {
            let mut at = *t.a_segments.add(s);
            let mut b = t.b.add(*t.b_segments.add(s));
            for _ in 0..t.length {
                if asked < t.ahead.rows {
                    t.ahead.ask(asked, N * V::LANES);
                    asked += 1;
                }
                let column: [V; N] = std::array::from_fn(|j| load(b, j));
                for i in 0..M {
                    let a = V::splat(*rows[i].add(at));
                    for j in 0..N {
                        sum[i][j] = a.mul_add(column[j], sum[i][j]);
                    }
                }
                at += t.a_step;
                b = b.add(t.b_step);
            }
        }
        for row in asked..t.ahead.rows {
            t.ahead.ask(row, N * V::LANES);
        }
        if let Some([least, most]) = t.limits {
            let (least, most) = (V::splat(least), V::splat(most));
            for row in &mut sum {
                for v in row {
                    *v = most.min(least.max(*v));
                }
            }
        }
        for (i, row) in sum.iter().enumerate() {
            let c = t.c.add(*t.c_rows.add(i));
            for (j, v) in row.iter().enumerate() {
                if PART && j == N - 1 {
                    v.store_part(c.add(j * V::LANES), last);
                } else {
                    v.store(c.add(j * V::LANES));
                }
            }
        }
    }
}

/// The same for one column, of which `a_step` and `b_step` are 1: vectors run along the reduction.
#[inline(always)]
unsafe fn column<V: Vector, const M: usize>(t: &Tile) {
    debug_assert_eq!((t.a_step, t.b_step), (1, 1));
    // SAFETY: the caller's tile names memory that it may read and write; loads stop at a segment's end.
    unsafe {
        let rows: [*const f32; M] = std::array::from_fn(|i| t.a.add(*t.a_rows.add(i)));
        let mut sum = [V::splat(0.0); M];
        let mut asked = 0;
        for s in 0..t.segments {
            let (from, b) = (*t.a_segments.add(s), t.b.add(*t.b_segments.add(s)));
            let mut at = 0;
            while at + V::LANES <= t.length {
                if asked < t.ahead.rows {
                    t.ahead.ask(asked, 1);
                    asked += 1;
                }
                let column = V::load(b.add(at));
                for i in 0..M {
                    sum[i] = V::load(rows[i].add(from + at)).mul_add(column, sum[i]);
                }
                at += V::LANES;
            }
            if at < t.length {
                let rest = t.length - at;
                let column = V::load_part(b.add(at), rest);
                for i in 0..M {
                    sum[i] = V::load_part(rows[i].add(from + at), rest).mul_add(column, sum[i]);
                }
            }
        }
        for row in asked..t.ahead.rows {
            t.ahead.ask(row, 1);
        }
        // All are read before the first is written: the last row may be there more than once.
        let rows: [*mut f32; M] = std::array::from_fn(|i| t.c.add(*t.c_rows.add(i)));
        let start: [f32; M] = match t.start {
            Start::Zero => [0.0; M],
            Start::Bias(bias) => [*bias; M],
            Start::Sum => rows.map(|c| *c),
        };
        for first in (0..M).step_by(4) {
            let sums = V::sums(std::array::from_fn(|i| sum[(first + i).min(M - 1)]));
            for (i, sum) in (first..M).zip(sums) {
                *rows[i] = finish([start[i] + sum], t.limits)[0];
            }
        }
    }
}

/// A block of `C = A·Bᵀ` with both operands' rows contiguous: vectors run along the reduction.
pub(crate) struct Dot {
    pub a: *const f32,
    pub a_row: usize,
    pub b: *const f32,
    pub b_row: usize,
    pub length: usize,
    pub c: *mut f32,
    pub c_row: usize,
    /// Rows of `B`, which are columns of `C`.
    pub columns: usize,
    /// One value a column, or null.
    pub bias: *const f32,
    pub limits: Option<[f32; 2]>,
}

/// Sums between limits, if there are any.
#[inline(always)]
fn finish<const N: usize>(sums: [f32; N], limits: Option<[f32; 2]>) -> [f32; N] {
    match limits {
        Some(limits) => sums.map(|sum| within(sum, limits)),
        None => sums,
    }
}

/// A compiled [`Dot`] of a fixed number of rows.
pub(crate) type DotFn = unsafe fn(&Dot);

#[inline(always)]
unsafe fn dot<V: Vector, const M: usize>(d: &Dot) {
    const N: usize = 4;
    // SAFETY: the caller's block names memory that it may read and write; loads stop at `length`.
    unsafe {
        let a: [*const f32; M] = std::array::from_fn(|i| d.a.add(i * d.a_row));
        let mut column = 0;
        while column < d.columns {
            let count = N.min(d.columns - column);
            // Past the last column the last one is computed again and thrown away.
            let b: [*const f32; N] = std::array::from_fn(|j| d.b.add((column + j.min(count - 1)) * d.b_row));
            let mut sum = [[V::splat(0.0); N]; M];
            let mut t = 0;
            while t + V::LANES <= d.length {
                let right: [V; N] = std::array::from_fn(|j| V::load(b[j].add(t)));
                for i in 0..M {
                    let left = V::load(a[i].add(t));
                    for j in 0..N {
                        sum[i][j] = left.mul_add(right[j], sum[i][j]);
                    }
                }
                t += V::LANES;
            }
            if t < d.length {
                let rest = d.length - t;
                let right: [V; N] = std::array::from_fn(|j| V::load_part(b[j].add(t), rest));
                for i in 0..M {
                    let left = V::load_part(a[i].add(t), rest);
                    for j in 0..N {
                        sum[i][j] = left.mul_add(right[j], sum[i][j]);
                    }
                }
            }
            // With all four columns there, what follows the sums is vector work too.
            if count == N {
                for (i, row) in sum.iter().enumerate() {
                    let mut sums = V::sums(*row);
                    if !d.bias.is_null() {
                        let bias = d.bias.add(column).cast::<[f32; N]>().read_unaligned();
                        sums = std::array::from_fn(|j| sums[j] + bias[j]);
                    }
                    d.c.add(i * d.c_row + column).cast::<[f32; N]>().write_unaligned(finish(sums, d.limits));
                }
            } else {
                for (i, row) in sum.iter().enumerate() {
                    let sums = V::sums(*row);
                    let bias = |j: usize| if d.bias.is_null() { 0.0 } else { *d.bias.add(column + j) };
                    for (j, &s) in sums.iter().enumerate().take(count) {
                        *d.c.add(i * d.c_row + column + j) = finish([s + bias(j)], d.limits)[0];
                    }
                }
            }
            column += N;
        }
    }
}

macro_rules! compiled {
    ($tile:ident, $column:ident, $dot:ident $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $tile<V: Vector, const M: usize, const N: usize, const PART: bool>(t: &Tile) {
            // SAFETY: the caller's promise, passed on.
            unsafe { tile::<V, M, N, PART>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $column<V: Vector, const M: usize>(t: &Tile) {
            // SAFETY: the caller's promise, passed on.
            unsafe { column::<V, M>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $dot<V: Vector, const M: usize>(d: &Dot) {
            // SAFETY: the caller's promise, passed on.
            unsafe { dot::<V, M>(d) }
        }
    };
}
compiled!(tile_portable, column_portable, dot_portable);
#[cfg(target_arch = "x86_64")]
compiled!(tile_avx2, column_avx2, dot_avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(tile_avx512, column_avx512, dot_avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

macro_rules! width {
    ($tile:ident, $vector:ty, $n:literal, [$($m:literal),*]) => {
        Width {
            columns: $n * <$vector as Vector>::LANES,
            heights: &[$(Height {
                rows: $m,
                full: $tile::<$vector, $m, $n, false>,
                part: $tile::<$vector, $m, $n, true>,
            }),*],
        }
    };
}

// Heights: as many sums as there are registers beside a row of B and one broadcast. A short
// last register wastes less than a second instruction, hence the narrow widths.
static PORTABLE: [Width; 2] =
    [width!(tile_portable, Lanes, 1, [1, 2, 4, 8, 12]), width!(tile_portable, Lanes, 2, [1, 2, 4, 6])];
#[cfg(target_arch = "x86_64")]
static AVX2: [Width; 2] =
    [width!(tile_avx2, Avx2, 1, [1, 2, 4, 6, 8, 12]), width!(tile_avx2, Avx2, 2, [1, 2, 3, 4, 5, 6])];
#[cfg(target_arch = "x86_64")]
static AVX512: [Width; 3] = [
    width!(tile_avx512, Narrow, 1, [1, 2, 4, 6, 8, 9, 10, 11, 12]),
    width!(tile_avx512, Avx512, 1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    width!(tile_avx512, Avx512, 2, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
];

/// The widths of tiles of the instruction set in use, rising.
pub(crate) fn widths() -> &'static [Width] {
    by_isa!(&AVX512, &AVX2, &PORTABLE)
}

macro_rules! column {
    ($column:ident, $vector:ty, [$($m:literal),*]) => {
        Width {
            columns: 1,
            heights: &[$(Height { rows: $m, full: $column::<$vector, $m>, part: $column::<$vector, $m> }),*],
        }
    };
}

static PORTABLE_COLUMN: Width = column!(column_portable, Lanes, [1, 2, 4, 8]);
#[cfg(target_arch = "x86_64")]
static AVX2_COLUMN: Width = column!(column_avx2, Avx2, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
#[cfg(target_arch = "x86_64")]
static AVX512_COLUMN: Width = column!(column_avx512, Avx512, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);

/// Tiles of one column, whose vectors run along the reduction, and how long these vectors are.
pub(crate) fn column_width() -> (&'static Width, usize) {
    by_isa!((&AVX512_COLUMN, Avx512::LANES), (&AVX2_COLUMN, Avx2::LANES), (&PORTABLE_COLUMN, Lanes::LANES))
}

macro_rules! dots {
    ($dot:ident, $vector:ty, [$($m:literal),*]) => { &[$(($m, $dot::<$vector, $m> as DotFn)),*] };
}

/// Dot-product kernels of the instruction set in use with their numbers of rows, rising from 1.
pub(crate) fn dots() -> &'static [(usize, DotFn)] {
    by_isa!(
        dots!(dot_avx512, Avx512, [1, 2, 3, 4, 5, 6]),
        dots!(dot_avx2, Avx2, [1, 2, 3]),
        dots!(dot_portable, Lanes, [1, 2, 3])
    )
}
