//! NVIDIA's own libraries behind Neurona's kernel interface: cuDNN for convolutions, cuBLASLt for matrix products.
//!
//! Both are asked for a list of plans, best guess first, that can be timed and chosen from; a plan has a name under
//! which it is found again in a later run without building the others. Only plans with Neurona's promises are offered:
//! sums in f32, no TF32 for f32, the same bits every run. To execute one is to add it to a stream, without waiting and
//! without allocating, so that it can be captured into a graph.
//!
//! Everything is loaded at run time. Without the libraries everything else works; [`vendor_libraries`] says what was
//! found.

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
pub(crate) mod kernel;
mod library;
mod nccl;
pub(crate) mod pack;
#[cfg(test)]
mod tests;

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// An address in the GPU's memory; 0 where there is nothing.
pub(crate) type Address = u64;

/// Operands and workspaces begin at multiples of this many bytes, as everything does that a plan places.
pub(crate) const ALIGNMENT: usize = 256;

/// How many plans to offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// At most so many. Most are built in a millisecond; those that cuDNN compiles take a quarter of a second.
    pub plans: usize,
    /// None that needs more bytes of workspace.
    pub workspace: usize,
}

/// One of the vendor's libraries, present or not.
#[derive(Clone, Debug)]
pub struct VendorLibrary {
    /// Its name, as NVIDIA writes it.
    pub name: &'static str,
    /// What was found, or why nothing was.
    pub found: Result<FoundLibrary, String>,
    /// What its absence costs, if anything.
    pub without: Option<&'static str>,
}

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Its version, as in `9.14.0`.
    pub version: String,
    /// Its file.
    pub path: PathBuf,
}

/// What there is of NVIDIA's libraries. Asks nothing of the GPU.
pub fn vendor_libraries() -> Vec<VendorLibrary> {
    let library = |name, found, without| VendorLibrary { name, found, without };
    vec![
        library("cuBLASLt", cublaslt::available(), Some("matrix products run on Neurona's own kernels alone")),
        library("cuDNN", cudnn::available(), Some("convolutions run on Neurona's own kernels alone")),
        // It joins several GPUs; Neurona trains on one.
        library("NCCL", nccl::available(), None),
    ]
}

/// One of something for each GPU, made when it is first asked for. A failure is not tried again: it costs time, and
/// what is missing stays missing.
struct PerGpu<T> {
    name: &'static str,
    made: Mutex<BTreeMap<usize, Result<Arc<T>, String>>>,
}

impl<T> PerGpu<T> {
    const fn new(name: &'static str) -> Self {
        PerGpu { name, made: Mutex::new(BTreeMap::new()) }
    }

    fn get(&self, gpu: usize, make: impl FnOnce() -> Result<T, String>) -> Result<Arc<T>> {
        let mut made = self.made.lock().unwrap_or_else(|e| e.into_inner());
        let one = made.entry(gpu).or_insert_with(|| make().map(Arc::new)).clone();
        one.map_err(|problem| Error::Cuda { what: format!("use {}", self.name), problem })
    }
}
