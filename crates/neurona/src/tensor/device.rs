//! Where tensors live and plans run.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A device. The CPU is always there; a GPU may be.
///
/// ```
/// use neurona::Device;
/// assert_eq!("cpu".parse::<Device>().unwrap(), Device::cpu());
/// let error = "cuda:7".parse::<Device>().and_then(|d| d.available()).unwrap_err().to_string();
/// assert!(error.contains("'cuda:7' is not available; available: cpu"), "{error}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// All CPU cores.
    #[default]
    Cpu,
    /// An NVIDIA GPU by its number.
    Cuda(usize),
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
        vec![Device::Cpu]
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
