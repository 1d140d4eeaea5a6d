//! The innermost loops, over windows of the images that are laid side by side: window by window, each of its four elements'
//! values with a 1 behind them.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;

/// Lays what filters see side by side, as far as one register of each window goes.
pub(super) struct Lay<'a> {
    /// An image with its padding.
    pub image: *const f32,
    /// Where filters look, in the order in which they are laid.
    pub pixels: &'a [usize],
    /// Of what the register is put together: from which lane on, and where the first lane would be from the pixel on.
    pub pieces: &'a [(usize, isize)],
    /// What is taken off.
    pub middle: *const f32,
    /// Lanes of values, and what follows on them: a 1, or nothing.
    pub values: usize,
    pub behind: *const f32,
    /// Floats from one window to the next.
    pub wide: usize,
    pub to: *mut f32,
}

#[inline(always)]
unsafe fn lay<V: Vector, const P: usize>(t: &Lay<'_>) {
    let pieces = if P == 0 { t.pieces } else { &t.pieces[..P] };
    // SAFETY: the caller's sizes name memory that it may read and write; the vector operations are there by this
    // function's callers.
    unsafe {
        let (middle, behind) = (V::load(t.middle), V::load(t.behind));
        let mut to = t.to;
        for pixel in t.pixels {
            let from = t.image.add(*pixel);
            let mut values = V::load(from.offset(pieces[0].1));
            for (lane, at) in &pieces[1..] {
                values = values.until(*lane, V::load(from.offset(*at)));
            }
            values.sub(middle).until(t.values, behind).store(to);
            to = to.wrapping_add(t.wide);
        }
    }
}

/// Sums over windows of some of their values, each times a register of them.
pub(super) struct Products {
    /// The first window, and how many.
    pub windows: *const f32,
    pub count: usize,
    pub wide: usize,
    /// The first of the values, and of the register.
    pub row: usize,
    pub column: usize,
    /// The sums of the first row, added to; `wide` from row to row.
    pub sums: *mut f32,
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn multiply<V: Vector, const R: usize>(t: &Products) {
    // SAFETY: as above.
    unsafe {
        let place = |r: usize| t.sums.add(r * t.wide + t.column);
        let mut sum: [V; R] = std::array::from_fn(|r| V::load(place(r)));
        for window in 0..t.count {
            let window = t.windows.add(window * t.wide);
            let column = V::load(window.add(t.column));
            for r in 0..R {
                sum[r] = V::splat(*window.add(t.row + r)).mul_add(column, sum[r]);
            }
        }
        for r in 0..R {
            sum[r].store(place(r));
        }
    }
}

/// For `F` filters the sum over windows of their gradient times what won.
pub(super) struct Gather {
    pub windows: *const f32,
    pub count: usize,
    pub wide: usize,
    /// Gradients of the first window, how far from its first element on the winner lies, and how far it is to the next
    /// window's.
    pub slopes: *const f32,
    pub winners: *const u32,
    pub filters: usize,
    /// The sums, added to: `wide` from filter to filter.
    pub sums: *mut f32,
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn gather<V: Vector, const F: usize, const N: usize>(t: &Gather) {
    // SAFETY: as above.
    unsafe {
        let at = |f: usize, n: usize| t.sums.add(f * t.wide + n * V::LANES);
        let mut sum: [[V; N]; F] = std::array::from_fn(|f| std::array::from_fn(|n| V::load(at(f, n))));
        for window in 0..t.count {
            let cells = t.windows.add(window * 4 * t.wide);
            let (slopes, winners) = (t.slopes.add(window * t.filters), t.winners.add(window * t.filters));
            for f in 0..F {
                // Not worked out here: the compiler would do so for all filters in vectors, and take these apart.
                let cell = cells.add(*winners.add(f) as usize);
                let slope = V::splat(*slopes.add(f));
                for n in 0..N {
                    sum[f][n] = slope.mul_add(V::load(cell.add(n * V::LANES)), sum[f][n]);
                }
            }
        }
        for f in 0..F {
            for n in 0..N {
                sum[f][n].store(at(f, n));
            }
        }
    }
}

macro_rules! compiled {
    ($lay:ident, $multiply:ident, $gather:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $lay<const P: usize>(t: &Lay<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { lay::<$vector, P>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $multiply<const R: usize>(t: &Products) {
            // SAFETY: the caller's promise, passed on.
            unsafe { multiply::<$vector, R>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $gather<const F: usize, const N: usize>(t: &Gather) {
            // SAFETY: the caller's promise, passed on.
            unsafe { gather::<$vector, F, N>(t) }
        }
    };
}
compiled!(lay_portable, multiply_portable, gather_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(lay_avx2, multiply_avx2, gather_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(lay_avx512, multiply_avx512, gather_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// Compiled [`Lay`] for a number of pieces.
pub(super) fn layer(pieces: usize) -> unsafe fn(&Lay<'_>) {
    macro_rules! pieces {
        ($name:ident) => {
            match pieces {
                1 => $name::<1>,
                2 => $name::<2>,
                3 => $name::<3>,
                4 => $name::<4>,
                _ => $name::<0>,
            }
        };
    }
    by_isa!(pieces!(lay_avx512), pieces!(lay_avx2), pieces!(lay_portable))
}

/// Floats of a register.
pub(super) fn lanes() -> usize {
    by_isa!(Avx512::LANES, Avx2::LANES, Lanes::LANES)
}

/// Compiled [`Products`] by half their number of rows, from 2 rows on: as many as there are registers for.
pub(super) fn products() -> &'static [unsafe fn(&Products)] {
    macro_rules! rows { ($name:ident, $($r:literal)*) => { &[$($name::<$r>),*] } }
    by_isa!(
        rows!(multiply_avx512, 2 4 6 8 10 12 14 16),
        rows!(multiply_avx2, 2 4 6 8 10 12),
        rows!(multiply_portable, 2 4 6 8)
    )
}

/// Compiled [`Gather`] for windows of so many floats, 16 or 32, and for how many filters.
pub(super) fn gatherer(wide: usize) -> (unsafe fn(&Gather), usize) {
    by_isa!(
        if wide == 16 { (gather_avx512::<8, 1>, 8) } else { (gather_avx512::<8, 2>, 8) },
        if wide == 16 { (gather_avx2::<4, 2>, 4) } else { (gather_avx2::<2, 4>, 2) },
        if wide == 16 { (gather_portable::<2, 4>, 2) } else { (gather_portable::<1, 8>, 1) },
    )
}
