//! What kernels find wrong with the numbers they are given.
//!
//! A kernel cannot return an error, and to ask it after every step would make the host wait. So it writes a word of
//! pinned host memory, in that case alone, and the host looks at these words where it has waited for the GPU anyway:
//! when it reads something. A step whose numbers are right costs nothing more.

use super::driver::check;
use crate::error::Place;
use crate::{Error, Result};
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Words that are allocated together.
const PAGE: usize = 512;

/// The faults that steps of one GPU's plans can have.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Watched>);

#[derive(Default)]
struct Watched {
    faults: Vec<Weak<Fault>>,
    /// Words that nobody had yet. One that somebody had is not given out again: work on its way may still write it.
    fresh: &'static [AtomicU64],
}

/// Where a step writes that a class number among its operands is none.
#[derive(Debug)]
pub(crate) struct Fault {
    word: &'static AtomicU64,
    op: &'static str,
    classes: usize,
    place: Mutex<Place>,
}

impl Faults {
    /// One for a step of this op, whose class numbers are below `classes`. The GPU must be the calling thread's.
    pub fn watch(&self, op: &'static str, classes: usize) -> Result<Arc<Fault>> {
        let mut watched = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if watched.fresh.is_empty() {
            let (mut memory, bytes) = (std::ptr::null_mut(), PAGE * size_of::<AtomicU64>());
            // SAFETY: writes one address.
            check(unsafe { sys::cuMemAllocHost_v2(&mut memory, bytes) }, || format!("pin {bytes} bytes"))?;
            // SAFETY: pages of the system are aligned, have this many bytes, and are never freed.
            watched.fresh = unsafe {
                std::ptr::write_bytes(memory.cast::<u8>(), 0, bytes);
                std::slice::from_raw_parts(memory.cast(), PAGE)
            };
        }
        let (word, rest) = watched.fresh.split_first().expect("a page has words");
        watched.fresh = rest;
        let fault = Arc::new(Fault { word, op, classes, place: Mutex::default() });
        watched.faults.retain(|fault| fault.strong_count() > 0);
        watched.faults.push(Arc::downgrade(&fault));
        Ok(fault)
    }

    /// The error of a step that has found a fault since the last call. The GPU's work has been waited for.
    pub fn check(&self) -> Result<()> {
        let watched = self.0.lock().unwrap_or_else(|e| e.into_inner());
        watched.faults.iter().filter_map(Weak::upgrade).try_for_each(|fault| fault.take())
    }
}

impl Fault {
    /// The word's address: pinned memory has the same one on host and device.
    pub fn address(&self) -> u64 {
        self.word.as_ptr() as u64
    }

    /// Where the step stands in the model and in the program.
    pub fn stand_at(&self, place: &Place) {
        *self.place.lock().unwrap_or_else(|e| e.into_inner()) = *place;
    }

    fn take(&self) -> Result<()> {
        let word = match self.word.load(Ordering::Relaxed) {
            0 => return Ok(()),
            _ => self.word.swap(0, Ordering::Relaxed),
        };
        // As `report` of prelude.cuh packs them.
        let (image, label) = ((word >> 32) - 1, word as u32 as i32);
        let beyond = if label == i32::MIN || label == i32::MAX { " or beyond" } else { "" };
        let problem = match self.classes {
            0 => "there are no classes".into(),
            n => format!("label {label}{beyond} of image {image} of a batch is not between 0 and {}", n - 1),
        };
        Err(Error::op(self.op, problem).at(*self.place.lock().unwrap_or_else(|e| e.into_inner())))
    }
}
