//! Where tensors live and plans run.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A device. The CPU is always there; a GPU may be.
///
/// ```
/// use neurona::Device;
/// assert_eq!("cpu".parse::<Device>().unwrap(), Device::cpu());
/// let error = "cuda:63".parse::<Device>().and_then(|d| d.available()).unwrap_err().to_string();
/// assert!(error.contains("'cuda:63' is not available; available: cpu"), "{error}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// All CPU cores.
    #[default]
    Cpu,
    /// An NVIDIA GPU by its number.
    Cuda(usize),
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// As the driver calls it.
    pub name: String,
    /// Compute capability: (9, 0) is Hopper.
    pub capability: (u32, u32),
    /// How many of its blocks run at once.
    pub multiprocessors: usize,
    /// Bytes of memory that nobody uses.
    pub free: usize,
    /// Bytes of memory.
    pub total: usize,
}

impl Device {
    /// The CPU.
    pub fn cpu() -> Self {
        Device::Cpu
    }

    /// The GPU of this number; whether it is there is checked on first use.
    pub fn cuda(index: usize) -> Self {
        Device::Cuda(index)
    }

    /// The devices of this machine that this build can run on.
    pub fn all() -> Vec<Device> {
        std::iter::once(Device::Cpu).chain((0..crate::cuda::driver::count()).map(Device::Cuda)).collect()
    }

    /// The name and memory of a GPU (free and total bytes); None for the CPU.
    pub fn gpu(self) -> Result<Option<GpuInfo>> {
        let Device::Cuda(index) = self else { return Ok(None) };
        let gpu = crate::cuda::Gpu::get(index)?;
        let (free, total) = gpu.memory()?;
        Ok(Some(GpuInfo {
            name: gpu.name.clone(),
            capability: gpu.capability,
            multiprocessors: gpu.multiprocessors,
            free,
            total,
        }))
    }

    /// Waits until all work given to the device has ended; the CPU has none pending.
    pub fn synchronize(self) -> Result<()> {
        match self {
            Device::Cpu => Ok(()),
            Device::Cuda(index) => crate::cuda::Gpu::get(index)?.synchronize(),
        }
    }

    /// This device, or an error that lists those that are there.
    pub fn available(self) -> Result<Self> {
        if Device::all().contains(&self) {
            return Ok(self);
        }
        Err(Error::Device { asked: self.to_string(), available: Device::all().iter().map(Device::to_string).collect() })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(i) => write!(f, "cuda:{i}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => s.strip_prefix("cuda:").and_then(|i| i.parse().ok()).map(Device::Cuda).ok_or_else(|| Error::Device {
                asked: s.to_string(),
                available: Device::all().iter().map(Device::to_string).collect(),
            }),
        }
    }
}

impl TryFrom<&str> for Device {
    type Error = Error;
    fn try_from(s: &str) -> Result<Self> {
        s.parse()
    }
}
