//! An allocator that counts what is allocated while a plan runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub struct Counting;

static RUNNING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

static WATCHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread was there before the watch began: the test harness's, which works on beside the test.
    static HARNESS: Cell<bool> = const { Cell::new(false) };
}

/// Counts from now on, in runs of plans only, for this thread and those that begin after this.
pub fn watch() {
    WATCHED.store(true, Ordering::SeqCst);
    HARNESS.set(false);
    neurona::observe_runs(|begins| RUNNING.store(begins, Ordering::SeqCst));
}

/// Allocations during runs so far.
pub fn count() -> usize {
    COUNT.load(Ordering::SeqCst)
}

// SAFETY: the system's allocator does the work; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !WATCHED.load(Ordering::Relaxed) {
            HARNESS.set(true);
        }
        let counts = RUNNING.load(Ordering::Relaxed) && !HARNESS.get();
        COUNT.fetch_add(counts as usize, Ordering::Relaxed);
        // SAFETY: by the caller's promise to this function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise to this function.
        unsafe { System.dealloc(ptr, layout) }
    }
}
