//! One version of a cell's value, and what plans have made of it.

use super::cell::CellInner;
use super::walk::Words;
use crate::cpu::kernel::Buf;
use crate::cpu::storage::Storage;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

/// The value that a cell had at one version: where a leaf's value comes from.
///
/// Packed, folded and transformed weights hang here, for every plan that wants them in the same form: they go when
/// the value goes, because the cell was written or dropped, and no other value can be mistaken for it.
#[derive(Debug)]
pub(crate) struct Version {
    pub cell: Weak<CellInner>,
    /// Whether the cell has a next value that is not computed yet. Walks ask at every leaf they meet, most in vain, and the
    /// cell itself would answer only behind a lock.
    pub staged: Arc<AtomicBool>,
    /// No two versions of any cells in the life of a process have the same.
    number: AtomicU64,
    /// Nothing yet for the parameters of a training step, which changes them every time.
    made: OnceLock<Mutex<Vec<Made>>>,
}

/// What a plan makes of this version and maybe of others.
#[derive(Debug)]
struct Made {
    form: Arc<Words>,
    /// The versions it is made of, this one first.
    numbers: SmallVec<[u64; 8]>,
    /// Where it is kept; nowhere as long as it was made only once.
    room: Option<Arc<Room>>,
}

/// What is there of what a plan wants to make.
pub(crate) enum Found {
    Kept(Arc<Room>),
    /// It was made before.
    Known,
    /// It was never made.
    New,
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Version {
    pub fn new(cell: Weak<CellInner>, staged: Arc<AtomicBool>) -> Self {
        Version { cell, staged, number: next().into(), made: OnceLock::new() }
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The value was overwritten in place.
    pub fn renew(&self) {
        let made = self.made.get().map(|_| self.made());
        self.number.store(next(), Ordering::Relaxed);
        if let Some(mut made) = made {
            made.clear();
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What was made in this form of versions with these numbers; if nothing was, that it will be. What other versions
    /// of other cells gave in this form goes.
    pub fn find(&self, form: &Arc<Words>, numbers: impl Iterator<Item = u64> + Clone) -> Found {
        let mut made = self.made();
        match made.iter_mut().find(|m| m.is(form)) {
            None => made.push(Made { form: form.clone(), numbers: numbers.collect(), room: None }),
            Some(m) if m.numbers.iter().copied().eq(numbers.clone()) => {
                return m.room.clone().map_or(Found::Known, Found::Kept);
            }
            Some(m) => {
                m.numbers.clear();
                m.numbers.extend(numbers);
                m.room = None;
            }
        }
        Found::New
    }

    /// Keeps what was made in this form of versions with these numbers.
    pub fn keep(&self, form: &Arc<Words>, numbers: impl Iterator<Item = u64>, room: Arc<Room>) {
        let mut made = self.made();
        if let Some(m) = made.iter_mut().find(|m| m.is(form)).filter(|m| m.numbers.iter().copied().eq(numbers)) {
            m.room = Some(room);
        }
    }
}

impl Made {
    fn is(&self, form: &Arc<Words>) -> bool {
        Arc::ptr_eq(&self.form, form) || self.form == *form
    }
}

/// Memory for what is made of versions.
#[derive(Debug)]
pub(crate) struct Room(Storage);

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Beyond so many bytes in a process nothing is kept: what would be is made anew in every run.
const MOST: usize = 1 << 30;

impl Room {
    /// So many bytes, while there are any left. Not from the pool, which would hold on to them.
    pub fn take(bytes: usize) -> Option<Arc<Room>> {
        if TAKEN.load(Ordering::Relaxed).saturating_add(bytes) > MOST {
            return None;
        }
        TAKEN.fetch_add(bytes, Ordering::Relaxed);
        Some(Arc::new(Room(Storage::zeroed(bytes))))
    }

    pub fn buf(&self) -> Buf {
        self.0.buf()
    }

    /// Bytes of all there are.
    pub fn taken() -> usize {
        TAKEN.load(Ordering::Relaxed)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0.bytes(), Ordering::Relaxed);
    }
}
