//! Chains of element-wise ops as one pass over memory.
//!
//! A program is a list of instructions over registers; a register holds one tile of elements, small
//! enough that a handful of them stay in the L1 cache. So a chain of ops reads each operand once and
//! writes each result once, however long it is.

use super::kernel::{Buf, Io, Kernel, share};
use super::simd::vectorized;
use crate::tensor::{DType, with_storage_type};
use half::{bf16, f16};
use smallvec::SmallVec;

/// Elements of a tile. 512 f32 are 2 KiB: ten registers fit the 32 KiB of L1 with room for the operands,
/// and the cost of choosing an instruction (a few ns) is spread over 64 AVX2 vectors.
pub const TILE: usize = 512;

/// Elements that one task computes.
const PER_TASK: usize = 32 * TILE;

/// An op on one tile: addresses of up to three operands and of the result, and the number of elements.
///
/// # Safety
/// Each address must hold that many elements of the type the function was chosen for, and the result must
/// not overlap an operand.
pub type TileFn = unsafe fn([*const u8; 3], *mut u8, usize);

/// Writes the tile function of an expression over one, two or three elements.
macro_rules! tile {
    (|$($x:ident : $T:ty),*| -> $U:ty { $e:expr }) => {{
        /// # Safety
        /// As for `TileFn`.
        unsafe fn run(operands: [*const u8; 3], result: *mut u8, n: usize) {
            let mut _operand = operands.iter();
            $(
                // SAFETY: the caller promises n elements of this type at each address.
                let $x: &[$T] = unsafe { std::slice::from_raw_parts(_operand.next().expect("at most three").cast(), n) };
            )*
            // SAFETY: as above, and the result overlaps no operand.
            let result: &mut [$U] = unsafe { std::slice::from_raw_parts_mut(result.cast(), n) };
            $crate::cpu::simd::vectorized(#[inline(always)] || {
                for i in 0..n {
                    // SAFETY: i < n, the length of every slice.
                    unsafe { $( let $x = *$x.get_unchecked(i); )* *result.get_unchecked_mut(i) = $e; }
                }
            });
        }
        Some(run as $crate::cpu::elementwise::TileFn)
    }};
}

/// The tile function of an expression that reads the same for f32 and f64.
macro_rules! float_tile {
    ($dtype:expr, |$($x:ident),*| $e:expr) => {
        match $dtype {
            $crate::tensor::DType::F32 => $crate::cpu::elementwise::tile!(|$($x: f32),*| -> f32 { $e }),
            $crate::tensor::DType::F64 => $crate::cpu::elementwise::tile!(|$($x: f64),*| -> f64 { $e }),
            _ => None,
        }
    };
}
pub(crate) use {float_tile, tile};

/// How an operand is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Element i of the operand goes with element i of the result.
    Full,
    /// One element for all.
    Scalar,
    /// By strides over the program's shape; 0 where it is broadcast.
    Strided(SmallVec<[usize; 4]>),
}

/// One operand of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// How it is read.
    pub access: Access,
    /// How it is stored; 16-bit floats are widened when they are read.
    pub dtype: DType,
}

/// One op of a program; registers `0..operands` are the operands, then one an instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The function on a tile.
    pub tile: TileFn,
    /// The same as a CUDA C++ expression.
    pub cuda: &'static str,
    /// The registers it reads.
    pub args: SmallVec<[u16; 3]>,
    /// The type of its result; 16-bit floats are rounded to after every op, as if they had been stored.
    pub dtype: DType,
}

/// A chain of element-wise ops.
#[derive(Clone, Debug)]
pub struct Program {
    /// The shape it runs over, in memory order.
    pub shape: SmallVec<[usize; 4]>,
    /// What it reads.
    pub operands: Vec<Operand>,
    /// What it does.
    pub instructions: Vec<Instruction>,
    /// The registers it writes to memory.
    pub results: Vec<u16>,
}

impl Program {
    /// Elements of each result.
    pub(crate) fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of one register: the widest element type.
    const REGISTER: usize = TILE * 8;
}

impl Kernel for Program {
    fn phases(&self) -> Vec<usize> {
        vec![self.numel().div_ceil(PER_TASK)]
    }

    fn scratch(&self) -> usize {
        (self.operands.len() + self.instructions.len()) * Self::REGISTER
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let range = share(self.numel(), self.numel().div_ceil(PER_TASK), task);
        let register = |r: usize| io.scratch.part::<u8>(r * Self::REGISTER, Self::REGISTER);
        for (i, operand) in self.operands.iter().enumerate() {
            if operand.access == Access::Scalar {
                let to = register(i);
                // SAFETY: registers are private to this thread; the operand has at least one element.
                unsafe { fill(operand.dtype, io.inputs[i], 0, to, 0, TILE) };
            }
        }
        // Room for the longest program, so that running one allocates nothing.
        let mut addresses: SmallVec<[*mut u8; 64]> =
            (0..self.operands.len() + self.instructions.len()).map(|r| register(r).ptr()).collect();
        let mut start = range.start;
        while start < range.end {
            let n = TILE.min(range.end - start);
            for (i, operand) in self.operands.iter().enumerate() {
                match &operand.access {
                    Access::Scalar => {}
                    Access::Full if operand.dtype.compute() == operand.dtype => {
                        addresses[i] =
                            io.inputs[i].part::<u8>(start * operand.dtype.size(), n * operand.dtype.size()).ptr();
                    }
                    Access::Full => {
                        // SAFETY: `start..start + n` lies in the operand, which has as many elements as the result.
                        unsafe { copy(operand.dtype, io.inputs[i], start, register(i), 0, n) }
                    }
                    Access::Strided(strides) => {
                        self.gather(strides, operand.dtype, io.inputs[i], start, n, register(i))
                    }
                }
            }
            for (j, instruction) in self.instructions.iter().enumerate() {
                let r = self.operands.len() + j;
                let direct = self
                    .results
                    .iter()
                    .position(|&x| x as usize == r)
                    .filter(|_| instruction.dtype.compute() == instruction.dtype);
                addresses[r] = match direct {
                    Some(k) => {
                        io.outputs[k].part::<u8>(start * instruction.dtype.size(), n * instruction.dtype.size()).ptr()
                    }
                    None => register(r).ptr(),
                };
                let mut operands = [std::ptr::null(); 3];
                for (slot, &a) in operands.iter_mut().zip(&instruction.args) {
                    *slot = addresses[a as usize].cast_const();
                }
                // SAFETY: registers and buffers hold n elements of the types the function was chosen for, and
                // a result's register or output differs from those of all earlier registers.
                unsafe { (instruction.tile)(operands, addresses[r], n) };
                round(instruction.dtype, addresses[r], n);
            }
            for (k, &r) in self.results.iter().enumerate() {
                let dtype = self.dtype(r);
                let from = addresses[r as usize];
                let to = io.outputs[k].part::<u8>(start * dtype.size(), n * dtype.size());
                if from != to.ptr() {
                    // SAFETY: `from` holds n elements of the compute type, `to` room for n of the stored type.
                    unsafe { store(dtype, from, to.ptr(), n) };
                }
            }
            start += n;
        }
    }

    fn flops(&self) -> u64 {
        (self.numel() * self.instructions.len()) as u64
    }
}

impl Program {
    /// How a register's elements are stored.
    pub(crate) fn dtype(&self, register: u16) -> DType {
        match self.operands.get(register as usize) {
            Some(operand) => operand.dtype,
            None => self.instructions[register as usize - self.operands.len()].dtype,
        }
    }

    /// Reads a broadcast operand for elements `start..start + n` of the program's shape.
    fn gather(&self, strides: &[usize], dtype: DType, from: Buf, start: usize, n: usize, to: Buf) {
        let rank = self.shape.len();
        let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, rank);
        let (mut rest, mut offset) = (start, 0);
        for d in (0..rank).rev() {
            index[d] = rest % self.shape[d];
            rest /= self.shape[d];
            offset += index[d] * strides[d];
        }
        let mut done = 0;
        while done < n {
            let run = (self.shape[rank - 1] - index[rank - 1]).min(n - done);
            // SAFETY: strides and shape keep every offset inside the operand; the register holds TILE elements.
            unsafe {
                match strides[rank - 1] {
                    0 => fill(dtype, from, offset, to, done, run),
                    1 => copy(dtype, from, offset, to, done, run),
                    s => (0..run).for_each(|i| copy(dtype, from, offset + i * s, to, done + i, 1)),
                }
            }
            done += run;
            index[rank - 1] += run;
            offset += run * strides[rank - 1];
            for d in (1..rank).rev() {
                if index[d] < self.shape[d] {
                    break;
                }
                offset = offset + strides[d - 1] - index[d] * strides[d];
                index[d] = 0;
                index[d - 1] += 1;
            }
        }
    }
}

/// The type a stored element has in a register.
trait Widen: crate::cpu::kernel::Plain {
    type Wide: crate::cpu::kernel::Plain;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}
macro_rules! widen { ($($t:ty, $w:ty, $x:ident => $up:expr, $y:ident => $down:expr;)*) => { $(
    impl Widen for $t {
        type Wide = $w;
        #[inline(always)]
        fn widen(self) -> $w { let $x = self; $up }
        #[inline(always)]
        fn narrow($y: $w) -> Self { $down }
    }
)* } }
widen! {
    f32, f32, x => x, y => y;
    f64, f64, x => x, y => y;
    i64, i64, x => x, y => y;
    u8, u8, x => x, y => y;
    f16, f32, x => x.to_f32(), y => f16::from_f32(y);
    bf16, f32, x => x.to_f32(), y => bf16::from_f32(y);
}

/// Widens `n` elements from `from[at..]` into `to[to_at..]`.
///
/// # Safety
/// Both ranges must lie in their buffers, and nobody else may use the target.
unsafe fn copy(dtype: DType, from: Buf, at: usize, to: Buf, to_at: usize, n: usize) {
    with_storage_type!(dtype, T => {
        // SAFETY: by the caller's promise.
        let (from, to) = unsafe { (&from.slice::<T>()[at..at + n], to.slice_mut::<<T as Widen>::Wide>(to_at..to_at + n)) };
        vectorized(#[inline(always)] || to.iter_mut().zip(from).for_each(|(t, f)| *t = f.widen()));
    })
}

/// Writes `n` copies of `from[at]` into `to[to_at..]`.
///
/// # Safety
/// As for `copy`.
unsafe fn fill(dtype: DType, from: Buf, at: usize, to: Buf, to_at: usize, n: usize) {
    with_storage_type!(dtype, T => {
        // SAFETY: by the caller's promise.
        unsafe { to.slice_mut::<<T as Widen>::Wide>(to_at..to_at + n).fill(from.slice::<T>()[at].widen()) };
    })
}

/// Narrows `n` elements.
///
/// # Safety
/// `from` must hold n elements of the compute type, `to` room for n of `dtype`.
unsafe fn store(dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    with_storage_type!(dtype, T => {
        // SAFETY: by the caller's promise.
        unsafe {
            let from = std::slice::from_raw_parts(from.cast::<<T as Widen>::Wide>(), n);
            let to = std::slice::from_raw_parts_mut(to.cast::<T>(), n);
            to.iter_mut().zip(from).for_each(|(t, f)| *t = T::narrow(*f));
        }
    })
}

/// Rounds f32 values to what the 16-bit types can hold; other types are left alone.
fn round(dtype: DType, at: *mut u8, n: usize) {
    if dtype.compute() == dtype {
        return;
    }
    // SAFETY: called on registers that hold n values of the compute type, f32.
    let values = unsafe { std::slice::from_raw_parts_mut(at.cast::<f32>(), n) };
    match dtype {
        DType::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
        _ => values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32()),
    }
}
