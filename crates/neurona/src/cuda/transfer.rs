//! Between host and device memory. Uploads have a stream of their own, so that the next batch travels while the
//! present step runs; they pass through pinned memory, which alone the copy engine reads without help from the CPU.

use super::driver::{Code, check};
use super::gpu::{Gpu, Stream};
use crate::cpu::storage::Storage;
use crate::{Error, Result};
use cudarc::driver::sys;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

// SAFETY: a handle that any thread may use.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// A mark in a stream that another stream, or the host, can wait for.
pub(super) struct Event(sys::CUevent);

impl Event {
    pub fn new() -> Result<Event> {
        Event::with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// One that [`Event::since`] can measure with.
    pub fn timed() -> Result<Event> {
        Event::with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(flags: sys::CUevent_flags) -> Result<Event> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { sys::cuEventCreate(&mut event, flags as u32) }, || "make an event".into())?;
        Ok(Event(event))
    }

    pub fn record(&self, stream: Stream) -> Result<()> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuEventRecord(self.0, stream.0) }, || "record an event".into())
    }

    pub fn wait(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        check(unsafe { sys::cuEventSynchronize(self.0) }, || "wait for the GPU".into())
    }

    pub fn hold_back(&self, stream: Stream) -> Result<()> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuStreamWaitEvent(stream.0, self.0, 0) }, || "order two streams".into())
    }

    /// Seconds between two events that have both passed.
    pub fn since(&self, earlier: &Event) -> Result<f64> {
        type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> Code;
        static ELAPSED: OnceLock<Option<Elapsed>> = OnceLock::new();
        // By its first name, which drivers for CUDA 12 have too; its type has not changed.
        // SAFETY: the library is loaded, or there would be no events; the type is that of the driver's header.
        let elapsed =
            ELAPSED.get_or_init(|| unsafe { sys::culib().get::<Elapsed>("cuEventElapsedTime") }.ok().map(|f| *f));
        let Some(elapsed) = elapsed else {
            return Err(Error::Cuda { what: "measure time".into(), problem: "the driver is too old".into() });
        };
        let mut milliseconds = 0.0;
        // SAFETY: both handles are alive; writes one number.
        check(unsafe { elapsed(&mut milliseconds, earlier.0, self.0) }, || "measure time".into())?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `with`, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

// SAFETY: memory that the ring alone owns, and handles that any thread may use.
unsafe impl Send for Ring {}

/// A ring of pinned host memory: each piece is used again when the copy from it has ended.
pub(super) struct Ring {
    memory: *mut u8,
    piece: usize,
    passed: Vec<Event>,
    next: usize,
}

impl Ring {
    pub fn new(pieces: usize, piece: usize) -> Result<Ring> {
        let mut memory = std::ptr::null_mut();
        // SAFETY: writes one address.
        let code = unsafe { sys::cuMemAllocHost_v2(&mut memory, pieces * piece) };
        check(code, || format!("pin {} bytes of host memory", pieces * piece))?;
        let passed = (0..pieces).map(|_| Event::new()).collect::<Result<_>>()?;
        Ok(Ring { memory: memory.cast(), piece, passed, next: 0 })
    }

    /// Adds the copy of these bytes to device memory to the stream.
    pub fn send(&mut self, bytes: &[u8], address: u64, stream: Stream) -> Result<()> {
        for (i, part) in bytes.chunks(self.piece).enumerate() {
            let event = &self.passed[self.next];
            event.wait()?;
            // SAFETY: the piece lies in the ring's memory, and the copy that read it last has ended. The caller's
            // address has room for all bytes.
            let code = unsafe {
                let room = self.memory.add(self.next * self.piece);
                std::ptr::copy_nonoverlapping(part.as_ptr(), room, part.len());
                sys::cuMemcpyHtoDAsync_v2(address + (i * self.piece) as u64, room.cast(), part.len(), stream.0)
            };
            check(code, || format!("copy {} bytes to the GPU", part.len()))?;
            event.record(stream)?;
            self.next = (self.next + 1) % self.passed.len();
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        let _ = unsafe { sys::cuMemFreeHost(self.memory.cast()) };
    }
}

/// What uploads to one GPU need.
pub(crate) struct Transfers {
    compute: Stream,
    stream: Stream,
    ring: Ring,
    arrived: Event,
    /// How far plans had been submitted when the last two uploads began.
    progress: [Event; 2],
    count: u64,
    /// Blocks for uploads by size: each with the number of the upload that first found it free.
    blocks: HashMap<usize, Vec<(Arc<Storage>, u64)>>,
}

/// Enough for a batch in use, one on its way, and one that is being let go.
const BLOCKS: usize = 3;

/// Blocks of more sizes than this are of batches that do not come again.
const SIZES: usize = 16;

impl Transfers {
    pub fn new(compute: sys::CUstream) -> Result<Transfers> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle.
        check(unsafe { sys::cuStreamCreate(&mut stream, flags) }, || "make a stream".into())?;
        Ok(Transfers {
            compute: Stream(compute),
            stream: Stream(stream),
            ring: Ring::new(4, 4 << 20)?,
            arrived: Event::new()?,
            progress: [Event::new()?, Event::new()?],
            count: 1,
            blocks: HashMap::new(),
        })
    }

    /// Forgets the blocks that nobody uses.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Room for an upload, and whether submitted work may still read it. A block that was free when the last upload
    /// began is not used by anything submitted since.
    fn room(&mut self, gpu: &Gpu, bytes: usize) -> Result<(Arc<Storage>, bool)> {
        if self.blocks.len() > SIZES && !self.blocks.contains_key(&bytes) {
            self.blocks.clear();
        }
        let (now, list) = (self.count, self.blocks.entry(bytes).or_default());
        for (storage, free_since) in list.iter_mut() {
            match Arc::strong_count(storage) {
                1 => *free_since = (*free_since).min(now),
                _ => *free_since = u64::MAX,
            }
        }
        if let Some((storage, since)) =
            list.iter_mut().filter(|(_, since)| *since < now).min_by_key(|(_, since)| *since)
        {
            *since = u64::MAX;
            return Ok((storage.clone(), false));
        }
        if list.len() < BLOCKS {
            let storage = Arc::new(Storage::of_gpu(gpu.index, gpu.allocate(bytes)?));
            list.push((storage.clone(), u64::MAX));
            return Ok((storage, false));
        }
        match list.iter_mut().find(|(_, since)| *since == now) {
            Some((storage, since)) => {
                *since = u64::MAX;
                Ok((storage.clone(), true))
            }
            // The user keeps many batches on the GPU: then this one is a value like any other.
            None => Ok((gpu.pool.take(bytes)?, true)),
        }
    }
}

impl Gpu {
    /// A copy of these bytes in device memory; plans that are submitted later wait for it.
    pub fn upload(&self, bytes: &[u8]) -> Result<Arc<Storage>> {
        self.enter()?;
        let mut guard = self.transfers.lock().unwrap_or_else(|e| e.into_inner());
        let transfers = &mut *guard;
        let (storage, busy) = transfers.room(self, bytes.len())?;
        // Locked: an event that is recorded while a plan is being captured would become part of the plan.
        let compute = self.stream()?;
        let count = transfers.count as usize;
        transfers.progress[count % 2].record(*compute)?;
        transfers.progress[(count + usize::from(!busy)) % 2].hold_back(transfers.stream)?;
        transfers.ring.send(bytes, storage.address(), transfers.stream)?;
        transfers.arrived.record(transfers.stream)?;
        transfers.arrived.hold_back(transfers.compute)?;
        transfers.count += 1;
        Ok(storage)
    }

    /// A copy in host memory; waits for the work that writes it.
    pub fn download(&self, storage: &Storage) -> Result<Arc<Storage>> {
        let host = crate::cpu::storage::pool().take(storage.bytes())?;
        let stream = self.stream()?;
        let buf = host.buf();
        // SAFETY: fresh from the pool: nobody else has it yet.
        let room = unsafe { buf.slice_mut::<u8>(0..storage.bytes()) };
        self.read(storage.address(), room, *stream)?;
        drop(stream);
        Ok(host)
    }

    /// Reads device memory while the stream is held; waits for the work that writes it. An error also when a step has
    /// found something wrong with its operands meanwhile.
    pub fn read(&self, address: u64, bytes: &mut [u8], stream: Stream) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the room has this many bytes, and so has what callers point to; waiting below ends the copy.
        unsafe {
            let code = sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), stream.0);
            check(code, || format!("copy {} bytes from the GPU", bytes.len()))?;
            check(sys::cuStreamSynchronize(stream.0), || "wait for the GPU".into())?;
        }
        self.faults.check()
    }

    /// Adds a copy within device memory to the stream.
    pub fn copy(&self, from: u64, to: u64, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: callers pass addresses of blocks with this many bytes.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0) };
        check(code, || format!("copy {bytes} bytes on the GPU"))
    }

    /// Zeros.
    pub fn zeros(&self, bytes: usize) -> Result<Arc<Storage>> {
        let storage = self.pool.take(bytes)?;
        let stream = self.stream()?;
        if bytes > 0 {
            // SAFETY: the storage has this many bytes and is fresh from the pool.
            let code = unsafe { sys::cuMemsetD8Async(storage.address(), 0, bytes, stream.0) };
            check(code, || format!("clear {bytes} bytes"))?;
        }
        Ok(storage)
    }
}
