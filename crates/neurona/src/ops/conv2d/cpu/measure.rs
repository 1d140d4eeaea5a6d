//! Statistics of what a convolution gives, taken tile by tile while it is in the first-level cache: batch normalisation
//! then need not read all of it only to measure it.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::kernel::{Buf, Io};
use crate::cpu::simd::by_isa;
use crate::ops::batch_norm::cpu::{record, settled};

/// Columns at most that are measured together.
pub(super) const WIDEST: usize = 64;

/// Pixels that are measured together.
pub(super) const TOGETHER: usize = 16;

/// Sums over some pixels for a few columns.
///
/// They are of distances from a value near the mean, that of the first pixels. Single precision is then enough whatever
/// the offset of the data: should these pixels be unlike all others, they add to the variance what the sums lose.
pub(super) struct Measure {
    columns: usize,
    pixels: usize,
    near: [f32; WIDEST],
    sums: [f32; WIDEST],
    squares: [f32; WIDEST],
}

impl Measure {
    /// Of so many columns, up to [`WIDEST`].
    pub fn new(columns: usize) -> Self {
        assert!(columns <= WIDEST);
        Measure { columns, pixels: 0, near: [0.0; WIDEST], sums: [0.0; WIDEST], squares: [0.0; WIDEST] }
    }

    /// Adds pixels whose columns begin at these distances from `at`. A few at a time: their sums are taken first, which
    /// keeps the tree of all sums low.
    ///
    /// # Safety
    /// They must be readable.
    pub unsafe fn add(&mut self, at: *const f32, pixels: &[usize]) {
        let add = by_isa!(add_avx512, add_avx2, add_portable);
        // SAFETY: the caller's promise; the instruction set is the one in use.
        unsafe { add(self, at, pixels) };
    }

    #[inline(always)]
    unsafe fn add_by<V: Vector>(&mut self, at: *const f32, pixels: &[usize]) {
        let first = self.pixels == 0 && !pixels.is_empty();
        self.pixels += pixels.len();
        for column in (0..self.columns).step_by(V::LANES) {
            let lanes = V::LANES.min(self.columns - column);
            let at = at.wrapping_add(column);
            // SAFETY: the caller's promise; the sums of whole registers are there.
            unsafe {
                if lanes == V::LANES {
                    self.block::<V>(
                        column,
                        first,
                        pixels,
                        #[inline(always)]
                        |pixel| V::load(at.wrapping_add(pixel)),
                    );
                } else {
                    self.block::<V>(
                        column,
                        first,
                        pixels,
                        #[inline(always)]
                        |pixel| V::load_part(at.wrapping_add(pixel), lanes),
                    );
                }
            }
        }
    }

    /// Adds a register of columns.
    #[inline(always)]
    unsafe fn block<V: Vector>(&mut self, column: usize, first: bool, pixels: &[usize], load: impl Fn(usize) -> V) {
        let part = |of: &mut [f32; WIDEST]| of[column..column + V::LANES].as_mut_ptr();
        let (near, sums, squares) = (part(&mut self.near), part(&mut self.sums), part(&mut self.squares));
        // SAFETY: a whole register of each is there; the caller's promise.
        unsafe {
            if first {
                let mut sum = V::splat(0.0);
                for &pixel in pixels {
                    sum = sum.add(load(pixel));
                }
                sum.mul(V::splat(1.0 / pixels.len() as f32)).store(near);
            }
            let near = V::load(near);
            let (mut sum, mut square) = (V::splat(0.0), V::splat(0.0));
            for &pixel in pixels {
                let apart = load(pixel).sub(near);
                sum = sum.add(apart);
                square = apart.mul_add(apart, square);
            }
            V::load(sums).add(sum).store(sums);
            V::load(squares).add(square).store(squares);
        }
    }

    /// Values near the means, by the first pixels, whose columns begin at these distances from `at`; and room for the sums of
    /// distances from them, and of these squared, to which the caller adds some pixels itself.
    ///
    /// # Safety
    /// They must be readable.
    pub unsafe fn taking(&mut self, at: *const f32, pixels: &[usize], count: usize) -> [&mut [f32; WIDEST]; 3] {
        if self.pixels == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.add(at, pixels) };
            (self.sums, self.squares) = ([0.0; WIDEST], [0.0; WIDEST]);
            self.pixels = 0;
        }
        self.pixels += count;
        [&mut self.near, &mut self.sums, &mut self.squares]
    }

    /// Writes a part's statistics for the columns from `column` on, of `k`: its row of the second result. Whoever has
    /// the first column writes the number of pixels.
    pub fn put(&self, io: &Io<'_>, part: usize, k: usize, column: usize) {
        let row: Buf = io.outputs[1].part::<f64>(part * record(k), record(k));
        if column == 0 {
            // SAFETY: one task has the first column of this part.
            let count = unsafe { row.slice_mut::<f64>(0..1) };
            count[0] = self.pixels as f64;
        }
        let (means, squares) = (1 + column, 1 + k + column);
        // SAFETY: one task has these columns of this part; the two ranges do not overlap.
        let (means, squares) = unsafe {
            (row.slice_mut::<f64>(means..means + self.columns), row.slice_mut::<f64>(squares..squares + self.columns))
        };
        for (i, (mean, square)) in means.iter_mut().zip(squares).enumerate() {
            let [near, sum, sum_of_squares] = [self.near[i], self.sums[i], self.squares[i]].map(f64::from);
            (*mean, *square) = settled(near, sum, sum_of_squares, self.pixels as f64);
        }
    }
}

macro_rules! compiled {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $name(measure: &mut Measure, at: *const f32, pixels: &[usize]) {
            // SAFETY: the caller's promise, passed on.
            unsafe { measure.add_by::<$vector>(at, pixels) }
        }
    };
}
compiled!(add_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(add_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(add_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");
