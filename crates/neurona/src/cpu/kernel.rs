//! The contract between a plan and the code that computes one of its steps on CPU cores.
//!
//! A kernel is built once, when a plan is made, from shapes alone; it then runs many times.
//! Its work is cut into *phases*, and each phase into *tasks*. Tasks of one phase may run on
//! different threads in any order; all tasks of a phase end before the next phase begins.
//! How the work is cut depends on shapes only, never on the number of threads, so that the
//! same seed gives the same bits on any machine with the same instruction set.

use std::ops::Range;

/// One step of a plan on CPU cores.
pub trait Kernel: Send + Sync {
    /// The number of tasks of each phase.
    fn phases(&self) -> Vec<usize>;

    /// Bytes shared by all tasks of one run (partial sums, packed weights); contents undefined at start.
    fn workspace(&self) -> usize {
        0
    }

    /// Bytes private to the running thread; contents undefined at the start of each task.
    fn scratch(&self) -> usize {
        0
    }

    /// Computes one task. It must write only the parts of outputs and workspace that belong to this task.
    fn run(&self, phase: usize, task: usize, io: &Io<'_>);

    /// What the first phase makes of inputs that may last from run to run, when that is all it does: a plan then runs it
    /// once for each version of them.
    fn prepared(&self) -> Option<Prepared> {
        None
    }

    /// How its tasks keep to parts of the batch, if they do: such kernels can follow each other without waiting.
    fn strands(&self) -> Option<Strands> {
        None
    }

    /// Arithmetic of one run, for the debug table (multiply and add count as two).
    fn flops(&self) -> u64 {
        0
    }
}

/// Packed or transformed weights: what the first phase of a kernel leaves in its workspace. Later phases read it; should
/// they write to the workspace too, then elsewhere, and what they write is kept in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The inputs, by position, that the first phase reads and no other phase does.
    pub inputs: Vec<usize>,
    /// The way of packing, and all sizes that it depends on: of the same inputs, kernels with the same form make the
    /// same bytes.
    pub form: (&'static str, Vec<usize>),
}

/// How the tasks of a kernel keep to parts of the batch, the first dimension of the operands and results named here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strands {
    /// One a phase.
    pub phases: Vec<Strand>,
    /// Inputs, by position, of which tasks read their own part alone. Others they may read whole.
    pub inputs: Vec<usize>,
    /// Outputs of which they write their own part alone.
    pub outputs: Vec<usize>,
}

/// How the tasks of a phase keep to parts of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strand {
    /// Into so many equal runs of neighbouring tasks, or any divisor of that, the phase can be cut: each needs, of what the
    /// phases before it have written, only what the same run wrote there.
    pub parts: usize,
    /// It needs all of the phase before it.
    pub waits: bool,
}

impl Strand {
    /// Tasks that keep to no part.
    pub const NONE: Strand = Strand { parts: 1, waits: true };

    /// Tasks in so many parts, each of which follows its own.
    pub fn of(parts: usize) -> Strand {
        Strand { parts, waits: false }
    }

    /// Tasks that [`share`] a batch.
    pub fn sharing(batch: usize, tasks: usize) -> Strand {
        Strand::of(common(batch, tasks))
    }
}

/// The greatest common divisor.
pub(crate) fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

/// The memory of one run of a kernel.
pub struct Io<'a> {
    /// One buffer an operand, in the op's order.
    pub inputs: &'a [Buf],
    /// One buffer a result.
    pub outputs: &'a [Buf],
    /// Shared by all tasks of this run, 64-byte aligned.
    pub workspace: Buf,
    /// Private to the running thread, 64-byte aligned.
    pub scratch: Buf,
}

/// A range of bytes that a plan has set aside. Cheap to copy; knows its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buf {
    ptr: *mut u8,
    bytes: usize,
}

// SAFETY: a Buf is an address and a length; what may be done with it is checked where it is dereferenced.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

/// Plain numbers: any bit pattern is a value.
///
/// # Safety
/// Only for types without padding for which every bit pattern is valid.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
macro_rules! plain { ($($t:ty),*) => { $(
    // SAFETY: primitive numbers have no padding and no invalid bit patterns.
    unsafe impl Plain for $t {}
)* } }
plain!(f32, f64, u8, i64, u16, u32, u64, half::f16, half::bf16);

impl Buf {
    /// A buffer of `bytes` bytes at `ptr`.
    pub fn new(ptr: *mut u8, bytes: usize) -> Self {
        Buf { ptr, bytes }
    }

    /// A buffer over a slice, for tests and one-off calls; the caller keeps the slice alive and unshared.
    pub fn over<T: Plain>(slice: &mut [T]) -> Self {
        Buf::new(slice.as_mut_ptr().cast(), std::mem::size_of_val(slice))
    }

    /// An empty buffer.
    pub fn empty() -> Self {
        Buf::new(std::ptr::dangling_mut::<u64>().cast(), 0)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its length in elements of `T`.
    pub fn len<T: Plain>(&self) -> usize {
        self.bytes / size_of::<T>()
    }

    /// The address as elements of `T`, for kernels whose input and output may be the same memory.
    pub fn ptr<T: Plain>(&self) -> *mut T {
        self.ptr.cast()
    }

    /// The contents for reading.
    ///
    /// # Safety
    /// No task may write this buffer during the same phase.
    pub unsafe fn slice<T: Plain>(&self) -> &[T] {
        debug_assert_eq!(self.ptr.align_offset(align_of::<T>()), 0);
        // SAFETY: the plan keeps the bytes alive during a run; the caller promises that nobody writes them.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.len::<T>()) }
    }

    /// A part of the contents for writing; panics when the range does not fit.
    ///
    /// # Safety
    /// No other task may read or write this range during the same phase.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut<T: Plain>(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len::<T>());
        // SAFETY: in bounds by the check above; unshared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast::<T>().add(range.start), range.len()) }
    }

    /// The sub-buffer of `count` elements of `T` from element `start`; panics when it does not fit.
    pub fn part<T: Plain>(&self, start: usize, count: usize) -> Buf {
        assert!(start + count <= self.len::<T>());
        // SAFETY: in bounds by the check above.
        Buf::new(unsafe { self.ptr.add(start * size_of::<T>()) }, count * size_of::<T>())
    }
}

/// Cuts `0..total` into `tasks` ranges as even as possible; returns the range of `task`.
///
/// ```
/// use neurona::cpu::kernel::share;
/// assert_eq!((share(10, 3, 0), share(10, 3, 2)), (0..3, 6..10));
/// ```
pub fn share(total: usize, tasks: usize, task: usize) -> Range<usize> {
    total * task / tasks..total * (task + 1) / tasks
}
