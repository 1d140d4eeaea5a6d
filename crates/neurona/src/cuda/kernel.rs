//! The contract between a plan and the code that launches one of its steps on a GPU.
//!
//! Most steps are data: a list of launches whose arguments name operands by position. They are launched once into a
//! graph and replayed, so nothing here may depend on the state of the program at the time of a launch.

use super::driver::check;
use super::fault::Fault;
use super::gpu::Stream;
use super::tensor_map::TensorMap;
use crate::cpu::storage::Storage;
use crate::error::Place;
use crate::{Error, Result};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// One step of a plan on a GPU.
pub(crate) trait Kernel: Send + Sync {
    /// Bytes of device memory for one run (partial sums, packed weights); contents undefined at start.
    fn workspace(&self) -> usize {
        0
    }

    /// Its work in order. Parts that touch different memory may run side by side, also with those of other steps.
    fn parts(&self) -> Vec<&dyn Work>;

    /// Adds the step's work to the stream.
    fn launch(&self, io: &Io<'_>, stream: Stream) -> Result<()> {
        self.parts().into_iter().try_for_each(|part| part.add(io, stream))
    }

    /// Arithmetic of one run, for the debug table (multiply and add count as two).
    fn flops(&self) -> u64 {
        0
    }

    /// Tells it where it stands in the model and in the program, for errors that it finds while it runs.
    fn stand_at(&self, _place: &Place) {}
}

/// A part of a step that the driver takes in one go.
pub(crate) trait Work {
    /// Adds it to the stream.
    fn add(&self, io: &Io<'_>, stream: Stream) -> Result<()>;

    /// Which memory it reads and writes, by the names of the step.
    fn touches(&self) -> Vec<Slot>;
}

/// The device addresses of one run of a kernel.
pub(crate) struct Io<'a> {
    /// One an operand, in the op's order.
    pub inputs: &'a [u64],
    /// One a result.
    pub outputs: &'a [u64],
    /// 256-byte aligned.
    pub workspace: u64,
}

/// A compiled kernel.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    handle: sys::CUfunction,
    name: Arc<str>,
}

// SAFETY: a handle that any thread may use; its module is never unloaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub fn new(handle: sys::CUfunction, name: &str) -> Self {
        Function { handle, name: name.into() }
    }

    /// Blocks of this shape that one multiprocessor holds at once.
    pub fn occupancy(&self, threads: u32, shared: u32) -> Result<usize> {
        self.allow(shared)?;
        let mut blocks = 0;
        // SAFETY: writes one number.
        let code = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.handle, threads as i32, shared as usize)
        };
        check(code, || format!("ask for the occupancy of {}", self.name))?;
        Ok(blocks as usize)
    }

    /// More shared memory than every GPU has must be asked for.
    fn allow(&self, shared: u32) -> Result<()> {
        if shared <= 48 << 10 {
            return Ok(());
        }
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: changes a number of the function's.
        let code = unsafe { sys::cuFuncSetAttribute(self.handle, which, shared as i32) };
        check(code, || format!("give {} {shared} bytes of shared memory", self.name))
    }
}

/// How many threads, in blocks of how many, with how much dynamic shared memory a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
}

impl Grid {
    /// Blocks of 256 threads, enough for one thread an element but no more than fill any GPU several times: kernels
    /// step through the rest.
    pub fn over(elements: usize) -> Grid {
        Grid { blocks: [elements.div_ceil(256).clamp(1, 1 << 14) as u32, 1, 1], threads: [256, 1, 1], shared: 0 }
    }

    /// This many blocks in a row.
    pub fn line(blocks: usize, threads: u32) -> Grid {
        Grid { blocks: [blocks as u32, 1, 1], threads: [threads, 1, 1], shared: 0 }
    }
}

/// An address that is known when a plan is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Input(usize),
    Output(usize),
    /// Bytes from the workspace's start.
    Workspace(usize),
    /// No address.
    Null,
}

impl Slot {
    pub fn address(self, io: &Io<'_>) -> u64 {
        match self {
            Slot::Input(i) => io.inputs[i],
            Slot::Output(i) => io.outputs[i],
            Slot::Workspace(offset) => io.workspace + offset as u64,
            Slot::Null => 0,
        }
    }
}

/// One argument of a kernel.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Input(usize),
    Output(usize),
    Workspace(usize),
    Null,
    I32(i32),
    I64(i64),
    F64(f64),
    /// A struct by value.
    Bytes(Vec<u8>),
    /// An array of addresses by value.
    Addresses(Vec<Slot>),
    /// What Hopper's copy engine must know of the tensor at this address.
    Map(Slot, TensorMap),
    /// Memory of the step's own, which keeps from run to run what kernels leave there.
    Own(Arc<Storage>),
    /// Where the kernel says that a class number is none.
    Fault(Arc<Fault>),
}

impl Argument {
    /// The addresses in it.
    fn slots(&self) -> Vec<Slot> {
        match self {
            Argument::Input(i) => vec![Slot::Input(*i)],
            Argument::Output(i) => vec![Slot::Output(*i)],
            Argument::Workspace(offset) => vec![Slot::Workspace(*offset)],
            Argument::Addresses(slots) => slots.clone(),
            Argument::Map(slot, _) => vec![*slot],
            Argument::Null | Argument::I32(_) | Argument::I64(_) | Argument::F64(_) | Argument::Bytes(_) => Vec::new(),
            // Of no interest to other launches.
            Argument::Own(_) | Argument::Fault(_) => Vec::new(),
        }
    }

    /// Its bytes as the kernel sees them.
    fn write(&self, io: &Io<'_>, to: &mut Vec<u8>) -> Result<()> {
        let address = |slot: Slot| slot.address(io).to_ne_bytes();
        match self {
            Argument::Input(i) => to.extend(address(Slot::Input(*i))),
            Argument::Output(i) => to.extend(address(Slot::Output(*i))),
            Argument::Workspace(offset) => to.extend(address(Slot::Workspace(*offset))),
            Argument::Null => to.extend(address(Slot::Null)),
            Argument::I32(x) => to.extend(x.to_ne_bytes()),
            Argument::I64(x) => to.extend(x.to_ne_bytes()),
            Argument::F64(x) => to.extend(x.to_ne_bytes()),
            Argument::Bytes(bytes) => to.extend(bytes),
            Argument::Addresses(slots) => slots.iter().for_each(|slot| to.extend(address(*slot))),
            Argument::Map(slot, map) => to.extend(map.encode(slot.address(io))?),
            Argument::Own(storage) => to.extend(storage.address().to_ne_bytes()),
            Argument::Fault(fault) => to.extend(fault.address().to_ne_bytes()),
        }
        Ok(())
    }
}

/// One launch of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub function: Function,
    pub grid: Grid,
    pub arguments: Vec<Argument>,
}

/// The driver takes no more than this for all arguments of a kernel.
pub(crate) const ARGUMENT_BYTES: usize = 4096;

impl Work for Launch {
    fn touches(&self) -> Vec<Slot> {
        self.arguments.iter().flat_map(Argument::slots).collect()
    }

    fn add(&self, io: &Io<'_>, stream: Stream) -> Result<()> {
        // Each argument in 64-byte aligned room of its own: structs want at most that.
        let mut room: Vec<u8> = Vec::with_capacity(self.arguments.len() * 64);
        let mut starts = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            room.resize(room.len().next_multiple_of(64), 0);
            starts.push(room.len());
            argument.write(io, &mut room)?;
        }
        if room.len() > ARGUMENT_BYTES + 64 * self.arguments.len() {
            return Err(Error::Cuda {
                what: format!("launch {}", self.function.name),
                problem: "too many arguments".into(),
            });
        }
        let mut pointers: Vec<*mut c_void> = starts.iter().map(|s| room[*s..].as_mut_ptr().cast()).collect();
        let Grid { blocks: [bx, by, bz], threads: [tx, ty, tz], shared } = self.grid;
        self.function.allow(shared)?;
        // SAFETY: the launcher of the op has written the arguments in the order and of the types of the kernel's
        // parameters, and addresses with room for what the kernel reads and writes there.
        let code = unsafe {
            let (handle, arguments) = (self.function.handle, pointers.as_mut_ptr());
            sys::cuLaunchKernel(handle, bx, by, bz, tx, ty, tz, shared, stream.0, arguments, std::ptr::null_mut())
        };
        check(code, || format!("launch {} with {:?}", self.function.name, self.grid))
    }
}

/// A step that is a list of launches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launches {
    pub launches: Vec<Launch>,
    pub workspace: usize,
    pub flops: u64,
}

impl Kernel for Launches {
    fn workspace(&self) -> usize {
        self.workspace
    }
    fn parts(&self) -> Vec<&dyn Work> {
        self.launches.iter().map(|launch| launch as &dyn Work).collect()
    }
    fn flops(&self) -> u64 {
        self.flops
    }
    fn stand_at(&self, place: &Place) {
        for argument in self.launches.iter().flat_map(|launch| &launch.arguments) {
            if let Argument::Fault(fault) = argument {
                fault.stand_at(place);
            }
        }
    }
}
