//! The loops over registers: transforms down columns, and products with sums in registers.

use super::super::{TAPS, add_scaled};
#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;

/// Rows of elements that are made at once.
const ELEMENTS: usize = 4;
/// Rows of the image that they are made of; as many points: 0, ±½, ±1, ±2 and infinity, the ones that lose the least.
pub(super) const POINTS: usize = ELEMENTS + TAPS - 1;

/// Bᵀ.
#[inline(always)]
unsafe fn points<V: Vector>(d: [V; POINTS]) -> [V; POINTS] {
    // SAFETY: the caller's promise.
    unsafe {
        let half_even = add_scaled(4.0, d[2], add_scaled(-5.0, d[4], d[6]));
        let half_odd = add_scaled(2.0, d[1], add_scaled(-2.5, d[3], V::splat(0.5).mul(d[5])));
        let one_even = add_scaled(-4.25, d[4], d[2].add(d[6]));
        let one_odd = add_scaled(-4.25, d[3], d[1].add(d[5]));
        let two_even = add_scaled(0.25, d[2], add_scaled(-1.25, d[4], d[6]));
        let two_odd = add_scaled(0.5, d[1], add_scaled(-2.5, d[3], V::splat(2.0).mul(d[5])));
        [
            add_scaled(5.25, d[2].sub(d[4]), d[6].sub(d[0])),
            half_even.add(half_odd),
            half_even.sub(half_odd),
            one_even.add(one_odd),
            one_even.sub(one_odd),
            two_even.add(two_odd),
            two_even.sub(two_odd),
            add_scaled(5.25, d[3].sub(d[5]), d[7].sub(d[1])),
        ]
    }
}

/// Aᵀ.
#[inline(always)]
unsafe fn elements<V: Vector>(m: [V; POINTS]) -> [V; ELEMENTS] {
    // SAFETY: the caller's promise.
    unsafe {
        let [half, one, two] = [[m[1], m[2]], [m[3], m[4]], [m[5], m[6]]];
        let sums = [half[0].add(half[1]), one[0].add(one[1]), two[0].add(two[1])];
        let differences = [half[0].sub(half[1]), one[0].sub(one[1]), two[0].sub(two[1])];
        let [half, one, two] = differences;
        [
            m[0].add(sums[0]).add(sums[1].add(sums[2])),
            add_scaled(0.5, half, add_scaled(2.0, two, one)),
            add_scaled(0.25, sums[0], add_scaled(4.0, sums[2], sums[1])),
            add_scaled(0.125, half, add_scaled(8.0, two, one.add(m[7]))),
        ]
    }
}

/// Columns of a filter that are transformed at once.
const SOME: usize = 8;

/// G, for one filter and channel of `[row][column]` values: column `s` of point `p` goes to `to[p · point + s · column]`.
#[inline(always)]
pub(super) fn filter(taps: &[f32], columns: usize, to: &mut [f32], column: usize, point: usize) {
    for first in (0..columns).step_by(SOME) {
        let some = SOME.min(columns - first);
        let mut g = [[0f32; SOME]; TAPS];
        for (g, taps) in g.iter_mut().zip(taps.chunks_exact(columns)) {
            g[..some].copy_from_slice(&taps[first..first + some]);
        }
        let mut u = [[0f32; SOME]; POINTS];
        for s in 0..SOME {
            let g: [f32; TAPS] = [g[0][s], g[1][s], g[2][s], g[3][s], g[4][s]];
            u[0][s] = -g[0];
            // One over the product of a point's differences to the others, and the point squared.
            for (i, (by, point)) in
                [(32.0 / 45.0, 0.5f32), (-2.0 / 9.0, 1.0), (1.0 / 90.0, 2.0)].into_iter().enumerate()
            {
                let square = point * point;
                let even = by * (g[0] + square * (g[2] + square * g[4]));
                let odd = by * point * (g[1] + square * g[3]);
                u[2 * i + 1][s] = even + odd;
                u[2 * i + 2][s] = even - odd;
            }
            u[7][s] = g[4];
        }
        for (p, u) in u.iter().enumerate() {
            for (s, u) in u[..some].iter().enumerate() {
                to[p * point + (first + s) * column] = *u;
            }
        }
    }
}

/// Eight rows of some channels to their points, column by column.
pub(super) struct Down {
    pub from: *const f32,
    /// Floats from row to row.
    pub row: usize,
    /// How many, and floats from one to the next in what is read and in what is written.
    pub channels: (usize, [usize; 2]),
    pub to: *mut f32,
    /// Floats from point to point.
    pub point: usize,
    /// Columns, whole registers of them.
    pub count: usize,
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn down<V: Vector>(t: &Down) {
    let (channels, [from_step, to_step]) = t.channels;
    for c in 0..channels {
        for at in (0..t.count).step_by(V::LANES) {
            // SAFETY: the caller's rows and points name memory that it may read and write; the vector operations are there
            // by this function's callers.
            unsafe {
                let (from, to) = (t.from.add(c * from_step + at), t.to.add(c * to_step + at));
                let mut d = [V::splat(0.0); POINTS];
                for i in 0..POINTS {
                    d[i] = V::load(from.add(i * t.row));
                }
                let points = points(d);
                for i in 0..POINTS {
                    points[i].store(to.add(i * t.point));
                }
            }
        }
    }
}

/// Two registers of neighbouring columns, which are one of windows, for some filters.
pub(super) struct Columns {
    /// The first point of the first channel; floats from point to point.
    pub x: *const f32,
    pub point: usize,
    /// How many, and floats from one to the next.
    pub channels: (usize, usize),
    pub columns: (usize, usize),
    /// `[point][channel][column][filter]`.
    pub filters: *const f32,
    /// Room for the sums of all points.
    pub half: *mut f32,
    /// `[filter][element]`, `wide` floats from one to the next; and floats to the row of windows below.
    pub out: *mut f32,
    pub wide: usize,
    pub below: usize,
}

// Sums are named by number here, and not reached through iterators: an array that is borrowed stays in memory.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn columns<V: Vector, const F: usize>(t: &Columns) {
    // SAFETY: as above.
    unsafe {
        let mut filters = t.filters;
        for point in 0..POINTS {
            let mut sum = [[V::splat(0.0); 2]; F];
            for c in 0..t.channels.0 {
                let mut x = t.x.add(point * t.point + c * t.channels.1);
                for _ in 0..t.columns.0 {
                    let cells = [V::load(x), V::load(x.add(V::LANES))];
                    for f in 0..F {
                        let value = V::splat(*filters.add(f));
                        sum[f][0] = value.mul_add(cells[0], sum[f][0]);
                        sum[f][1] = value.mul_add(cells[1], sum[f][1]);
                    }
                    filters = filters.add(F);
                    x = x.add(t.columns.1);
                }
            }
            for f in 0..F {
                for i in 0..2 {
                    sum[f][i].store(t.half.add(((f * POINTS + point) * 2 + i) * V::LANES));
                }
            }
        }
        for f in 0..F {
            let mut rows = [[V::splat(0.0); 2]; ELEMENTS];
            for i in 0..2 {
                let mut m = [V::splat(0.0); POINTS];
                for point in 0..POINTS {
                    m[point] = V::load(t.half.add(((f * POINTS + point) * 2 + i) * V::LANES));
                }
                let m = elements(m);
                for row in 0..ELEMENTS {
                    rows[row][i] = m[row];
                }
            }
            for row in 0..ELEMENTS {
                let out = t.out.add(row / 2 * t.below + (4 * f + row % 2 * 2) * t.wide);
                let [even, odd] = rows[row][0].unzip(rows[row][1]);
                even.store(out);
                odd.store(out.add(t.wide));
            }
        }
    }
}

/// The loops of an instruction set. What their arguments name must be readable, and what is written belong to the caller.
pub(super) struct Loops {
    pub lanes: usize,
    pub down: unsafe fn(&Down),
    /// By their number of filters, from 1 on: as many as there are registers for.
    pub columns: &'static [unsafe fn(&Columns)],
}

impl Loops {
    /// Floats of the sums of all points.
    pub fn half(&self) -> usize {
        self.columns.len() * POINTS * 2 * self.lanes
    }
}

macro_rules! compiled {
    ($name:ident, $vector:ty, [$($f:literal),*] $(, $features:literal)?) => {
        static $name: Loops = {
            $(#[target_feature(enable = $features)])?
            unsafe fn down_of(t: &Down) {
                // SAFETY: the caller's promise, passed on.
                unsafe { down::<$vector>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn columns_of<const F: usize>(t: &Columns) {
                // SAFETY: as above.
                unsafe { columns::<$vector, F>(t) }
            }
            Loops { lanes: <$vector>::LANES, down: down_of, columns: &[$(columns_of::<$f>),*] }
        };
    };
}
compiled!(PORTABLE, Lanes, [1, 2, 3, 4]);
#[cfg(target_arch = "x86_64")]
compiled!(AVX2, Avx2, [1, 2, 3, 4, 5, 6], "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(AVX512, Avx512, [1, 2, 3, 4, 5, 6], "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The loops of the instruction set in use.
pub(super) fn loops() -> &'static Loops {
    by_isa!(&AVX512, &AVX2, &PORTABLE)
}
