//! The loops over registers: transforms, and products with sums in registers.

use super::{PART, SIDE, TAPS, elements, filter_points, first_elements, first_points, last_points};
#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;

/// Lanes of the widest register there is.
pub(super) const WIDEST: usize = 16;

/// Six values of each of `count` places to its six points, for some lines; as many more places as fill the last register are
/// read and written too.
pub(super) struct Lines {
    pub from: *const f32,
    /// Where the six values lie.
    pub values: [usize; SIDE],
    pub to: *mut f32,
    /// Floats from point to point.
    pub step: usize,
    pub count: usize,
    /// How many lines, and floats from one to the next in what is read and in what is written; twice over.
    pub lines: [(usize, [usize; 2]); 2],
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn lines<V: Vector>(t: &Lines) {
    let [(outer, outer_steps), (inner, inner_steps)] = t.lines;
    for (i, j) in (0..outer).flat_map(|i| (0..inner).map(move |j| (i, j))) {
        // SAFETY: the caller's lines name memory that it may read and write; the vector operations are there by this
        // function's callers.
        unsafe {
            let from = t.from.add(i * outer_steps[0] + j * inner_steps[0]);
            let to = t.to.add(i * outer_steps[1] + j * inner_steps[1]);
            for at in (0..t.count).step_by(V::LANES) {
                let mut d = [V::splat(0.0); SIDE];
                for i in 0..SIDE {
                    d[i] = V::load(from.add(t.values[i] + at));
                }
                let first = first_points([d[0], d[1], d[2], d[3], d[4]]);
                let last = last_points([d[1], d[2], d[3], d[4], d[5]]);
                for i in 0..PART {
                    first[i].store(to.add(i * t.step + at));
                    last[i].store(to.add((PART + i) * t.step + at));
                }
            }
        }
    }
}

/// Pixels of a row, by turns to two places.
pub(super) struct Deal {
    pub from: *const f32,
    pub pixels: usize,
    pub channels: usize,
    /// Where the first and the second pixel go; the last of each is written with what fills its register.
    pub to: [*mut f32; 2],
}

#[inline(always)]
unsafe fn deal<V: Vector>(t: &Deal) {
    // SAFETY: as above.
    unsafe {
        let (mut from, [mut to, mut next]) = (t.from, t.to);
        for _ in 0..t.pixels {
            for at in (0..t.channels).step_by(V::LANES) {
                V::load_part(from.add(at), V::LANES.min(t.channels - at)).store(to.add(at));
            }
            from = from.add(t.channels);
            (to, next) = (next, to.add(t.channels));
        }
    }
}

/// Some windows for a register's filters.
pub(super) struct Apart {
    /// The first window's first point; floats from point to point, and from window to window.
    pub x: *const f32,
    pub steps: [usize; 2],
    pub channels: usize,
    /// `[point along][part][channel][3][filter]`.
    pub filters: *const f32,
    /// `[window][element]`, `wide` floats from one to the next.
    pub out: *mut f32,
    pub wide: usize,
    /// Room for 12 registers of each window.
    pub half: *mut f32,
}

// Sums are named by number here, and not reached through iterators: an array that is borrowed stays in memory.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn apart<V: Vector, const T: usize>(t: &Apart) {
    // SAFETY: as above.
    unsafe {
        let [point, window] = t.steps;
        let mut filters = t.filters;
        for along in 0..SIDE {
            for part in 0..2 {
                let x = t.x.add((along * SIDE + part * PART) * point);
                let mut sum = [[V::splat(0.0); PART]; T];
                for c in 0..t.channels {
                    for i in 0..PART {
                        let values = V::load(filters.add(i * V::LANES));
                        for w in 0..T {
                            let x = V::splat(*x.add(i * point + w * window + c));
                            sum[w][i] = x.mul_add(values, sum[w][i]);
                        }
                    }
                    filters = filters.add(PART * V::LANES);
                }
                for w in 0..T {
                    fold(sum[w], part, t.half.add((w * SIDE + along) * 2 * V::LANES));
                }
            }
        }
        for w in 0..T {
            let cells = unfold::<V>(t.half.add(w * SIDE * 2 * V::LANES));
            for j in 0..4 {
                cells[j].store(t.out.add((4 * w + j) * t.wide));
            }
        }
    }
}

/// The transform down of a part's sums: the first part's is left in memory for the second.
#[inline(always)]
unsafe fn fold<V: Vector>(sums: [V; PART], part: usize, half: *mut f32) {
    // SAFETY: as above.
    unsafe {
        let below = half.add(V::LANES);
        let values = if part == 0 { first_elements(sums) } else { elements([V::load(half), V::load(below)], sums) };
        values[0].store(half);
        values[1].store(below);
    }
}

/// The transform along of what [`fold`] left: a window's elements row by row.
#[inline(always)]
unsafe fn unfold<V: Vector>(half: *const f32) -> [V; 4] {
    // SAFETY: as above.
    unsafe {
        let mut rows = [[V::splat(0.0); 2]; 2];
        for (i, row) in rows.iter_mut().enumerate() {
            let mut m = [V::splat(0.0); SIDE];
            for (along, m) in m.iter_mut().enumerate() {
                *m = V::load(half.add((2 * along + i) * V::LANES));
            }
            *row = elements(first_elements([m[0], m[1], m[2]]), [m[3], m[4], m[5]]);
        }
        [rows[0][0], rows[0][1], rows[1][0], rows[1][1]]
    }
}

/// A register of filters for one channel, taps to points.
pub(super) struct Filters {
    /// Registers, so many floats from tap to tap.
    pub taps: *const f32,
    pub tap: usize,
    /// A factor for each filter.
    pub scale: [f32; WIDEST],
    /// Three registers of each part; floats from part to part.
    pub to: *mut f32,
    pub part: usize,
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn filters<V: Vector>(t: &Filters) {
    // SAFETY: as above.
    unsafe {
        let scale = V::load(t.scale.as_ptr());
        let mut half = [[V::splat(0.0); TAPS]; SIDE];
        for row in 0..TAPS {
            let mut g = [V::splat(0.0); TAPS];
            for column in 0..TAPS {
                g[column] = V::load(t.taps.add((row * TAPS + column) * t.tap)).mul(scale);
            }
            let points = filter_points(g);
            for along in 0..SIDE {
                half[along][row] = points[along];
            }
        }
        for along in 0..SIDE {
            let points = filter_points(half[along]);
            for down in 0..SIDE {
                let to = t.to.add((2 * along + down / PART) * t.part + down % PART * V::LANES);
                points[down].store(to);
            }
        }
    }
}

/// The loops of an instruction set. What their arguments name must be readable, and what is written belong to the caller.
pub(super) struct Loops {
    pub lanes: usize,
    pub lines: unsafe fn(&Lines),
    pub deal: unsafe fn(&Deal),
    pub filters: unsafe fn(&Filters),
    /// By their number of windows, from 1 on: as many as there are registers for.
    pub apart: &'static [unsafe fn(&Apart)],
}

macro_rules! compiled {
    ($name:ident, $vector:ty, [$($t:literal),*] $(, $features:literal)?) => {
        static $name: Loops = {
            $(#[target_feature(enable = $features)])?
            unsafe fn lines_of(t: &Lines) {
                // SAFETY: the caller's promise, passed on.
                unsafe { lines::<$vector>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn deal_of(t: &Deal) {
                // SAFETY: as above.
                unsafe { deal::<$vector>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn filters_of(t: &Filters) {
                // SAFETY: as above.
                unsafe { filters::<$vector>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn apart_of<const T: usize>(t: &Apart) {
                // SAFETY: as above.
                unsafe { apart::<$vector, T>(t) }
            }
            Loops {
                lanes: <$vector>::LANES,
                lines: lines_of,
                deal: deal_of,
                filters: filters_of,
                apart: &[$(apart_of::<$t>),*],
            }
        };
    };
}
compiled!(PORTABLE, Lanes, [1, 2, 3, 4]);
#[cfg(target_arch = "x86_64")]
compiled!(AVX2, Avx2, [1, 2, 3, 4], "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(AVX512, Avx512, [1, 2, 3, 4, 5, 6, 7], "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The loops of the instruction set in use.
pub(super) fn loops() -> &'static Loops {
    by_isa!(&AVX512, &AVX2, &PORTABLE)
}
