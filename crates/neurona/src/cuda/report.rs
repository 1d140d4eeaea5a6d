//! What of CUDA this machine has.

use super::vendor::vendor_libraries;
use super::{compiler, driver, memory};
use crate::{Device, GpuInfo};
use std::path::PathBuf;

/// A piece of software that GPUs are used through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPart {
    /// What it is called.
    pub name: &'static str,
    /// Its version, or why it cannot be used.
    pub found: Result<String, String>,
    /// What is lost without it, if anything.
    pub without: Option<&'static str>,
}

/// What of CUDA this machine has.
#[derive(Clone, Debug)]
pub struct CudaReport {
    /// Driver, compiler and libraries.
    pub parts: Vec<CudaPart>,
    /// The GPUs, or why one that is there does not start.
    pub gpus: Vec<Result<GpuInfo, String>>,
    /// Where compiled kernels are kept; none when the system has no such place.
    pub kernel_folder: Option<PathBuf>,
    /// How many are there, with the files of choices.
    pub kernel_files: usize,
    /// Their bytes.
    pub kernel_bytes: u64,
}

/// Looks what of CUDA this machine has: driver, GPUs, compiler, libraries, and kernels compiled so far.
///
/// ```
/// let report = neurona::cuda_report();
/// assert_eq!(report.parts[0].name, "driver");
/// assert_eq!(report.gpus.len(), neurona::Device::all().len() - 1);
/// ```
pub fn cuda_report() -> CudaReport {
    let dotted = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let driver = driver::ready().map_err(String::from).map(|()| {
        driver::version().map_or_else(|| "of unknown version".into(), |version| format!("CUDA {}", dotted(version)))
    });
    let compiler = compiler::version().map(dotted).ok_or_else(|| "libnvrtc is not installed".to_string());
    let own = [
        ("driver", driver, "nothing runs on a GPU; install the NVIDIA driver"),
        (
            "NVRTC",
            compiler,
            "only kernels that were compiled before run on a GPU; install the CUDA toolkit, or its package \
             nvidia-cuda-nvrtc, and put its folder on LD_LIBRARY_PATH",
        ),
    ];
    let own = own.map(|(name, found, without)| CudaPart { name, found, without: Some(without) });
    let vendor = vendor_libraries().into_iter().map(|library| CudaPart {
        name: library.name,
        found: library.found.map(|found| format!("{}, {}", found.version, found.path.display())),
        without: library.without,
    });
    let gpu = |device: Device| device.gpu().map_err(|e| e.to_string()).transpose();
    let kernel_folder = compiler::folder().map(PathBuf::from);
    let entries = kernel_folder.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let sizes: Vec<u64> = entries.filter_map(|entry| entry.metadata().ok()).map(|about| about.len()).collect();
    CudaReport {
        parts: own.into_iter().chain(vendor).collect(),
        gpus: Device::all().into_iter().filter_map(gpu).collect(),
        kernel_folder,
        kernel_files: sizes.len(),
        kernel_bytes: sizes.iter().sum(),
    }
}

/// The most device memory that this process has held at once, in bytes; 0 when it has used no GPU.
pub fn gpu_peak_memory() -> u64 {
    memory::peak() as u64
}

/// Why a GPU cannot be used; none when it can, or for the CPU. Starts the GPU.
///
/// ```
/// use neurona::{Device, gpu_problem};
/// assert_eq!(gpu_problem(Device::Cpu), None);
/// println!("{}", gpu_problem(Device::cuda(63)).unwrap()); // the NVIDIA driver (libcuda) is not installed
/// ```
pub fn gpu_problem(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else { return None };
    if let Err(problem) = driver::ready() {
        return Some(problem.to_string());
    }
    match driver::count() {
        0 => Some("the NVIDIA driver knows of no GPU".into()),
        1 if index > 0 => Some("there is one GPU, cuda:0".into()),
        count if index >= count => Some(format!("there are {count} GPUs, cuda:0 to cuda:{}", count - 1)),
        _ => device.gpu().err().map(|e| e.to_string()),
    }
}
