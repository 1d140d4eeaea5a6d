//! The innermost loops, with sums in registers.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512, Narrow};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::whole_registers;

/// Rows whose columns are dealt out to two decks by turns.
pub(super) struct Decks {
    pub from: *const f32,
    pub columns: usize,
    pub rows: usize,
    /// Where the first row's even and odd columns go, and floats from row to row.
    pub to: [*mut f32; 2],
    pub step: usize,
}

#[inline(always)]
unsafe fn deal<V: Vector>(t: &Decks) {
    let whole = t.columns / (2 * V::LANES) * V::LANES;
    for row in 0..t.rows {
        // SAFETY: the caller's rows name memory that it may read and write; the vector operations are there by this
        // function's callers.
        unsafe {
            let from = t.from.add(row * t.columns);
            let [even, odd] = [t.to[0].add(row * t.step), t.to[1].add(row * t.step)];
            for at in (0..whole).step_by(V::LANES) {
                let from = from.add(2 * at);
                let [left, right] = V::load(from).unzip(V::load(from.add(V::LANES)));
                left.store(even.add(at));
                right.store(odd.add(at));
            }
            for column in 2 * whole..t.columns {
                *[even, odd][column % 2].add(column / 2) = *from.add(column);
            }
        }
    }
}

/// The four elements of as many windows as a register has lanes, for some filters: column `b` of row `a` of each window is
/// a sum over channels, filter rows and filter columns of a filter value times the register at
/// `x[channel + row + a · below + columns[column][b]]`.
pub(super) struct Sums<'a> {
    pub x: *const f32,
    /// How many, and floats from one to the next.
    pub channels: (usize, usize),
    pub rows: (usize, usize),
    pub below: usize,
    pub columns: &'a [[usize; 2]],
    /// Filters one after the other, of `depth` values each.
    pub weight: *const f32,
    pub depth: usize,
    /// `[filter][a][b]`, `wide` floats from one to the next.
    pub out: *mut f32,
    pub wide: usize,
}

/// Compiled [`Sums`] for a number of filters.
pub(super) type SumsFn = unsafe fn(&Sums<'_>);

// Sums are named by number here, and not reached through iterators: an array that is borrowed stays in memory.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn add_up<V: Vector, const F: usize>(t: &Sums<'_>) {
    // SAFETY: the caller's sums name memory that it may read and write; the vector operations are there by this
    // function's callers.
    unsafe {
        let mut sum = [[V::splat(0.0); 4]; F];
        let mut weight = t.weight;
        for channel in 0..t.channels.0 {
            for row in 0..t.rows.0 {
                let x = t.x.add(channel * t.channels.1 + row * t.rows.1);
                for [left, right] in t.columns {
                    let cells = [
                        V::load(x.add(*left)),
                        V::load(x.add(*right)),
                        V::load(x.add(t.below + left)),
                        V::load(x.add(t.below + right)),
                    ];
                    for f in 0..F {
                        let value = V::splat(*weight.add(f * t.depth));
                        for j in 0..4 {
                            sum[f][j] = value.mul_add(cells[j], sum[f][j]);
                        }
                    }
                    weight = weight.add(1);
                }
            }
        }
        for (f, sum) in sum.iter().enumerate() {
            for (j, sum) in sum.iter().enumerate() {
                sum.store(t.out.add((4 * f + j) * t.wide));
            }
        }
    }
}

/// For one filter: the sum over images' windows of their gradient times what they saw of the input, in `R` runs of `N`
/// registers.
pub(super) struct Gather<'a> {
    /// Where the first image begins, as `pixels` count.
    pub x: *const f32,
    /// How many, and floats from one to the next.
    pub images: (usize, usize),
    /// Where each window's first element looks, from the image on.
    pub pixels: &'a [usize],
    /// How much further each of its elements looks; [`NOWHERE`](super::NOWHERE) anywhere.
    pub further: [usize; 5],
    /// Where runs begin.
    pub runs: *const usize,
    /// Floats of the last register.
    pub last: usize,
    /// Gradients and places of the first image's first window; from window to window, and from image to image.
    pub slopes: *const f32,
    pub slope_steps: [usize; 2],
    pub places: *const u8,
    pub place_steps: [usize; 2],
    /// The sums, added to; and floats from run to run.
    pub out: *mut f32,
    pub wide: usize,
    /// The sum of gradients, added to; or null.
    pub total: *mut f32,
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn gather<V: Vector, const R: usize, const N: usize>(t: &Gather<'_>) {
    // SAFETY: as above; registers at the end of a run are read as far as `last`.
    unsafe {
        let at = |r: usize, n: usize| t.out.add(r * t.wide + n * V::LANES);
        let mut sum: [[V; N]; R] = std::array::from_fn(|r| std::array::from_fn(|n| V::load(at(r, n))));
        let runs: [usize; R] = std::array::from_fn(|r| *t.runs.add(r));
        let mut total = 0.0;
        for image in 0..t.images.0 {
            let x = t.x.add(image * t.images.1);
            let mut slopes = t.slopes.add(image * t.slope_steps[1]);
            let mut places = t.places.add(image * t.place_steps[1]);
            for pixel in t.pixels {
                let place = usize::from(*places);
                let slope = if place < usize::from(super::NOWHERE) { *slopes } else { 0.0 };
                total += slope;
                let x = x.add(*pixel + t.further[place]);
                let slope = V::splat(slope);
                for r in 0..R {
                    for n in 0..N {
                        let x = x.add(runs[r] + n * V::LANES);
                        let x = if n == N - 1 { V::load_part(x, t.last) } else { V::load(x) };
                        sum[r][n] = slope.mul_add(x, sum[r][n]);
                    }
                }
                slopes = slopes.add(t.slope_steps[0]);
                places = places.add(t.place_steps[0]);
            }
        }
        for (r, sum) in sum.iter().enumerate() {
            for (n, sum) in sum.iter().enumerate() {
                sum.store(at(r, n));
            }
        }
        if !t.total.is_null() {
            *t.total += total;
        }
    }
}

/// The gradient by an image, in `R` runs of `N` registers of each window that its own windows looked at: filters times
/// their gradients, gathered over those whose largest element is the same, and then added where that element looked.
pub(super) struct Scatter<'a> {
    /// The image, with margins and room for registers behind it, as `pixels` count.
    pub out: *mut f32,
    pub pixels: &'a [usize],
    pub further: [usize; 5],
    pub runs: *const usize,
    /// Gradients and places `[pixel][filter]`.
    pub slopes: *const f32,
    pub places: *const u8,
    pub filters: usize,
    /// `[filter][run]`, with zeros behind each run; floats from filter to filter, and from run to run.
    pub weight: *const f32,
    pub steps: [usize; 2],
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn scatter<V: Vector, const R: usize, const N: usize>(t: &Scatter<'_>) {
    // SAFETY: as above.
    unsafe {
        let runs: [usize; R] = std::array::from_fn(|r| *t.runs.add(r));
        for (i, pixel) in t.pixels.iter().enumerate() {
            let (slopes, places) = (t.slopes.add(i * t.filters), t.places.add(i * t.filters));
            for place in 0..super::NOWHERE {
                let mut sum = [[V::splat(0.0); N]; R];
                let mut any = false;
                for first in (0..t.filters).step_by(16) {
                    let mut with = equal(places.add(first), place, t.filters - first);
                    any |= with != 0;
                    while with != 0 {
                        let filter = first + with.trailing_zeros() as usize;
                        with &= with - 1;
                        let slope = V::splat(*slopes.add(filter));
                        for r in 0..R {
                            let weight = t.weight.add(filter * t.steps[0] + r * t.steps[1]);
                            for n in 0..N {
                                sum[r][n] = slope.mul_add(V::load(weight.add(n * V::LANES)), sum[r][n]);
                            }
                        }
                    }
                }
                if !any {
                    continue;
                }
                let out = t.out.add(*pixel + t.further[usize::from(place)]);
                for (sum, run) in sum.iter().zip(runs) {
                    for (n, sum) in sum.iter().enumerate() {
                        let out = out.add(run + n * V::LANES);
                        V::splat(1.0).mul_add(V::load(out), *sum).store(out);
                    }
                }
            }
        }
    }
}

/// A bit for each of up to 16 bytes, of which `count` are there, that is equal to `value`.
#[inline(always)]
unsafe fn equal(bytes: *const u8, value: u8, count: usize) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if count >= 16 {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of the architecture; 16 bytes are there.
        return unsafe {
            let same = _mm_cmpeq_epi8(_mm_loadu_si128(bytes.cast()), _mm_set1_epi8(value.cast_signed()));
            _mm_movemask_epi8(same).cast_unsigned()
        };
    }
    // SAFETY: only those that are there are read.
    (0..count.min(16)).fold(0, |bits, i| bits | u32::from(unsafe { *bytes.add(i) } == value) << i)
}

/// Compiled [`Gather`] and [`Scatter`] for a number of runs and of registers.
pub(super) struct Shape {
    pub runs: usize,
    pub registers: usize,
    pub gather: unsafe fn(&Gather<'_>),
    pub scatter: unsafe fn(&Scatter<'_>),
}

macro_rules! compiled {
    ($deal:ident, $sums:ident, $gather:ident, $scatter:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $deal(t: &Decks) {
            // SAFETY: the caller's promise, passed on.
            unsafe { deal::<$vector>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $sums<V: Vector, const F: usize>(t: &Sums<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { add_up::<V, F>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $gather<V: Vector, const R: usize, const N: usize>(t: &Gather<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { gather::<V, R, N>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $scatter<V: Vector, const R: usize, const N: usize>(t: &Scatter<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { scatter::<V, R, N>(t) }
        }
    };
}
compiled!(deal_portable, sums_portable, gather_portable, scatter_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(deal_avx2, sums_avx2, gather_avx2, scatter_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(
    deal_avx512,
    sums_avx512,
    gather_avx512,
    scatter_avx512,
    Avx512,
    "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"
);

/// Compiled [`Decks`].
pub(super) fn decks() -> unsafe fn(&Decks) {
    by_isa!(deal_avx512, deal_avx2, deal_portable)
}

/// How many windows stand side by side in [`Sums`].
pub(super) fn lanes() -> usize {
    by_isa!(Avx512::LANES, Avx2::LANES, Lanes::LANES)
}

/// [`Sums`] by their number of filters, from 1 on: as many as there are registers for.
pub(super) fn sums() -> &'static [SumsFn] {
    by_isa!(
        &[
            sums_avx512::<Avx512, 1>,
            sums_avx512::<Avx512, 2>,
            sums_avx512::<Avx512, 3>,
            sums_avx512::<Avx512, 4>,
            sums_avx512::<Avx512, 5>,
            sums_avx512::<Avx512, 6>,
        ],
        &[sums_avx2::<Avx2, 1>, sums_avx2::<Avx2, 2>, sums_avx2::<Avx2, 3>],
        &[sums_portable::<Lanes, 1>, sums_portable::<Lanes, 2>, sums_portable::<Lanes, 3>]
    )
}

macro_rules! shapes {
    ($gather:ident, $scatter:ident, $vector:ty, [$(($r:literal, $n:literal)),*]) => {
        &[$(Shape { runs: $r, registers: $n, gather: $gather::<$vector, $r, $n>, scatter: $scatter::<$vector, $r, $n> }),*]
    };
}

/// Lanes of the registers of [`shapes`].
pub(super) fn run_lanes() -> usize {
    by_isa!(if whole_registers() { 16 } else { 8 }, 8, 4)
}

/// The shapes there are, larger ones first. Of 8 lanes where there are 16 but not in one piece: these registers lie across
/// cache lines, which costs twice, and fewer of the shorter ones do.
pub(super) fn shapes() -> &'static [Shape] {
    by_isa!(
        if whole_registers() {
            shapes!(
                gather_avx512,
                scatter_avx512,
                Avx512,
                [(5, 4), (3, 4), (2, 4), (1, 4), (5, 2), (3, 2), (2, 2), (1, 2), (5, 1), (3, 1), (2, 1), (1, 1)]
            )
        } else {
            shapes!(
                gather_avx512,
                scatter_avx512,
                Narrow,
                [(5, 4), (3, 4), (2, 4), (1, 4), (5, 2), (3, 2), (2, 2), (1, 2), (5, 1), (3, 1), (2, 1), (1, 1)]
            )
        },
        shapes!(
            gather_avx2,
            scatter_avx2,
            Avx2,
            [(3, 4), (2, 4), (1, 4), (5, 2), (3, 2), (2, 2), (1, 2), (5, 1), (3, 1), (2, 1), (1, 1)]
        ),
        shapes!(
            gather_portable,
            scatter_portable,
            Lanes,
            [(3, 4), (2, 4), (1, 4), (5, 2), (3, 2), (2, 2), (1, 2), (5, 1), (3, 1), (2, 1), (1, 1)]
        )
    )
}
