//! Winograd's way for filters of 5 rows with stride 1. Few filters are transformed down their columns alone (`strips`); many
//! of 5×5 both ways: the 2×2 elements of a pool's window are made with 36 products for each pair of channels instead of 100.
//!
//! ```text
//! elements = Aᵀ [ (G · filter · Gᵀ) ⊙ (Bᵀ · input · B) ] A
//! ```
//!
//! Both ways, each row of an image is transformed once along the row, for all windows that look at it; then each row of
//! windows transforms its six down the columns. A window's columns lie two further than those of the window before: rows are
//! dealt out to even and odd columns first, so that neighbours lie side by side.

mod filters;
mod micro;
mod strips;
mod tiles;

pub(super) use strips::{ROWS as STRIP, Strips};
pub(super) use tiles::Tiles;

use super::micro::lanes;
use super::{Geometry, pooled, windows_abreast};
use crate::cpu::gemm::task_count;
use crate::cpu::gemm::vector::Vector;
use crate::cpu::simd::{Isa, isa};
use crate::ops::conv2d::cpu::winograd_on;

/// Values of a column of a filter.
const TAPS: usize = 5;
/// Values of a side of a transformed window.
const SIDE: usize = 6;
const POINTS: usize = SIDE * SIDE;
/// Points of a side come in two parts, whose sums fit into registers one after the other: 0 and ±a, then ±b and infinity.
const PART: usize = SIDE / 2;

// The interpolation points are 0, ±a, ±b and infinity, as for filters of 3×3: they lose a third of what ±1 and ±2 do.
const A: f32 = 0.625;
const B: f32 = 1.5;
const AA: f32 = A * A;
const BB: f32 = B * B;
// One over the products of a point's differences to the others.
const BY_0: f32 = 1.0 / (AA * BB);
const BY_A: f32 = 1.0 / (2.0 * AA * (AA - BB));
const BY_B: f32 = 1.0 / (2.0 * BB * (BB - AA));

/// Whether filters are 5×5 and nothing is skipped.
pub(super) fn possible(g: &Geometry) -> bool {
    [g.r, g.s] == [TAPS, TAPS] && g.stride == [1, 1] && g.dilation == [1, 1]
}

/// Whether it is switched on and costs less than plain sums: transforms are shared by the filters and by the channels, which
/// must be some, and those of the filters by the windows. Half a register of filters costs as much as a whole one here.
pub(super) fn faster(g: &Geometry) -> bool {
    let windows = g.n * pooled(g).iter().product::<usize>();
    if windows_abreast(g) {
        return winograd_on() && strips::possible(g) && g.k >= 2 && windows >= 24;
    }
    let (least_channels, least_windows) = match isa() {
        // Products cannot take one operand for all lanes there, and few windows have room in 16 registers: loads take most
        // of the time.
        Isa::Avx2 => (8, 48),
        _ => (2, 24),
    };
    winograd_on() && possible(g) && g.k >= lanes() && g.c >= least_channels && windows >= least_windows
}

/// Tasks for all rows of windows. Neighbours look at the same rows of an image, which each task transforms for itself: few
/// tasks, and whole images where there are enough.
pub(super) fn tasks(g: &Geometry) -> usize {
    let pieces = task_count(g.flops() as usize / 4) / g.n.max(1);
    (g.n * pieces.clamp(1, (pooled(g)[0] / 2).max(1))).min(64)
}

/// `factor · x + sum`.
#[inline(always)]
unsafe fn add_scaled<V: Vector>(factor: f32, x: V, sum: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { V::splat(factor).mul_add(x, sum) }
}

/// Bᵀ, the first part: of the first five of six values. Sums and differences are made by additions where they can be, which
/// run beside the products of sums.
#[inline(always)]
unsafe fn first_points<V: Vector>(d: [V; 5]) -> [V; PART] {
    // SAFETY: the caller's promise.
    unsafe {
        let (even, odd) = (add_scaled(-BB, d[2], d[4]), add_scaled(-A * BB, d[1], V::splat(A).mul(d[3])));
        [add_scaled(AA * BB, d[0], add_scaled(-AA - BB, d[2], d[4])), even.add(odd), even.sub(odd)]
    }
}

/// Bᵀ, the second part: of the last five of six values.
#[inline(always)]
unsafe fn last_points<V: Vector>(d: [V; 5]) -> [V; PART] {
    // SAFETY: the caller's promise.
    unsafe {
        let (even, odd) = (add_scaled(-AA, d[1], d[3]), add_scaled(-B * AA, d[0], V::splat(B).mul(d[2])));
        [even.add(odd), even.sub(odd), add_scaled(-B, odd, add_scaled(-AA, d[2], d[4]))]
    }
}

/// Aᵀ, what the first part gives.
#[inline(always)]
unsafe fn first_elements<V: Vector>(m: [V; PART]) -> [V; 2] {
    // SAFETY: the caller's promise.
    unsafe { [m[0].add(m[1].add(m[2])), V::splat(A).mul(m[1].sub(m[2]))] }
}

/// Aᵀ, with what the second part adds.
#[inline(always)]
unsafe fn elements<V: Vector>(first: [V; 2], m: [V; PART]) -> [V; 2] {
    // SAFETY: the caller's promise.
    unsafe { [first[0].add(m[0].add(m[1])), add_scaled(B, m[0].sub(m[1]), first[1].add(m[2]))] }
}

/// G.
#[inline(always)]
unsafe fn filter_points<V: Vector>(g: [V; TAPS]) -> [V; SIDE] {
    // SAFETY: the caller's promise.
    unsafe {
        let even = |square: f32| add_scaled(square, add_scaled(square, g[4], g[2]), g[0]);
        let odd = |point: f32| V::splat(point).mul(add_scaled(point * point, g[3], g[1]));
        let (even_a, odd_a, even_b, odd_b) = (even(AA), odd(A), even(BB), odd(B));
        let (by_a, by_b) = (V::splat(BY_A), V::splat(BY_B));
        [
            V::splat(BY_0).mul(g[0]),
            by_a.mul(even_a.add(odd_a)),
            by_a.mul(even_a.sub(odd_a)),
            by_b.mul(even_b.add(odd_b)),
            by_b.mul(even_b.sub(odd_b)),
            g[4],
        ]
    }
}
