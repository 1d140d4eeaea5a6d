//! Memory that passes by the caches: results that nobody reads soon, and operands that are asked for before they are
//! needed.

/// Whoever lives while results go to memory past the caches ([`Vector::stream`](super::gemm::vector::Vector::stream)):
/// lines that are overwritten whole are not read before, and nothing that is needed sooner is pushed out. Results are there
/// for other threads when this is dropped.
pub(crate) struct Stream;

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
