//! Memory that passes by the caches: results that nobody reads soon, and operands that are asked for before they are
//! needed.

use super::simd::{Isa, isa};

/// Copies whose results go to memory past the caches: lines that are overwritten whole are not read before, and nothing
/// that is needed sooner is pushed out. Results are there for other threads when this is dropped.
pub(crate) struct Stream(());

impl Stream {
    pub fn new() -> Self {
        Stream(())
    }

    /// Copies `from` to `to`.
    pub fn copy(&self, to: &mut [f32], from: &[f32]) {
        assert_eq!(to.len(), from.len());
        #[cfg(target_arch = "x86_64")]
        if isa() >= Isa::Avx2 {
            let head = to.as_ptr().align_offset(64).min(to.len());
            let lines = (to.len() - head) / LINE * LINE;
            to[..head].copy_from_slice(&from[..head]);
            to[head + lines..].copy_from_slice(&from[head + lines..]);
            let (to, from) = (&mut to[head..head + lines], &from[head..head + lines]);
            let copy = if isa() == Isa::Avx512 { lines_avx512 } else { lines_avx2 };
            // SAFETY: whole lines of both slices, `to` aligned to them; `isa` has found the instructions.
            unsafe { copy(to.as_mut_ptr(), from.as_ptr(), lines) };
            return;
        }
        to.copy_from_slice(from);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Such stores are not ordered with any others, those that tell another thread to go on among them.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 machine has it; it touches no memory.
        unsafe {
            std::arch::x86_64::_mm_sfence()
        };
    }
}

/// Floats of a cache line.
pub(crate) const LINE: usize = 16;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lines_avx512(to: *mut f32, from: *const f32, floats: usize) {
    use std::arch::x86_64::*;
    for at in (0..floats).step_by(LINE) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_stream_ps(to.add(at), _mm512_loadu_ps(from.add(at))) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn lines_avx2(to: *mut f32, from: *const f32, floats: usize) {
    use std::arch::x86_64::*;
    for at in (0..floats).step_by(LINE / 2) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_ps(to.add(at), _mm256_loadu_ps(from.add(at))) };
    }
}

/// Asks for some floats to come to the core's second cache: requests of the first are few, and later ones would wait for
/// earlier ones. An address that is none does no harm.
#[inline(always)]
pub(crate) fn prefetch(from: *const f32, floats: usize) {
    ask::<false>(from, floats);
}

/// Asks for a few floats to come to the core's first cache.
#[inline(always)]
pub(crate) fn near(from: *const f32, floats: usize) {
    ask::<true>(from, floats);
}

#[inline(always)]
fn ask<const FIRST: bool>(from: *const f32, floats: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..floats).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let line = from.wrapping_add(at).cast();
        // SAFETY: a hint, which reads nothing.
        unsafe { if FIRST { _mm_prefetch::<_MM_HINT_T0>(line) } else { _mm_prefetch::<_MM_HINT_T1>(line) } };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, floats);
}

/// Bytes that no cache holds from one step to the next: a step that reads and writes more of them waits for memory.
pub(crate) const FAR: usize = 24 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_float_from_any_address() {
        let from: Vec<f32> = (0..100).map(|i| i as f32).collect();
        for (start, length) in [(0, 0), (1, 5), (3, 60), (16, 64), (7, 90)] {
            let mut to = vec![-1f32; 110];
            Stream::new().copy(&mut to[start..start + length], &from[..length]);
            assert_eq!(to[start..start + length], from[..length]);
            assert!(to[..start].iter().chain(&to[start + length..]).all(|x| *x == -1.0));
        }
    }
}
