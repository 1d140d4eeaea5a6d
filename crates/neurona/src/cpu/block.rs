//! A few lanes of any real type that are worked on together, with comparisons: where loops over arrays would leave masks to
//! the compiler, which puts some of them together bit by bit.

use super::math::Real;

/// Some lanes. Those of the widest registers exist only where there are such registers.
pub(crate) trait Block<T>: Copy {
    /// One truth a lane.
    type Mask: Copy;

    /// All lanes equal to `x`.
    ///
    /// # Safety
    /// The machine must have the instructions of the type; so with [`Self::load`], and with no other method, because there
    /// is a value only where one of these two made it.
    unsafe fn splat(x: T) -> Self;
    /// The lanes from this place on.
    ///
    /// # Safety
    /// As above.
    unsafe fn load(from: &[T], at: usize) -> Self;
    /// Writes all lanes.
    fn store(self, to: &mut [T], at: usize);
    /// `self + x`.
    fn add(self, x: Self) -> Self;
    /// `self - x`.
    fn sub(self, x: Self) -> Self;
    /// `self · x`, rounded.
    fn mul(self, x: Self) -> Self;
    /// Where it is greater.
    fn above(self, x: Self) -> Self::Mask;
    /// Where it is greater, or no number.
    fn beats(self, x: Self) -> Self::Mask;
    /// Where both are equal.
    fn equals(self, x: Self) -> Self::Mask;
    /// `yes` where it is so, else `no`.
    fn choose(so: Self::Mask, yes: Self, no: Self) -> Self;
}

impl<T: Real, const L: usize> Block<T> for [T; L] {
    type Mask = [bool; L];

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        [x; L]
    }
    #[inline(always)]
    unsafe fn load(from: &[T], at: usize) -> Self {
        let mut lanes = [T::zero(); L];
        lanes.copy_from_slice(&from[at..at + L]);
        lanes
    }
    #[inline(always)]
    fn store(self, to: &mut [T], at: usize) {
        to[at..at + L].copy_from_slice(&self);
    }
    #[inline(always)]
    fn add(self, x: Self) -> Self {
        each(|j| self[j] + x[j])
    }
    #[inline(always)]
    fn sub(self, x: Self) -> Self {
        each(|j| self[j] - x[j])
    }
    #[inline(always)]
    fn mul(self, x: Self) -> Self {
        each(|j| self[j] * x[j])
    }
    #[inline(always)]
    fn above(self, x: Self) -> [bool; L] {
        truths(|j| self[j] > x[j])
    }
    #[inline(always)]
    fn beats(self, x: Self) -> [bool; L] {
        truths(|j| (self[j] > x[j]) | self[j].is_nan())
    }
    #[inline(always)]
    fn equals(self, x: Self) -> [bool; L] {
        truths(|j| self[j] == x[j])
    }
    #[inline(always)]
    fn choose(so: [bool; L], yes: Self, no: Self) -> Self {
        each(|j| if so[j] { yes[j] } else { no[j] })
    }
}

/// Plain loops: what `from_fn` calls would not be inlined.
#[inline(always)]
fn each<T: Real, const L: usize>(lane: impl Fn(usize) -> T) -> [T; L] {
    let mut lanes = [T::zero(); L];
    for (j, value) in lanes.iter_mut().enumerate() {
        *value = lane(j);
    }
    lanes
}

#[inline(always)]
fn truths<const L: usize>(lane: impl Fn(usize) -> bool) -> [bool; L] {
    let mut lanes = [false; L];
    for (j, value) in lanes.iter_mut().enumerate() {
        *value = lane(j);
    }
    lanes
}

/// Sixteen lanes of `f32`.
#[cfg(target_arch = "x86_64")]
pub use wide::Sixteen;
/// Sixteen lanes of `f32`.
#[cfg(not(target_arch = "x86_64"))]
pub type Sixteen = [f32; 16];

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::Block;
    use std::arch::x86_64::*;

    /// Sixteen lanes in a register of AVX-512.
    #[derive(Clone, Copy, Debug)]
    pub struct Sixteen(__m512);

    impl Block<f32> for Sixteen {
        type Mask = __mmask16;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller's promise.
            Sixteen(unsafe { _mm512_set1_ps(x) })
        }
        #[inline(always)]
        unsafe fn load(from: &[f32], at: usize) -> Self {
            // SAFETY: the caller's promise; sixteen are there.
            Sixteen(unsafe { _mm512_loadu_ps(from[at..at + 16].as_ptr()) })
        }
        #[inline(always)]
        fn store(self, to: &mut [f32], at: usize) {
            // SAFETY: there is a value, so there are the instructions; sixteen are there.
            unsafe { _mm512_storeu_ps(to[at..at + 16].as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn add(self, x: Self) -> Self {
            // SAFETY: there is a value, so there are the instructions.
            Sixteen(unsafe { _mm512_add_ps(self.0, x.0) })
        }
        #[inline(always)]
        fn sub(self, x: Self) -> Self {
            // SAFETY: as above.
            Sixteen(unsafe { _mm512_sub_ps(self.0, x.0) })
        }
        #[inline(always)]
        fn mul(self, x: Self) -> Self {
            // SAFETY: as above.
            Sixteen(unsafe { _mm512_mul_ps(self.0, x.0) })
        }
        #[inline(always)]
        fn above(self, x: Self) -> __mmask16 {
            // SAFETY: as above.
            unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, x.0) }
        }
        #[inline(always)]
        fn beats(self, x: Self) -> __mmask16 {
            // SAFETY: as above.
            unsafe { self.above(x) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0) }
        }
        #[inline(always)]
        fn equals(self, x: Self) -> __mmask16 {
            // SAFETY: as above.
            unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, x.0) }
        }
        #[inline(always)]
        fn choose(so: __mmask16, yes: Self, no: Self) -> Self {
            // SAFETY: as above.
            Sixteen(unsafe { _mm512_mask_mov_ps(no.0, so, yes.0) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Isa, isa};

    #[test]
    fn registers_do_what_arrays_do() {
        if isa() != Isa::Avx512 {
            return;
        }
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 1e-40];
        let a: [f32; 16] = std::array::from_fn(|i| odd[i % 8]);
        for shift in 0..8 {
            let b: [f32; 16] = std::array::from_fn(|i| odd[(i + i / 8 + shift) % 8]);
            // SAFETY: the instructions are there.
            let [x, y] = unsafe { [Sixteen::load(&a, 0), Sixteen::load(&b, 0)] };
            let (plain, wide) = (<[f32; 16] as Block<f32>>::choose, Sixteen::choose);
            let pairs = [
                (plain(Block::<f32>::beats(a, b), a, b), wide(x.beats(y), x, y)),
                (plain(Block::<f32>::above(a, b), a, b), wide(x.above(y), x, y)),
                (plain(Block::<f32>::equals(a, b), a, b), wide(x.equals(y), x, y)),
                (Block::<f32>::add(a, b), x.add(y)),
                (Block::<f32>::sub(a, b), x.sub(y)),
                (Block::<f32>::mul(a, b), x.mul(y)),
            ];
            for (want, got) in pairs {
                let mut lanes = [9f32; 16];
                got.store(&mut lanes, 0);
                let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
                assert!(want.iter().zip(&lanes).all(same), "{want:?} {lanes:?}");
            }
        }
    }
}
