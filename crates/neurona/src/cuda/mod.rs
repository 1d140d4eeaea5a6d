//! Runs plans on NVIDIA GPUs. The driver, the compiler and the vendor's libraries are loaded when they are first
//! needed: the same binary runs on machines that have none of them.

pub mod bench;
mod capture;
pub(crate) mod choice;
mod compiler;
pub(crate) mod cut;
pub(crate) mod driver;
pub(crate) mod elementwise;
pub(crate) mod fault;
pub(crate) mod gpu;
pub(crate) mod hopper;
pub(crate) mod index;
pub(crate) mod kernel;
pub(crate) mod memory;
mod order;
pub(crate) mod product;
mod report;
pub(crate) mod runner;
pub(crate) mod tensor_map;
mod timing;
pub(crate) mod transfer;
pub(crate) mod vendor;

pub(crate) use compiler::Source;
pub(crate) use gpu::Gpu;

/// What an op gives for a step on a GPU.
pub(crate) type GpuKernel = Box<dyn kernel::Kernel>;
pub use report::{CudaPart, CudaReport, cuda_report, gpu_peak_memory, gpu_problem};

use crate::tensor::DType;

/// The type of an element in kernels.
pub(crate) fn cuda_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "u8",
        DType::I64 => "i64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}
