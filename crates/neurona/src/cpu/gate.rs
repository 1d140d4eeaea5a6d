//! A number that threads wait on: they look for a while, then sleep.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Looks between two looks at the clock, which costs as much as several of them.
const LOOKS: u32 = 64;

/// A value on cache lines of its own: cores fetch lines in pairs, and a line that many wait on must not hold what
/// others write.
#[repr(align(128))]
pub(super) struct Apart<T>(pub T);

/// A number and those who sleep until it changes. What is read with the number may lie beside it, and comes with its line.
pub(super) struct Gate<B = ()> {
    line: Apart<Line<B>>,
    sleepers: Apart<AtomicU32>,
    lock: Mutex<()>,
    wake: Condvar,
}

struct Line<B> {
    value: AtomicU64,
    beside: B,
}

impl<B> Gate<B> {
    pub fn new(value: u64, beside: B) -> Self {
        Gate {
            line: Apart(Line { value: AtomicU64::new(value), beside }),
            sleepers: Apart(AtomicU32::new(0)),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// What lies beside the number.
    pub fn beside(&self) -> &B {
        &self.line.0.beside
    }

    /// The number, with all that was written before it was set.
    pub fn get(&self) -> u64 {
        self.line.0.value.load(Ordering::Acquire)
    }

    /// Changes the number; returns the new one. Wakes nobody.
    pub fn change(&self, new: impl Fn(u64) -> u64) -> u64 {
        let old = self.line.0.value.fetch_update(Ordering::SeqCst, Ordering::Acquire, |old| Some(new(old)));
        new(old.unwrap_or_else(|old| old))
    }

    /// Adds to the number, with all that was written before; returns the new one. Wakes nobody.
    pub fn add(&self, more: u64) -> u64 {
        self.line.0.value.fetch_add(more, Ordering::SeqCst) + more
    }

    /// Sets the number and wakes who sleeps.
    pub fn set(&self, new: u64) {
        self.line.0.value.store(new, Ordering::SeqCst);
        self.rouse();
    }

    /// Sets the number if it is still `old`. Wakes nobody.
    pub fn replace(&self, old: u64, new: u64) -> bool {
        self.line.0.value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Wakes who sleeps, after a change.
    pub fn rouse(&self) {
        // SeqCst on both sides: either this sees the sleeper, or the sleeper sees the new number.
        if self.sleepers.0.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
            self.wake.notify_all();
        }
    }

    /// Looks until `open` is true of the number, for so long at most.
    pub fn look(&self, time: Duration, open: impl Fn(u64) -> bool) -> Option<u64> {
        let mut start = None;
        loop {
            for _ in 0..LOOKS {
                let value = self.get();
                if open(value) {
                    return Some(value);
                }
                std::hint::spin_loop();
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= time {
                return None;
            }
        }
    }

    /// Waits until `open` is true of the number, and sleeps when that takes longer than `time`.
    pub fn wait(&self, time: Duration, open: impl Fn(u64) -> bool) -> u64 {
        let value = self.get();
        if open(value) {
            return value;
        }
        if let Some(value) = (!time.is_zero()).then(|| self.look(time, &open)).flatten() {
            return value;
        }
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        let value = loop {
            let value = self.line.0.value.load(Ordering::SeqCst);
            if open(value) {
                break value;
            }
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        };
        self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
        value
    }
}
