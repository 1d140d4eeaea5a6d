//! Asking a run to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that a signal handler or another thread raises: the run finishes its step, saves and returns.
///
/// ```
/// use neurona::train::StopFlag;
/// let flag = StopFlag::new();
/// let handler = flag.clone();
/// std::thread::spawn(move || handler.raise()).join().unwrap();
/// assert!(flag.is_raised());
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks whoever has a copy to stop. Safe in a signal handler.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl From<Arc<AtomicBool>> for StopFlag {
    fn from(flag: Arc<AtomicBool>) -> Self {
        StopFlag(flag)
    }
}
