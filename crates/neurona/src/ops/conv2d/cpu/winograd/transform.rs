//! The transforms of F(4×4, 3×3), for a register of channels at a time.
//!
//! ```text
//! pixels = Aᵀ [ (G · filter · Gᵀ) ⊙ (Bᵀ · window · B) ] A
//! filter gradient = Gᵀ [ Σ (A · gradient · Aᵀ) ⊙ (Bᵀ · window · B) ] G
//! ```
//!
//! The interpolation points are 0, ±5/8, ±3/2 and infinity. Sums over channels are long here, and these points lose a
//! third of what the usual ±1 and ±2 do, with factors that are exact all the same but for those of G.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;
use std::array::from_fn;
use std::ops::Range;

/// Values of a side of a transformed tile.
pub(super) const SIDE: usize = 6;
/// Values of a transformed tile.
pub(super) const POINTS: usize = SIDE * SIDE;
/// Pixels of a side of an output tile.
pub(super) const OUT: usize = 4;
/// Values of a side of a filter.
pub(super) const TAPS: usize = 3;
/// Channels of a tile that always lie side by side.
pub(super) const GROUP: usize = 64;
/// Limits of pixels that have none.
pub(super) const UNLIMITED: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];

const A: f32 = 0.625;
const B: f32 = 1.5;
const AA: f32 = A * A;
const BB: f32 = B * B;
// One over the products of a point's differences to the others.
const BY_0: f32 = 1.0 / (AA * BB);
const BY_A: f32 = 1.0 / (2.0 * AA * (AA - BB));
const BY_B: f32 = 1.0 / (2.0 * BB * (BB - AA));

/// One dimension of a transform. Points come in pairs ±a and ±b, which share the sums of even and of odd powers.
///
/// # Safety
/// As for [`Vector`].
trait Side<const I: usize, const O: usize> {
    unsafe fn apply<V: Vector>(from: [V; I]) -> [V; O];
}

/// `factor · x`.
#[inline(always)]
unsafe fn scaled<V: Vector>(factor: f32, x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { V::splat(factor).mul(x) }
}

/// `factor · x + sum`.
#[inline(always)]
unsafe fn add_scaled<V: Vector>(factor: f32, x: V, sum: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { V::splat(factor).mul_add(x, sum) }
}

/// Bᵀ.
struct Window;
impl Side<SIDE, SIDE> for Window {
    #[inline(always)]
    unsafe fn apply<V: Vector>(d: [V; SIDE]) -> [V; SIDE] {
        // SAFETY: the caller's promise.
        unsafe {
            let (even_a, odd_a) = (add_scaled(-BB, d[2], d[4]), add_scaled(-BB, d[1], d[3]));
            let (even_b, odd_b) = (add_scaled(-AA, d[2], d[4]), add_scaled(-AA, d[1], d[3]));
            [
                add_scaled(AA * BB, d[0], add_scaled(-AA - BB, d[2], d[4])),
                add_scaled(A, odd_a, even_a),
                add_scaled(-A, odd_a, even_a),
                add_scaled(B, odd_b, even_b),
                add_scaled(-B, odd_b, even_b),
                add_scaled(AA * BB, d[1], add_scaled(-AA - BB, d[3], d[5])),
            ]
        }
    }
}

/// G.
struct Filter;
impl Side<TAPS, SIDE> for Filter {
    #[inline(always)]
    unsafe fn apply<V: Vector>(g: [V; TAPS]) -> [V; SIDE] {
        // SAFETY: the caller's promise.
        unsafe {
            let (even_a, even_b) =
                (scaled(BY_A, V::splat(AA).mul_add(g[2], g[0])), scaled(BY_B, V::splat(BB).mul_add(g[2], g[0])));
            let (odd_a, odd_b) = (scaled(BY_A * A, g[1]), scaled(BY_B * B, g[1]));
            [scaled(BY_0, g[0]), even_a.add(odd_a), even_a.sub(odd_a), even_b.add(odd_b), even_b.sub(odd_b), g[2]]
        }
    }
}

/// Aᵀ.
struct Pixels;
impl Side<SIDE, OUT> for Pixels {
    #[inline(always)]
    unsafe fn apply<V: Vector>(m: [V; SIDE]) -> [V; OUT] {
        // SAFETY: the caller's promise.
        unsafe {
            let (sum_a, odd_a, sum_b, odd_b) = (m[1].add(m[2]), m[1].sub(m[2]), m[3].add(m[4]), m[3].sub(m[4]));
            [
                m[0].add(sum_a).add(sum_b),
                add_scaled(B, odd_b, V::splat(A).mul(odd_a)),
                add_scaled(BB, sum_b, V::splat(AA).mul(sum_a)),
                add_scaled(B * BB, odd_b, add_scaled(A * AA, odd_a, m[5])),
            ]
        }
    }
}

/// A.
struct Gradient;
impl Side<OUT, SIDE> for Gradient {
    #[inline(always)]
    unsafe fn apply<V: Vector>(d: [V; OUT]) -> [V; SIDE] {
        // SAFETY: the caller's promise.
        unsafe {
            let (even_a, odd_a) = (add_scaled(AA, d[2], d[0]), add_scaled(AA, d[3], d[1]));
            let (even_b, odd_b) = (add_scaled(BB, d[2], d[0]), add_scaled(BB, d[3], d[1]));
            [
                d[0],
                add_scaled(A, odd_a, even_a),
                add_scaled(-A, odd_a, even_a),
                add_scaled(B, odd_b, even_b),
                add_scaled(-B, odd_b, even_b),
                d[3],
            ]
        }
    }
}

/// Gᵀ.
struct Taps;
impl Side<SIDE, TAPS> for Taps {
    #[inline(always)]
    unsafe fn apply<V: Vector>(m: [V; SIDE]) -> [V; TAPS] {
        // SAFETY: the caller's promise.
        unsafe {
            let (sum_a, odd_a) = (scaled(BY_A, m[1].add(m[2])), scaled(BY_A * A, m[1].sub(m[2])));
            let (sum_b, odd_b) = (scaled(BY_B, m[3].add(m[4])), scaled(BY_B * B, m[3].sub(m[4])));
            [
                V::splat(BY_0).mul_add(m[0], sum_a.add(sum_b)),
                odd_a.add(odd_b),
                V::splat(AA).mul_add(sum_a, V::splat(BB).mul_add(sum_b, m[5])),
            ]
        }
    }
}

/// Both dimensions: `load(row, column)` gives the values.
#[inline(always)]
unsafe fn both<V: Vector, S: Side<I, O>, const I: usize, const O: usize>(
    load: impl Fn(usize, usize) -> V,
    mut store: impl FnMut(usize, usize, V),
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Plain loops: what `from_fn` calls would not be inlined.
        let mut half = [[V::splat(0.0); O]; I];
        for (column, half) in half.iter_mut().enumerate() {
            let mut values = [V::splat(0.0); I];
            for (row, value) in values.iter_mut().enumerate() {
                *value = load(row, column);
            }
            *half = S::apply(values);
        }
        for row in 0..O {
            let mut values = [V::splat(0.0); I];
            for (value, half) in values.iter_mut().zip(&half) {
                *value = half[row];
            }
            for (column, &value) in S::apply(values).iter().enumerate() {
                store(row, column, value);
            }
        }
    }
}

/// A tile with all its channels: where it lies in images, and where its transformed values lie.
pub(super) struct Tile {
    /// Its first pixel, which may lie outside of the image.
    pub image: *mut f32,
    /// Floats from row to row and from pixel to pixel.
    pub steps: [usize; 2],
    /// The rows and columns that lie inside.
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub channels: usize,
    /// The first point, and floats from point to point and from one [`GROUP`] of channels to the next.
    pub points: *mut f32,
    pub plane: usize,
    pub group: usize,
    /// For pixels: a value for each channel or null, and the least and the greatest that they may have.
    pub bias: *const f32,
    pub limits: [f32; 2],
}

impl Tile {
    #[inline(always)]
    fn pixel(&self, row: usize, column: usize, channel: usize) -> *mut f32 {
        self.image.wrapping_add(row * self.steps[0] + column * self.steps[1] + channel)
    }

    #[inline(always)]
    fn point(&self, row: usize, column: usize, channel: usize) -> *mut f32 {
        let at = (row * SIDE + column) * self.plane;
        self.points.wrapping_add(at + channel / GROUP * self.group + channel % GROUP)
    }

    /// From an image's pixels to points.
    #[inline(always)]
    unsafe fn take<V: Vector, S: Side<I, SIDE>, const I: usize>(&self) {
        let inside = self.rows == (0..I) && self.columns == (0..I);
        let rows: [bool; I] = from_fn(|row| self.rows.contains(&row));
        let columns: [bool; I] = from_fn(|column| self.columns.contains(&column));
        for first in (0..self.channels).step_by(V::LANES) {
            let lanes = V::LANES.min(self.channels - first);
            // SAFETY: the caller's promise: pixels inside and all points may be read and written.
            unsafe {
                if inside && lanes == V::LANES {
                    both::<V, S, I, SIDE>(
                        #[inline(always)]
                        |row, column| V::load(self.pixel(row, column, first)),
                        #[inline(always)]
                        |row, column, v| v.store(self.point(row, column, first)),
                    );
                } else {
                    both::<V, S, I, SIDE>(
                        #[inline(always)]
                        |row, column| {
                            let live = if rows[row] && columns[column] { lanes } else { 0 };
                            V::load_part(self.pixel(row, column, first), live)
                        },
                        #[inline(always)]
                        |row, column, v| v.store_part(self.point(row, column, first), lanes),
                    );
                }
            }
        }
    }

    /// From points to an image's pixels.
    #[inline(always)]
    unsafe fn give<V: Vector>(&self) {
        let inside = self.rows == (0..OUT) && self.columns == (0..OUT);
        for first in (0..self.channels).step_by(V::LANES) {
            let lanes = V::LANES.min(self.channels - first);
            // SAFETY: the caller's promise: pixels inside may be written, all points and a bias read.
            unsafe {
                let bias = match self.bias.is_null() {
                    true => V::splat(0.0),
                    false => V::load_part(self.bias.add(first), lanes),
                };
                let (least, most) = (V::splat(self.limits[0]), V::splat(self.limits[1]));
                if inside && lanes == V::LANES {
                    both::<V, Pixels, SIDE, OUT>(
                        #[inline(always)]
                        |row, column| V::load(self.point(row, column, first)),
                        #[inline(always)]
                        |row, column, v| most.min(least.max(v.add(bias))).store(self.pixel(row, column, first)),
                    );
                } else {
                    both::<V, Pixels, SIDE, OUT>(
                        #[inline(always)]
                        |row, column| V::load_part(self.point(row, column, first), lanes),
                        #[inline(always)]
                        |row, column, v| {
                            if self.rows.contains(&row) && self.columns.contains(&column) {
                                most.min(least.max(v.add(bias))).store_part(self.pixel(row, column, first), lanes);
                            }
                        },
                    );
                }
            }
        }
    }
}

impl Tile {
    /// From points to the greatest of each 2 by 2 of an image's pixels; rows, columns and steps are those of windows.
    #[inline(always)]
    unsafe fn give_windows<V: Vector>(&self) {
        for first in (0..self.channels).step_by(V::LANES) {
            let lanes = V::LANES.min(self.channels - first);
            // SAFETY: the caller's promise: windows inside may be written, all points and a bias read.
            unsafe {
                let mut pixels = [[V::splat(0.0); OUT]; OUT];
                both::<V, Pixels, SIDE, OUT>(
                    #[inline(always)]
                    |row, column| V::load_part(self.point(row, column, first), lanes),
                    #[inline(always)]
                    |row, column, v| pixels[row][column] = v,
                );
                let bias = match self.bias.is_null() {
                    true => V::splat(0.0),
                    false => V::load_part(self.bias.add(first), lanes),
                };
                let (least, most) = (V::splat(self.limits[0]), V::splat(self.limits[1]));
                for (row, pixels) in pixels.as_chunks::<2>().0.iter().enumerate() {
                    for column in 0..OUT / 2 {
                        // No closure for `map`: it would lack the instruction set.
                        let above = pixels[0][2 * column].greatest(pixels[0][2 * column + 1]);
                        let below = pixels[1][2 * column].greatest(pixels[1][2 * column + 1]);
                        if self.rows.contains(&row) && self.columns.contains(&column) {
                            // Before a bias the same one is greatest as after it.
                            let v = most.min(least.max(above.greatest(below).add(bias)));
                            v.store_part(self.pixel(row, column, first), lanes);
                        }
                    }
                }
            }
        }
    }
}

/// Filters side by side: nine runs of taps and 36 of points, each of `count` floats.
pub(super) struct Filters {
    pub taps: *mut f32,
    /// Floats from tap to tap.
    pub tap: usize,
    /// Whether taps are in reverse order.
    pub turned: bool,
    pub points: *mut f32,
    /// Floats from point to point.
    pub plane: usize,
    pub count: usize,
    /// Factors of the first [`GROUP`] floats, which repeat.
    pub scale: [f32; GROUP],
}

impl Filters {
    #[inline(always)]
    fn tap(&self, row: usize, column: usize, at: usize) -> *mut f32 {
        let tap = row * TAPS + column;
        self.taps.wrapping_add(if self.turned { TAPS * TAPS - 1 - tap } else { tap } * self.tap + at)
    }

    #[inline(always)]
    fn point(&self, row: usize, column: usize, at: usize) -> *mut f32 {
        self.points.wrapping_add((row * SIDE + column) * self.plane + at)
    }

    /// From taps to points.
    #[inline(always)]
    unsafe fn take<V: Vector>(&self) {
        for at in (0..self.count).step_by(V::LANES) {
            let lanes = V::LANES.min(self.count - at);
            // SAFETY: the caller's promise: all taps may be read and points written.
            unsafe {
                let scale = V::load(self.scale[at % GROUP..].as_ptr());
                if lanes == V::LANES {
                    both::<V, Filter, TAPS, SIDE>(
                        #[inline(always)]
                        |row, column| V::load(self.tap(row, column, at)).mul(scale),
                        #[inline(always)]
                        |row, column, v| v.store(self.point(row, column, at)),
                    );
                } else {
                    both::<V, Filter, TAPS, SIDE>(
                        #[inline(always)]
                        |row, column| V::load_part(self.tap(row, column, at), lanes).mul(scale),
                        #[inline(always)]
                        |row, column, v| v.store_part(self.point(row, column, at), lanes),
                    );
                }
            }
        }
    }

    /// From points to taps.
    #[inline(always)]
    unsafe fn give<V: Vector>(&self) {
        for at in (0..self.count).step_by(V::LANES) {
            let lanes = V::LANES.min(self.count - at);
            // SAFETY: the caller's promise: all points may be read and taps written.
            unsafe {
                both::<V, Taps, SIDE, TAPS>(
                    #[inline(always)]
                    |row, column| V::load_part(self.point(row, column, at), lanes),
                    #[inline(always)]
                    |row, column, v| v.store_part(self.tap(row, column, at), lanes),
                );
            }
        }
    }
}

/// The transforms of an instruction set. What the tile or the filters name must be readable, and what is written must
/// belong to the caller.
pub(super) struct Transforms {
    /// Windows of 6×6 pixels to points.
    pub window: unsafe fn(&Tile),
    /// Gradients of 4×4 pixels to points.
    pub gradient: unsafe fn(&Tile),
    /// Points to 4×4 pixels.
    pub pixels: unsafe fn(&Tile),
    /// Points to the greatest of each 2×2 pixels.
    pub windows: unsafe fn(&Tile),
    pub filters: unsafe fn(&Filters),
    /// Points to gradients of filters.
    pub taps: unsafe fn(&Filters),
}

macro_rules! compiled {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        static $name: Transforms = {
            $(#[target_feature(enable = $features)])?
            unsafe fn window(t: &Tile) {
                // SAFETY: the caller's promise, passed on.
                unsafe { t.take::<$vector, Window, SIDE>() }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gradient(t: &Tile) {
                // SAFETY: as above.
                unsafe { t.take::<$vector, Gradient, OUT>() }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn pixels(t: &Tile) {
                // SAFETY: as above.
                unsafe { t.give::<$vector>() }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn windows(t: &Tile) {
                // SAFETY: as above.
                unsafe { t.give_windows::<$vector>() }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn filters(f: &Filters) {
                // SAFETY: as above.
                unsafe { f.take::<$vector>() }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn taps(f: &Filters) {
                // SAFETY: as above.
                unsafe { f.give::<$vector>() }
            }
            Transforms { window, gradient, pixels, windows, filters, taps }
        };
    };
}
compiled!(PORTABLE, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(AVX2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(AVX512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The transforms of the instruction set in use.
pub(super) fn transforms() -> &'static Transforms {
    by_isa!(&AVX512, &AVX2, &PORTABLE)
}
