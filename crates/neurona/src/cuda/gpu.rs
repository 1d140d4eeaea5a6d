//! One GPU: its context, its streams, its memory and the kernels loaded on it.

use super::compiler::{self, Compiled, Source};
use super::driver::{self, check};
use super::fault::{Fault, Faults};
use super::kernel::Function;
use super::memory::Block;
use super::transfer::Transfers;
use crate::cpu::storage::Pool;
use crate::{Error, Result};
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Machines with more GPUs than this are not met.
const MOST: usize = 64;

/// One GPU of this machine.
pub(crate) struct Gpu {
    pub index: usize,
    pub name: String,
    /// Compute capability: (9, 0) is Hopper.
    pub capability: (u32, u32),
    pub multiprocessors: usize,
    context: sys::CUcontext,
    stream: Mutex<Stream>,
    modules: Mutex<HashMap<String, Loading>>,
    pub pool: Pool,
    pub transfers: Mutex<Transfers>,
    pub faults: Faults,
}

// SAFETY: the driver's handles may be used from any thread; what is not safe to do at once is behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// The stream that all plans of a GPU run on, in order. Held by whoever adds work to it: a capture must not catch
/// another thread's work.
#[derive(Clone, Copy)]
pub(crate) struct Stream(pub sys::CUstream);

/// A module that is there, or that some thread is compiling.
type Loading = Arc<OnceLock<Result<Module, String>>>;

/// Kernels of one source, loaded for good.
struct Module(sys::CUmodule);

// SAFETY: a handle that any thread may use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Gpu {
    /// The GPU of this number, started on first use.
    pub fn get(index: usize) -> Result<&'static Gpu> {
        static GPUS: [OnceLock<Result<Gpu, String>>; MOST] = [const { OnceLock::new() }; MOST];
        let missing = || Error::Device {
            asked: format!("cuda:{index}"),
            available: crate::Device::all().iter().map(ToString::to_string).collect(),
        };
        if index >= MOST || index >= driver::count() {
            return Err(missing());
        }
        GPUS[index]
            .get_or_init(|| Gpu::start(index).map_err(|e| e.to_string()))
            .as_ref()
            .map_err(|problem| Error::Cuda { what: format!("start cuda:{index}"), problem: problem.clone() })
    }

    fn start(index: usize) -> Result<Gpu> {
        let what = || "start the GPU".to_string();
        let (mut device, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver is loaded (count() was asked before); each call writes the handle it is given room for.
        unsafe {
            check(sys::cuDeviceGet(&mut device, index as c_int), what)?;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), what)?;
            check(sys::cuCtxSetCurrent(context), what)?;
            let blocking = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check(sys::cuStreamCreate(&mut stream, blocking), what)?;
        }
        let attribute = |which: sys::CUdevice_attribute| -> Result<usize> {
            let mut value = 0;
            // SAFETY: writes one number.
            check(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }, what)?;
            Ok(value as usize)
        };
        use sys::CUdevice_attribute as A;
        let mut name = [0 as c_char; 256];
        // SAFETY: writes at most the length given, zero included.
        check(unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) }, what)?;
        Ok(Gpu {
            index,
            name: name.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect(),
            capability: (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
            ),
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            context,
            stream: Mutex::new(Stream(stream)),
            modules: Mutex::default(),
            pool: Pool::of_gpu(index),
            transfers: Mutex::new(Transfers::new(stream)?),
            faults: Faults::default(),
        })
    }

    pub fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Whether kernels for Hopper alone (wgmma, bulk copies) run here.
    pub fn is_hopper(&self) -> bool {
        self.capability == (9, 0)
    }

    /// Makes this GPU the calling thread's.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, || format!("use cuda:{}", self.index))
    }

    /// The stream, for as long as the guard lives; the GPU is the calling thread's.
    pub fn stream(&self) -> Result<MutexGuard<'_, Stream>> {
        self.enter()?;
        Ok(self.stream.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Bytes of device memory: (free, total).
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, || "ask for free memory".into())?;
        Ok((free, total))
    }

    /// Waits until all work has ended.
    pub fn synchronize(&self) -> Result<()> {
        let stream = self.stream()?;
        // SAFETY: the stream lives as long as the process.
        check(unsafe { sys::cuStreamSynchronize(stream.0) }, || "wait for the GPU".into())
    }

    /// Device memory, from what the pool has free when the GPU itself has none left.
    pub fn allocate(&self, bytes: usize) -> Result<Block> {
        self.enter()?;
        Block::new(self.index, bytes).or_else(|first| match first {
            Error::OutOfMemory { .. } => {
                self.synchronize()?;
                self.pool.clear();
                // Busy when an upload is what asks.
                if let Ok(mut transfers) = self.transfers.try_lock() {
                    transfers.clear();
                }
                Block::new(self.index, bytes)
            }
            other => Err(other),
        })
    }

    /// Where a step of this op says that one of its class numbers is not below `classes`.
    pub fn fault(&self, op: &'static str, classes: usize) -> Result<Arc<Fault>> {
        self.enter()?;
        self.faults.watch(op, classes)
    }

    /// A kernel of a source, compiled with these macros; from memory or disk when that was done before.
    pub fn function(&self, source: &Source, name: &str, macros: &[(&str, String)]) -> Result<Function> {
        self.enter()?;
        let request = compiler::Request::new(source, macros, self.capability);
        // Not locked while it is compiled: the kernels of a plan are compiled on several threads.
        let slot = {
            let mut modules = self.modules.lock().unwrap_or_else(|e| e.into_inner());
            modules.entry(request.key().to_string()).or_default().clone()
        };
        let module = slot.get_or_init(|| {
            let Compiled { image } = request.compile().map_err(|e| e.to_string())?;
            // A stored image that the driver refuses is as good as none.
            let loaded = load(&image).or_else(|_| load(&request.compile_again()?.image));
            loaded.map(Module).map_err(|e| e.to_string())
        });
        let module = module.as_ref().map_err(|problem| Error::Cuda {
            what: format!("use the kernels of {}", source.name),
            problem: problem.clone(),
        })?;
        let mut handle = std::ptr::null_mut();
        let symbol = CString::new(name).map_err(|_| Error::Argument(format!("'{name}' is no name of a kernel")))?;
        // SAFETY: the module is loaded and never unloaded; the name ends with zero.
        let code = unsafe { sys::cuModuleGetFunction(&mut handle, module.0, symbol.as_ptr()) };
        check(code, || format!("find kernel {name} of {}", source.name))?;
        Ok(Function::new(handle, name))
    }
}

fn load(image: &[u8]) -> Result<sys::CUmodule> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: the image is machine code that the compiler wrote, whole by its digest.
    check(unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) }, || "load kernels".into())?;
    Ok(handle)
}
