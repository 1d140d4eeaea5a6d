//! NCCL, which adds up gradients between GPUs: whether it is there.

use super::FoundLibrary;
use super::library::{Library, functions, version_text};
use std::sync::OnceLock;

functions! {
    Functions {
        fn ncclGetVersion(*mut i32) -> i32;
    }
}

/// What was found of NCCL, or why nothing was.
pub(super) fn available() -> Result<FoundLibrary, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| Functions::load(Library::open("nccl", &[2])?)).as_ref()?;
    let mut number = 0;
    // SAFETY: it writes one number.
    match unsafe { (functions.ncclGetVersion)(&mut number) } {
        0 => Ok(FoundLibrary {
            version: version_text(number as usize),
            path: functions.library.path(functions.ncclGetVersion as usize),
        }),
        status => Err(format!("it does not tell its version (status {status})")),
    }
}
