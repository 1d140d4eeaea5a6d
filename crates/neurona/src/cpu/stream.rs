//! Memory that passes by the caches: results that nobody reads soon, and operands that are asked for before they are
//! needed.

use super::kernel::{Plain, share};
#[cfg(target_arch = "x86_64")]
use super::simd::by_isa;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps, _mm512_loadu_ps, _mm512_stream_ps};

/// Whoever lives while results go to memory past the caches ([`Vector::stream`](super::gemm::vector::Vector::stream)):
/// lines that are overwritten whole are not read before, and nothing that is needed sooner is pushed out. Results are there
/// for other threads when this is dropped.
pub(crate) struct Stream;

impl Stream {
    /// Copies where both begin and end with whole lines, as rows of a plan's values do; elsewhere as usual.
    pub fn copy<T: Plain>(&self, from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), to.len());
        #[cfg(target_arch = "x86_64")]
        if to.as_ptr().addr().is_multiple_of(4 * LINE) && size_of_val(to).is_multiple_of(4 * LINE) {
            let (floats, place, source) =
                (size_of_val(to) / 4, to.as_mut_ptr().cast::<f32>(), from.as_ptr().cast::<f32>());
            // SAFETY: both have so many floats, `place` is aligned to a line, and `isa` has found the instructions.
            return unsafe { by_isa!(stream_avx512 as Copier, stream_sse, stream_sse)(source, place, floats) };
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

#[cfg(target_arch = "x86_64")]
type Copier = unsafe fn(*const f32, *mut f32, usize);

/// # Safety
/// So many floats, a multiple of a line's, can be read and written; `to` is aligned to a line.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(from: *const f32, to: *mut f32, floats: usize) {
    for at in (0..floats).step_by(16) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_stream_ps(to.add(at), _mm512_loadu_ps(from.add(at))) };
    }
}

/// # Safety
/// As above.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_sse(from: *const f32, to: *mut f32, floats: usize) {
    for at in (0..floats).step_by(4) {
        // SAFETY: the caller's promise; every x86-64 machine has these.
        unsafe { _mm_stream_ps(to.add(at), _mm_loadu_ps(from.add(at))) };
    }
}

/// Floats of a cache line.
pub(crate) const LINE: usize = 16;

/// Asks for some floats to come to the core's second cache: requests of the first are few, and later ones would wait for
/// earlier ones. An address that is none does no harm.
#[inline(always)]
pub(crate) fn prefetch(from: *const f32, floats: usize) {
    ask::<false>(from, floats);
}

/// Asks for one of some equal parts of `from`, as [`prefetch`] does.
#[inline(always)]
pub(crate) fn prefetch_part(from: &[f32], parts: usize, part: usize) {
    if !from.is_empty() {
        let lines = share(from.len().div_ceil(LINE), parts, part);
        prefetch(from.as_ptr().wrapping_add(lines.start * LINE), lines.len() * LINE);
    }
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

/// Bytes that a core's own cache holds.
pub(crate) const OWN: usize = 1 << 20;

/// Bytes that no cache holds from one step to the next: a step that reads and writes more of them waits for memory.
pub(crate) const FAR: usize = 24 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_past_the_caches() {
        let from: Vec<f32> = (0..200).map(|i| i as f32).collect();
        let mut to = vec![[0f32; 16]; 20];
        for (start, len) in [(0, 160), (0, 16), (16, 40), (3, 64), (0, 0)] {
            let to = to.as_flattened_mut();
            to.fill(-1.0);
            Stream.copy(&from[..len], &mut to[start..start + len]);
            assert_eq!(to[start..start + len], from[..len]);
            assert!(to[..start].iter().chain(&to[start + len..]).all(|v| *v == -1.0));
        }
    }
}
