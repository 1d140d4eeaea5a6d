//! The CUDA driver: whether it is there, and its error codes as errors.

use crate::{Error, Result};
use cudarc::driver::sys;
use std::ffi::CStr;
use std::sync::OnceLock;

/// What a call to the driver gave.
pub(crate) type Code = sys::CUresult;

/// An error that says what was attempted when the driver refused.
pub(crate) fn check(code: Code, what: impl FnOnce() -> String) -> Result<()> {
    match code {
        Code::CUDA_SUCCESS => Ok(()),
        code => Err(Error::Cuda { what: what(), problem: explain(code) }),
    }
}

/// The driver's name and words for a code, and what to do about the ones people meet.
fn explain(code: Code) -> String {
    let text = |f: unsafe fn(Code, *mut *const std::ffi::c_char) -> Code| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes the address of a string of its own, or leaves null.
        let known = unsafe { f(code, &mut text) } == Code::CUDA_SUCCESS && !text.is_null();
        // SAFETY: as above.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", code as u32));
    let words = text(sys::cuGetErrorString).unwrap_or_default();
    let advice = match code {
        Code::CUDA_ERROR_ILLEGAL_ADDRESS | Code::CUDA_ERROR_LAUNCH_FAILED | Code::CUDA_ERROR_MISALIGNED_ADDRESS => {
            "; NEURONA_CHECK=1 runs ops one at a time and names the one that fails"
        }
        Code::CUDA_ERROR_ECC_UNCORRECTABLE
        | Code::CUDA_ERROR_DEVICE_UNAVAILABLE
        | Code::CUDA_ERROR_SYSTEM_NOT_READY => {
            "; the GPU was lost: the last checkpoint is intact, and `--resume` goes on from it"
        }
        Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => "; update the NVIDIA driver",
        _ => "",
    };
    format!("{name} ({words}){advice}")
}

/// Whether the driver can be used; if not, why.
pub(crate) fn ready() -> Result<(), &'static str> {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        // SAFETY: only looks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err("the NVIDIA driver (libcuda) is not installed".into());
        }
        // SAFETY: the library is there; initialising twice is allowed.
        match unsafe { sys::cuInit(0) } {
            Code::CUDA_SUCCESS => Ok(()),
            code => Err(format!("the NVIDIA driver does not start: {}", explain(code))),
        }
    });
    ready.as_ref().map(|_| ()).map_err(String::as_str)
}

/// The number of GPUs; 0 without a driver.
pub(crate) fn count() -> usize {
    if ready().is_err() {
        return 0;
    }
    let mut count = 0;
    // SAFETY: writes one number.
    let code = unsafe { sys::cuDeviceGetCount(&mut count) };
    if code == Code::CUDA_SUCCESS { count.max(0) as usize } else { 0 }
}

/// The CUDA version that the driver serves, as (13, 0).
pub(crate) fn version() -> Option<(u32, u32)> {
    ready().ok()?;
    let mut version = 0;
    // SAFETY: writes one number.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    (code == Code::CUDA_SUCCESS).then_some((version as u32 / 1000, version as u32 % 1000 / 10))
}
