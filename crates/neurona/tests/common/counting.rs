//! An allocator that counts what is allocated while a plan runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub struct Counting;

static RUNNING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Counts from now on, in runs of plans only.
pub fn watch() {
    neurona::observe_runs(|begins| RUNNING.store(begins, Ordering::SeqCst));
}

/// Allocations during runs so far.
pub fn count() -> usize {
    COUNT.load(Ordering::SeqCst)
}

// SAFETY: the system's allocator does the work; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(RUNNING.load(Ordering::Relaxed) as usize, Ordering::Relaxed);
        // SAFETY: by the caller's promise to this function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise to this function.
        unsafe { System.dealloc(ptr, layout) }
    }
}
