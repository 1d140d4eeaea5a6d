//! The few vector operations that the matrix kernels are written in, one type an instruction set.

/// A register of `f32` lanes.
///
/// # Safety
/// Every method needs the instructions of its type; the functions that use them are compiled
/// (`#[target_feature]`) and called only where `simd::isa` has found those.
pub(crate) trait Vector: Copy {
    /// Floats in one register.
    const LANES: usize;

    /// All lanes equal to `x`.
    unsafe fn splat(x: f32) -> Self;
    /// The lanes at `p`.
    unsafe fn load(p: *const f32) -> Self;
    /// The first `n` lanes from `p`, zeros above; nothing else is read.
    unsafe fn load_part(p: *const f32, n: usize) -> Self;
    /// Writes all lanes.
    unsafe fn store(self, p: *mut f32);
    /// Writes all lanes to memory past the caches, see [`crate::cpu::stream`]; `p` is aligned to a register.
    unsafe fn stream(self, p: *mut f32);
    /// Writes the first `n` lanes.
    unsafe fn store_part(self, p: *mut f32, n: usize);
    /// `self + x`.
    unsafe fn add(self, x: Self) -> Self;
    /// `self - x`.
    unsafe fn sub(self, x: Self) -> Self;
    /// `self · x`.
    unsafe fn mul(self, x: Self) -> Self;
    /// `self · x + sum`.
    unsafe fn mul_add(self, x: Self, sum: Self) -> Self;
    /// Lane-wise maximum; `x` where either is not a number.
    unsafe fn max(self, x: Self) -> Self;
    /// Lane-wise minimum; `x` where either is not a number.
    unsafe fn min(self, x: Self) -> Self;
    /// Lane-wise maximum; not a number where either is none.
    unsafe fn greatest(self, x: Self) -> Self;
    /// The first `n` lanes, then those of `next`.
    unsafe fn until(self, n: usize, next: Self) -> Self;
    /// Lane `i` is the lane that the `i`-th number at `lanes` names; all are below [`Self::LANES`].
    unsafe fn permute(self, lanes: *const i32) -> Self;
    /// The lanes of two registers, one behind the other, at even and at odd places.
    unsafe fn unzip(self, next: Self) -> [Self; 2];
    /// The sum over lanes of each of four registers.
    unsafe fn sums(v: [Self; 4]) -> [f32; 4];
}

/// Four lanes of plain Rust, which every target's compiler turns into its 128-bit registers.
#[derive(Clone, Copy)]
pub(crate) struct Lanes([f32; 4]);

impl Vector for Lanes {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Lanes([x; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller has four floats at `p`.
        Lanes(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        // SAFETY: only the first `n` are read, which the caller has.
        Lanes(std::array::from_fn(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller owns four floats at `p`.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller's promise. Plain Rust has no such stores.
        unsafe { self.store(p) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        for (i, &x) in self.0.iter().enumerate().take(n) {
            // SAFETY: only the first `n` are written, which the caller owns.
            unsafe { *p.add(i) = x }
        }
    }
    #[inline(always)]
    unsafe fn add(self, x: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i] + x.0[i]))
    }
    #[inline(always)]
    unsafe fn sub(self, x: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i] - x.0[i]))
    }
    #[inline(always)]
    unsafe fn mul(self, x: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i] * x.0[i]))
    }
    #[inline(always)]
    unsafe fn mul_add(self, x: Self, sum: Self) -> Self {
        // Two roundings: `f32::mul_add` would be a call into libm on targets without the instruction.
        Lanes(std::array::from_fn(|i| self.0[i] * x.0[i] + sum.0[i]))
    }
    #[inline(always)]
    unsafe fn max(self, x: Self) -> Self {
        Lanes(std::array::from_fn(|i| if self.0[i] > x.0[i] { self.0[i] } else { x.0[i] }))
    }
    #[inline(always)]
    unsafe fn min(self, x: Self) -> Self {
        Lanes(std::array::from_fn(|i| if self.0[i] < x.0[i] { self.0[i] } else { x.0[i] }))
    }
    #[inline(always)]
    unsafe fn greatest(self, x: Self) -> Self {
        let greater = |a: f32, b: f32| if a > b || a.is_nan() { a } else { b };
        Lanes(std::array::from_fn(|i| greater(self.0[i], x.0[i])))
    }
    #[inline(always)]
    unsafe fn until(self, n: usize, next: Self) -> Self {
        Lanes(std::array::from_fn(|i| if i < n { self.0[i] } else { next.0[i] }))
    }
    #[inline(always)]
    unsafe fn permute(self, lanes: *const i32) -> Self {
        // SAFETY: the caller has four numbers at `lanes`.
        Lanes(std::array::from_fn(|i| self.0[unsafe { *lanes.add(i) } as usize % 4]))
    }
    #[inline(always)]
    unsafe fn unzip(self, next: Self) -> [Self; 2] {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, next.0);
        [Lanes([a, c, e, g]), Lanes([b, d, f, h])]
    }
    #[inline(always)]
    unsafe fn sums(v: [Self; 4]) -> [f32; 4] {
        v.map(|Lanes(x)| (x[0] + x[1]) + (x[2] + x[3]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Narrow};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// Eight lanes, AVX2.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256);
    /// Sixteen lanes, AVX-512.
    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);
    /// Eight lanes with AVX-512's masks and 32 registers, for matrices of few columns.
    #[derive(Clone, Copy)]
    pub struct Narrow(__m256);

    /// Sliding window over this gives a mask whose first n lanes are set.
    static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[inline(always)]
    unsafe fn mask(n: usize) -> __m256i {
        debug_assert!(n <= 8);
        // SAFETY: n <= 8, so that eight entries from 8 - n lie inside the table.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n).cast()) }
    }

    #[inline(always)]
    unsafe fn sums256(v: [__m256; 4]) -> [f32; 4] {
        // SAFETY: AVX, by the trait's contract.
        unsafe {
            let low = _mm256_hadd_ps(v[0], v[1]);
            let high = _mm256_hadd_ps(v[2], v[3]);
            let both = _mm256_hadd_ps(low, high);
            let sum = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both));
            std::mem::transmute::<__m128, [f32; 4]>(sum)
        }
    }

    #[inline(always)]
    unsafe fn greatest256(a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX, by the caller's promise. The second operand is the result where either is no number.
        unsafe { _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a)) }
    }

    #[inline(always)]
    unsafe fn unzip256(a: __m256, b: __m256) -> [__m256; 2] {
        // SAFETY: AVX2, by the caller's promise.
        unsafe {
            // Inside each half first, then the quarters in their order.
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
            let even = _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(even));
            [even, _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(odd))]
        }
    }

    /// The lower half plus the upper one. No closure for `array::map`: it would lack the instruction set, and each
    /// intrinsic in it would be a call.
    #[inline(always)]
    unsafe fn halves(x: __m512) -> __m256 {
        // SAFETY: AVX-512 DQ, by the caller's promise.
        unsafe { _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x)) }
    }

    macro_rules! common {
        (
            $lanes:literal, $splat:ident, $load:ident, $store:ident, $stream:ident,
            $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $min:ident
        ) => {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: f32) -> Self {
                // SAFETY: the instructions are there, by the trait's contract.
                Self(unsafe { $splat(x) })
            }
            #[inline(always)]
            unsafe fn load(p: *const f32) -> Self {
                // SAFETY: as above; the caller has the lanes at `p`.
                Self(unsafe { $load(p) })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut f32) {
                // SAFETY: as above; the caller owns the lanes at `p`.
                unsafe { $store(p, self.0) }
            }
            #[inline(always)]
            unsafe fn stream(self, p: *mut f32) {
                // SAFETY: as above, and `p` is aligned.
                unsafe { $stream(p, self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, x: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $add(self.0, x.0) })
            }
            #[inline(always)]
            unsafe fn sub(self, x: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $sub(self.0, x.0) })
            }
            #[inline(always)]
            unsafe fn mul(self, x: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $mul(self.0, x.0) })
            }
            #[inline(always)]
            unsafe fn mul_add(self, x: Self, sum: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $fma(self.0, x.0, sum.0) })
            }
            #[inline(always)]
            unsafe fn max(self, x: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $max(self.0, x.0) })
            }
            #[inline(always)]
            unsafe fn min(self, x: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $min(self.0, x.0) })
            }
        };
    }

    impl Vector for Avx2 {
        common!(
            8,
            _mm256_set1_ps,
            _mm256_loadu_ps,
            _mm256_storeu_ps,
            _mm256_stream_ps,
            _mm256_add_ps,
            _mm256_sub_ps,
            _mm256_mul_ps,
            _mm256_fmadd_ps,
            _mm256_max_ps,
            _mm256_min_ps
        );

        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize) -> Self {
            // SAFETY: AVX, by the trait's contract; masked lanes are not read.
            Self(unsafe { _mm256_maskload_ps(p, mask(n)) })
        }
        #[inline(always)]
        unsafe fn store_part(self, p: *mut f32, n: usize) {
            // Not a masked store: it is microcoded on AMD cores.
            let mut all = [0f32; 8];
            // SAFETY: `all` holds eight; the caller owns `n` floats at `p`.
            unsafe {
                _mm256_storeu_ps(all.as_mut_ptr(), self.0);
                for (i, &x) in all.iter().enumerate().take(n) {
                    *p.add(i) = x;
                }
            }
        }
        #[inline(always)]
        unsafe fn greatest(self, x: Self) -> Self {
            // SAFETY: AVX, by the trait's contract.
            Self(unsafe { greatest256(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn until(self, n: usize, next: Self) -> Self {
            // SAFETY: AVX2, by the trait's contract. Blending looks at the highest bit of a lane.
            Self(unsafe { _mm256_blendv_ps(next.0, self.0, _mm256_castsi256_ps(mask(n))) })
        }
        #[inline(always)]
        unsafe fn permute(self, lanes: *const i32) -> Self {
            // SAFETY: AVX2, by the trait's contract; the caller has eight numbers at `lanes`.
            Self(unsafe { _mm256_permutevar8x32_ps(self.0, _mm256_loadu_si256(lanes.cast())) })
        }
        #[inline(always)]
        unsafe fn unzip(self, next: Self) -> [Self; 2] {
            // SAFETY: AVX2, by the trait's contract.
            let [even, odd] = unsafe { unzip256(self.0, next.0) };
            [Self(even), Self(odd)]
        }
        #[inline(always)]
        unsafe fn sums(v: [Self; 4]) -> [f32; 4] {
            // SAFETY: AVX, by the trait's contract.
            unsafe { sums256([v[0].0, v[1].0, v[2].0, v[3].0]) }
        }
    }

    impl Vector for Narrow {
        common!(
            8,
            _mm256_set1_ps,
            _mm256_loadu_ps,
            _mm256_storeu_ps,
            _mm256_stream_ps,
            _mm256_add_ps,
            _mm256_sub_ps,
            _mm256_mul_ps,
            _mm256_fmadd_ps,
            _mm256_max_ps,
            _mm256_min_ps
        );

        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize) -> Self {
            // SAFETY: AVX-512 VL, by the trait's contract; masked lanes are not read.
            Self(unsafe { _mm256_maskz_loadu_ps(((1u32 << n) - 1) as __mmask8, p) })
        }
        #[inline(always)]
        unsafe fn store_part(self, p: *mut f32, n: usize) {
            // SAFETY: as above; masked lanes are not written.
            unsafe { _mm256_mask_storeu_ps(p, ((1u32 << n) - 1) as __mmask8, self.0) }
        }
        #[inline(always)]
        unsafe fn greatest(self, x: Self) -> Self {
            // SAFETY: AVX, by the trait's contract.
            Self(unsafe { greatest256(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn until(self, n: usize, next: Self) -> Self {
            // SAFETY: AVX-512 VL, by the trait's contract.
            Self(unsafe { _mm256_mask_mov_ps(next.0, ((1u32 << n) - 1) as __mmask8, self.0) })
        }
        #[inline(always)]
        unsafe fn permute(self, lanes: *const i32) -> Self {
            // SAFETY: AVX2, by the trait's contract; the caller has eight numbers at `lanes`.
            Self(unsafe { _mm256_permutevar8x32_ps(self.0, _mm256_loadu_si256(lanes.cast())) })
        }
        #[inline(always)]
        unsafe fn unzip(self, next: Self) -> [Self; 2] {
            // SAFETY: AVX2, by the trait's contract.
            let [even, odd] = unsafe { unzip256(self.0, next.0) };
            [Self(even), Self(odd)]
        }
        #[inline(always)]
        unsafe fn sums(v: [Self; 4]) -> [f32; 4] {
            // SAFETY: AVX, by the trait's contract.
            unsafe { sums256([v[0].0, v[1].0, v[2].0, v[3].0]) }
        }
    }

    impl Vector for Avx512 {
        common!(
            16,
            _mm512_set1_ps,
            _mm512_loadu_ps,
            _mm512_storeu_ps,
            _mm512_stream_ps,
            _mm512_add_ps,
            _mm512_sub_ps,
            _mm512_mul_ps,
            _mm512_fmadd_ps,
            _mm512_max_ps,
            _mm512_min_ps
        );

        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize) -> Self {
            // SAFETY: AVX-512, by the trait's contract; masked lanes are not read.
            Self(unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as __mmask16, p) })
        }
        #[inline(always)]
        unsafe fn store_part(self, p: *mut f32, n: usize) {
            // SAFETY: as above; masked lanes are not written.
            unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as __mmask16, self.0) }
        }
        #[inline(always)]
        unsafe fn greatest(self, x: Self) -> Self {
            // SAFETY: AVX-512, by the trait's contract. The second operand is the result where either is no number.
            unsafe {
                let none = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
                Self(_mm512_mask_mov_ps(_mm512_max_ps(self.0, x.0), none, self.0))
            }
        }
        #[inline(always)]
        unsafe fn until(self, n: usize, next: Self) -> Self {
            // SAFETY: AVX-512, by the trait's contract.
            Self(unsafe { _mm512_mask_mov_ps(next.0, ((1u32 << n) - 1) as __mmask16, self.0) })
        }
        #[inline(always)]
        unsafe fn permute(self, lanes: *const i32) -> Self {
            // SAFETY: AVX-512, by the trait's contract; the caller has sixteen numbers at `lanes`.
            Self(unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(lanes.cast()), self.0) })
        }
        #[inline(always)]
        unsafe fn unzip(self, next: Self) -> [Self; 2] {
            // SAFETY: AVX-512, by the trait's contract.
            unsafe {
                let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
                let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
                let even = _mm512_permutex2var_ps(self.0, even, next.0);
                [Self(even), Self(_mm512_permutex2var_ps(self.0, odd, next.0))]
            }
        }
        #[inline(always)]
        unsafe fn sums(v: [Self; 4]) -> [f32; 4] {
            // SAFETY: AVX-512 DQ, by the trait's contract.
            unsafe { sums256([halves(v[0].0), halves(v[1].0), halves(v[2].0), halves(v[3].0)]) }
        }
    }
}
