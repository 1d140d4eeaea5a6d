//! Kernels from source to machine code for the GPU at hand, by NVRTC, and the folder that keeps them.
//!
//! A stored kernel is found by a digest of everything that went into it (source, included files, macros, architecture,
//! compiler version), and begins with a digest of itself: a damaged file is noticed and compiled again.

use super::driver::ready;
use crate::io::atomic;
use crate::{Error, Result};
use cudarc::nvrtc::sys;
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file of kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub name: Cow<'static, str>,
    pub text: Cow<'static, str>,
}

impl Source {
    /// A file that is part of the binary.
    pub const fn embedded(name: &'static str, text: &'static str) -> Source {
        Source { name: Cow::Borrowed(name), text: Cow::Borrowed(text) }
    }
}

/// What sources can include.
const INCLUDES: &[(&str, &str)] = &[
    ("batch_norm.cuh", include_str!("include/batch_norm.cuh")),
    ("columns.cuh", include_str!("include/columns.cuh")),
    ("conv2d.cuh", include_str!("include/conv2d.cuh")),
    ("elementwise.cuh", include_str!("include/elementwise.cuh")),
    ("group.cuh", include_str!("include/group.cuh")),
    ("hopper.cuh", include_str!("include/hopper.cuh")),
    ("index.cuh", include_str!("include/index.cuh")),
    ("moved.cuh", include_str!("include/moved.cuh")),
    ("limits.cuh", include_str!("include/limits.cuh")),
    ("patches.cuh", include_str!("include/patches.cuh")),
    ("pipeline.cuh", include_str!("include/pipeline.cuh")),
    ("prelude.cuh", include_str!("include/prelude.cuh")),
    ("product.cuh", include_str!("include/product.cuh")),
    ("ptx.cuh", include_str!("include/ptx.cuh")),
    ("ptx_hopper.cuh", include_str!("include/ptx_hopper.cuh")),
    ("rows.cuh", include_str!("include/rows.cuh")),
    ("scan.cuh", include_str!("include/scan.cuh")),
    ("staging.cuh", include_str!("include/staging.cuh")),
    ("sweep.cuh", include_str!("include/sweep.cuh")),
    ("tensor_product.cuh", include_str!("include/tensor_product.cuh")),
    ("tile.cuh", include_str!("include/tile.cuh")),
    ("vector.cuh", include_str!("include/vector.cuh")),
    ("window_rows.cuh", include_str!("include/window_rows.cuh")),
    ("windows.cuh", include_str!("include/windows.cuh")),
    ("winograd.cuh", include_str!("include/winograd.cuh")),
    ("random.cuh", include_str!("include/random.cuh")),
];

/// Machine code.
pub(super) struct Compiled {
    pub image: Vec<u8>,
}

/// Something to compile.
pub(super) struct Request<'a> {
    source: &'a Source,
    options: Vec<String>,
    key: String,
}

impl<'a> Request<'a> {
    pub fn new(source: &'a Source, macros: &[(&str, String)], capability: (u32, u32)) -> Self {
        let (major, minor) = capability;
        // Hopper's own instructions are only there under its architecture-specific name.
        let own = if capability == (9, 0) { "a" } else { "" };
        let mut options = vec![
            format!("--gpu-architecture=sm_{major}{minor}{own}"),
            "--std=c++17".into(),
            "--extra-device-vectorization".into(),
        ];
        options.extend(macros.iter().map(|(name, value)| format!("-D{name}={value}")));
        let mut digest = Md5::new();
        let mut add = |part: &str| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(&source.text);
        INCLUDES.iter().for_each(|(_, text)| add(text));
        options.iter().for_each(|option| add(option));
        let (major, minor) = version().unwrap_or_default();
        add(&format!("nvrtc {major}.{minor}"));
        let key = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Request { source, options, key }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// From the folder, or from the compiler and then into the folder.
    pub fn compile(&self) -> Result<Compiled> {
        let stored = folder().map(|folder| folder.join(format!("{}.cubin", self.key)));
        if let Some(image) = stored.as_deref().and_then(read) {
            return Ok(Compiled { image });
        }
        self.compile_again()
    }

    /// From the compiler, whatever the folder has.
    pub fn compile_again(&self) -> Result<Compiled> {
        let start = std::time::Instant::now();
        let image = build(self.source, &self.options)?;
        tracing::debug!("compiled {} in {:.0} ms", self.source.name, start.elapsed().as_secs_f64() * 1e3);
        if let Some(folder) = folder() {
            let path = folder.join(format!("{}.cubin", self.key));
            let digest = Md5::digest(&image);
            let written = std::fs::create_dir_all(folder).map_err(|_| ()).and_then(|()| {
                atomic::write(&path, |file| file.write_all(&digest).and_then(|()| file.write_all(&image)))
                    .map_err(|_| ())
            });
            if written.is_err() {
                tracing::debug!("cannot keep kernels in {}; they are compiled again next time", folder.display());
            }
        }
        Ok(Compiled { image })
    }
}

/// A stored image, if it is there and whole.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let (digest, image) = bytes.split_at_checked(16)?;
    if Md5::digest(image)[..] != *digest {
        tracing::debug!("{} is damaged; it is compiled again", path.display());
        return None;
    }
    bytes.drain(..16);
    Some(bytes)
}

/// Where kernels are kept: `NEURONA_CACHE`, or the user's cache folder. None when the system has no such place.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
            let root = of("NEURONA_CACHE")
                .or_else(|| of("XDG_CACHE_HOME").map(|cache| cache.join("neurona")))
                .or_else(|| of("HOME").map(|home| home.join(".cache").join("neurona")))
                .or_else(|| of("LOCALAPPDATA").map(|data| data.join("neurona")))?;
            Some(root.join("kernels"))
        })
        .as_deref()
}

/// The compiler's version, when it can be loaded.
pub(crate) fn version() -> Option<(u32, u32)> {
    static VERSION: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *VERSION.get_or_init(|| {
        // SAFETY: only looks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        let code = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        (code == sys::nvrtcResult::NVRTC_SUCCESS).then_some((major as u32, minor as u32))
    })
}

/// A program of the compiler's, destroyed when it is dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by nvrtcCreateProgram, destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn build(source: &Source, options: &[String]) -> Result<Vec<u8>> {
    let failed = |problem: String| Error::Cuda { what: format!("compile {}", source.name), problem };
    if version().is_none() {
        let reason = ready().err().unwrap_or(
            "install the CUDA toolkit, or its package nvidia-cuda-nvrtc, and put its folder on LD_LIBRARY_PATH",
        );
        return Err(failed(format!("the CUDA compiler (libnvrtc) is not installed; {reason}")));
    }
    let text = |s: &str| CString::new(s).map_err(|_| failed("has a zero byte".into()));
    let (code, name) = (text(&source.text)?, text(&source.name)?);
    let contents: Vec<CString> = INCLUDES.iter().map(|(_, t)| text(t)).collect::<Result<_>>()?;
    let names: Vec<CString> = INCLUDES.iter().map(|(n, _)| text(n)).collect::<Result<_>>()?;
    let options: Vec<CString> = options.iter().map(|o| text(o)).collect::<Result<_>>()?;
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<*const c_char>>();
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: all strings end with zero and outlive the program, which is dropped in this function.
    let created = unsafe {
        let (contents, names) = (pointers(&contents), pointers(&names));
        sys::nvrtcCreateProgram(
            &mut program.0,
            code.as_ptr(),
            name.as_ptr(),
            names.len() as i32,
            contents.as_ptr(),
            names.as_ptr(),
        )
    };
    if created != sys::nvrtcResult::NVRTC_SUCCESS {
        return Err(failed(format!("{created:?}")));
    }
    let options = pointers(&options);
    // SAFETY: the program is valid; the options end with zero.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr()) };
    if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
        return Err(failed(format!("{compiled:?}\n{}", log(&program))));
    }
    let mut size = 0;
    // SAFETY: writes one number, then that many bytes.
    unsafe {
        if sys::nvrtcGetCUBINSize(program.0, &mut size) != sys::nvrtcResult::NVRTC_SUCCESS || size == 0 {
            return Err(failed("gave no machine code; is the architecture known to this version?".into()));
        }
        let mut image = vec![0u8; size];
        match sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()) {
            sys::nvrtcResult::NVRTC_SUCCESS => Ok(image),
            code => Err(failed(format!("{code:?}"))),
        }
    }
}

fn log(program: &Program) -> String {
    let mut size = 0;
    // SAFETY: writes one number, then that many bytes.
    unsafe {
        if sys::nvrtcGetProgramLogSize(program.0, &mut size) != sys::nvrtcResult::NVRTC_SUCCESS {
            return String::new();
        }
        let mut text = vec![0u8; size];
        let _ = sys::nvrtcGetProgramLog(program.0, text.as_mut_ptr().cast());
        String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']).to_string()
    }
}
