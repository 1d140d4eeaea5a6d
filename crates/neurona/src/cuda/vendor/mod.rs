//! NVIDIA's own libraries behind Neurona's kernel interface: cuDNN for convolutions, cuBLASLt for matrix products.
//!
//! Both are asked for a list of candidate plans, best guess first, that the caller can time and choose from; a plan
//! has a name under which it is found again in a later run without building the others. Only plans with Neurona's
//! promises are offered: sums in f32, no TF32 for f32, the same bits every run. To execute one is to enqueue it on a
//! stream: no synchronisation and no allocation, so that it can be captured into a CUDA graph.
//!
//! Everything is loaded at run time. Without the libraries everything else works; [`libraries`] says what was found.

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
mod library;
mod nccl;

pub use library::VendorError;
use std::path::PathBuf;

/// The result of a vendor library's call.
pub type Result<T, E = VendorError> = std::result::Result<T, E>;

/// An address in the GPU's memory; 0 where there is nothing.
pub(crate) type Address = u64;

/// Operands begin at multiples of this many bytes. The widest loads and the copy engine of any GPU ask for no more.
pub(crate) const ALIGNMENT: usize = 16;

/// How many plans to offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// At most so many plans; building one can take from a millisecond to a second.
    pub plans: usize,
    /// No plan that needs more bytes of workspace.
    pub workspace: usize,
}

/// One of the vendor's libraries, present or not.
#[derive(Clone, Debug)]
pub struct VendorLibrary {
    /// Its name, as NVIDIA writes it.
    pub name: &'static str,
    /// What was found, or why nothing was.
    pub found: Result<Found, String>,
    /// What its absence costs.
    pub without: &'static str,
}

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version, as in `9.14.0`.
    pub version: String,
    /// Its file.
    pub path: PathBuf,
}

/// What there is of the vendor's libraries. Asks nothing of the GPU.
pub fn libraries() -> Vec<VendorLibrary> {
    let without_nccl = "nothing: Neurona trains on one GPU";
    vec![
        VendorLibrary {
            name: "cuBLASLt",
            found: cublaslt::available(),
            without: "matrix products always run on Neurona's own kernels",
        },
        VendorLibrary {
            name: "cuDNN",
            found: cudnn::available(),
            without: "convolutions always run on Neurona's own kernels",
        },
        VendorLibrary { name: "NCCL", found: nccl::available(), without: without_nccl },
    ]
}
