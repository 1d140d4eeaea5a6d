//! Device memory.

use super::driver::{Code, check};
use super::gpu::Gpu;
use crate::{Error, Result};
use cudarc::driver::sys;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A block of device memory, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    gpu: usize,
    address: u64,
    bytes: usize,
}

/// Bytes that are allocated now, and the most there ever were.
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The most device memory that this process has held at once.
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

impl Block {
    /// Memory of a GPU, which must be the calling thread's; its contents are undefined.
    pub fn new(gpu: usize, bytes: usize) -> Result<Block> {
        let mut address = 0;
        // SAFETY: writes one address; the size is above zero, as the driver demands.
        let code = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) };
        if code == Code::CUDA_ERROR_OUT_OF_MEMORY {
            let (mut free, mut total) = (0, 0);
            // SAFETY: writes two numbers.
            check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, || "ask for free memory".into())?;
            return Err(Error::OutOfMemory { asked: bytes, free, total, largest: Vec::new(), advice: String::new() });
        }
        check(code, || format!("allocate {bytes} bytes"))?;
        PEAK.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
        Ok(Block { gpu, address, bytes })
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        NOW.fetch_sub(self.bytes, Ordering::Relaxed);
        // The thread that lets go of it may never have used this GPU.
        if Gpu::get(self.gpu).and_then(Gpu::enter).is_err() {
            return;
        }
        // SAFETY: allocated by `new`, freed once; the driver waits for work that uses it. At the end of the process
        // the driver may be gone already, and then so is the memory: the code does not matter.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}
