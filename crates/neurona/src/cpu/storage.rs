//! Memory that outlives a plan: values users hold, parameters, optimizer state.

use super::kernel::{Buf, Plain};
use crate::cuda::Gpu;
use crate::cuda::memory::Block as DeviceBlock;
use crate::{Device, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Cache lines are 64 bytes, and AVX-512 loads are fastest when they do not straddle two.
const ALIGN: usize = 64;

/// A page of memory.
#[cfg(target_os = "linux")]
const PAGE: usize = 4 << 10;

/// Bytes between what two threads write. A core fetches lines ahead, also beyond the end of a page, and takes them from the
/// core that writes them: where the two have no cache in common at some 200 ns each. A pass over two halves of 32 KB, one
/// a core, took 302 ns where they met, and 141 with this between them.
pub(crate) const GAP: usize = 1 << 10;

/// Asks for pages of 2 MiB for large blocks: with small ones, looking up addresses takes a tenth of a pass over large
/// tensors, more so in a virtual machine, which looks up twice. The small pages at the ends are taken in, so that
/// neighbours can share a large one.
#[cfg(target_os = "linux")]
fn in_large_pages(block: NonNull<u8>, bytes: usize) {
    const LARGE: usize = 512 << 10;
    if bytes >= LARGE {
        let before = block.addr().get() % PAGE;
        let bytes = (before + bytes).next_multiple_of(PAGE);
        // SAFETY: nothing is read or written. A system that has no such pages, or whose small ones are larger, answers
        // with an error, and nothing changes.
        unsafe { libc::madvise(block.as_ptr().wrapping_sub(before).cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn in_large_pages(_block: NonNull<u8>, _bytes: usize) {}

/// A block of aligned memory of fixed size.
///
/// Whoever writes it must be its only user: a tensor's storage is written when it is made, or by a
/// plan that was handed it as an output. Everybody else reads.
#[derive(Debug)]
pub struct Storage {
    memory: Memory,
    bytes: usize,
}

#[derive(Debug)]
enum Memory {
    /// What the system gave; the first aligned address in it is `ptr`.
    Host { block: NonNull<u8>, ptr: NonNull<u8> },
    /// Of the GPU of this number.
    Gpu { index: usize, block: DeviceBlock },
}

// SAFETY: plain memory; the rule above keeps writers alone.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    /// Zeroed memory.
    pub fn zeroed(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size above zero.
        let block = unsafe { alloc_zeroed(layout) };
        let Some(block) = NonNull::new(block) else { handle_alloc_error(layout) };
        in_large_pages(block, layout.size());
        let skip = block.as_ptr().align_offset(ALIGN);
        // SAFETY: the layout has room for `bytes` from any of its first `ALIGN` addresses.
        let ptr = unsafe { block.add(skip) };
        Storage { memory: Memory::Host { block, ptr }, bytes }
    }

    /// A block of device memory.
    pub(crate) fn of_gpu(index: usize, block: DeviceBlock) -> Self {
        let bytes = block.bytes();
        Storage { memory: Memory::Gpu { index, block }, bytes }
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        match self.memory {
            Memory::Host { .. } => Device::Cpu,
            Memory::Gpu { index, .. } => Device::Cuda(index),
        }
    }

    /// Its address: one of the device's when it lies there.
    pub(crate) fn address(&self) -> u64 {
        match &self.memory {
            Memory::Host { ptr, .. } => ptr.as_ptr() as u64,
            Memory::Gpu { block, .. } => block.address(),
        }
    }

    /// A copy of its first bytes on another device.
    pub(crate) fn moved_to(&self, device: Device, bytes: usize) -> Result<Arc<Self>> {
        match (&self.memory, device) {
            (Memory::Host { .. }, Device::Cpu) => Ok(Storage::copy_of(&self.read::<u8>()[..bytes])),
            (Memory::Host { .. }, Device::Cuda(index)) => Gpu::get(index)?.upload(&self.read::<u8>()[..bytes]),
            (Memory::Gpu { index, .. }, Device::Cpu) => Gpu::get(*index)?.download(self),
            (Memory::Gpu { index, .. }, Device::Cuda(to)) => {
                let host = Gpu::get(*index)?.download(self)?;
                Gpu::get(to)?.upload(&host.read::<u8>()[..bytes])
            }
        }
    }

    /// Aligned by hand: asked for more than its usual alignment, the system's allocator would write the zeros itself
    /// instead of handing out pages that are zero already, a whole pass over the memory of large tensors.
    fn layout(bytes: usize) -> Layout {
        let room = bytes.checked_add(ALIGN).expect("tensor sizes were checked when its shape was made");
        Layout::from_size_align(room, align_of::<u64>()).expect("tensor sizes were checked when its shape was made")
    }

    /// A copy of a slice, in memory from the pool.
    pub fn copy_of<T: Plain>(values: &[T]) -> Arc<Self> {
        Storage::of(values.iter().copied())
    }

    /// These values, in memory from the pool.
    pub fn of<T: Plain>(values: impl ExactSizeIterator<Item = T>) -> Arc<Self> {
        Storage::filled(values.len(), |room| room.iter_mut().zip(values).for_each(|(to, value)| *to = value)).0
    }

    /// Room for `n` values that `fill` writes, in memory from the pool, and what `fill` gives. What it leaves out
    /// keeps whatever value the room had.
    pub fn filled<T: Plain, R>(n: usize, fill: impl FnOnce(&mut [T]) -> R) -> (Arc<Self>, R) {
        let storage = pool().take_host(n * size_of::<T>());
        let buf = storage.buf();
        // SAFETY: fresh from the pool, so nobody else reads or writes it; blocks are zeroed when they are made, so
        // every byte is initialised, and every bit pattern is a value of a plain type.
        let result = fill(unsafe { buf.slice_mut::<T>(0..n) });
        (storage, result)
    }

    /// Its bytes as a kernel's buffer.
    pub fn buf(&self) -> Buf {
        Buf::new(self.host(), self.bytes)
    }

    fn host(&self) -> *mut u8 {
        match &self.memory {
            Memory::Host { ptr, .. } => ptr.as_ptr(),
            Memory::Gpu { .. } => panic!("values are brought to host memory before they are read there"),
        }
    }

    /// Its contents for reading.
    pub fn read<T: Plain>(&self) -> &[T] {
        // SAFETY: aligned and sized by construction; writers are alone by the rule of this type.
        unsafe { std::slice::from_raw_parts(self.host().cast(), self.bytes / size_of::<T>()) }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Memory::Host { block, .. } = self.memory {
            // SAFETY: allocated with this layout by `zeroed`.
            unsafe { dealloc(block.as_ptr(), Self::layout(self.bytes)) }
        }
    }
}

/// Blocks that have been used and may be used again, by size. A block is free when only the pool holds it.
///
/// A training step lets the last step's loss and gradients go before it needs room for its own, so in a
/// steady loop every request finds a free block: no allocation, and no page faults on fresh memory.
pub struct Pool {
    blocks: Mutex<Blocks>,
    /// None for host memory.
    gpu: Option<usize>,
}

#[derive(Default)]
struct Blocks {
    by_size: HashMap<usize, Vec<Block>, BuildHasherDefault<QuickHasher>>,
    requests: u64,
}

/// For numbers that no adversary chooses and that every run looks up: sizes, plans' digests.
#[derive(Default)]
pub(crate) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x517c_c1b7_2722_0a95).rotate_left(29);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

struct Block {
    storage: Arc<Storage>,
    last_request: u64,
}

/// A free block that the last thousand requests have not wanted is given back to the system.
const PATIENCE: u64 = 1000;

impl Pool {
    fn of_host() -> Pool {
        Pool { blocks: Mutex::default(), gpu: None }
    }

    /// Blocks of a GPU's memory.
    pub(crate) fn of_gpu(index: usize) -> Pool {
        Pool { blocks: Mutex::default(), gpu: Some(index) }
    }

    /// The same for host memory, which ends the process when there is none left.
    pub(crate) fn take_host(&self, bytes: usize) -> Arc<Storage> {
        self.take(bytes).expect("host memory is always given")
    }

    /// A block of exactly this size that nobody else holds; its contents are undefined.
    pub fn take(&self, bytes: usize) -> Result<Arc<Storage>> {
        if let Some(storage) = self.reuse(bytes) {
            return Ok(storage);
        }
        // Not locked: making room on a GPU may mean clearing this very pool.
        let storage = Arc::new(match self.gpu {
            None => Storage::zeroed(bytes),
            Some(index) => Storage::of_gpu(index, Gpu::get(index)?.allocate(bytes)?),
        });
        let mut guard = self.lock();
        let last_request = guard.requests;
        guard.by_size.entry(bytes).or_default().push(Block { storage: storage.clone(), last_request });
        Ok(storage)
    }

    /// Forgets the blocks that nobody uses.
    pub fn clear(&self) {
        self.lock().by_size.retain(|_, list| {
            list.retain(|b| Arc::strong_count(&b.storage) > 1);
            !list.is_empty()
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn reuse(&self, bytes: usize) -> Option<Arc<Storage>> {
        let mut guard = self.blocks.lock().unwrap_or_else(|e| e.into_inner());
        let Blocks { by_size, requests } = &mut *guard;
        *requests += 1;
        let now = *requests;
        // The strong count of a block that only the pool holds cannot rise without this lock.
        if let Some(block) =
            by_size.get_mut(&bytes).and_then(|list| list.iter_mut().find(|b| Arc::strong_count(&b.storage) == 1))
        {
            block.last_request = now;
            return Some(block.storage.clone());
        }
        by_size.retain(|_, list| {
            list.retain(|b| Arc::strong_count(&b.storage) > 1 || now - b.last_request < PATIENCE);
            !list.is_empty()
        });
        None
    }
}

/// The pool of this process.
pub fn pool() -> &'static Pool {
    static POOL: std::sync::LazyLock<Pool> = std::sync::LazyLock::new(Pool::of_host);
    &POOL
}

/// A block on a device that nobody else holds; its contents are undefined.
pub(crate) fn take(device: Device, bytes: usize) -> Result<Arc<Storage>> {
    match device {
        Device::Cpu => pool().take(bytes),
        Device::Cuda(index) => Gpu::get(index)?.pool.take(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_with_a_line() {
        for bytes in [0, 1, 63, 1000, 16_383, 16_384, 16_500, 192_000, 1 << 20] {
            assert!((Storage::zeroed(bytes).address() as usize).is_multiple_of(ALIGN), "{bytes} bytes");
        }
    }
}
