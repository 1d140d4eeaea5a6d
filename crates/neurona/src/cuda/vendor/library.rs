//! Finding the vendor's shared libraries at run time.
//!
//! Nothing is linked: one binary serves machines with and without CUDA. A library is looked for on the loader's path
//! and in the toolkit's usual folders, and its functions are looked up together, so that one too old for us counts as
//! missing, with the reason, instead of failing at some later call.

use crate::Error;
use crate::cuda::driver;
use std::env;
use std::ffi::{CStr, c_char};
use std::path::PathBuf;

/// A call that failed.
pub(super) fn failure(call: &str, status: i32, problem: &str) -> Error {
    Error::Cuda { what: format!("call {call}"), problem: format!("{problem} (status {status})") }
}

/// An open shared library. It stays open until the process ends: its functions may be in use anywhere.
pub(super) struct Library {
    file: String,
    handle: libloading::Library,
}

/// A table of a library's functions, looked up once: `Table::load(library)`.
///
/// Statuses and other enums that a library returns are declared as integers: a newer library may answer with a value
/// that this program has never heard of.
macro_rules! functions {
    ($(#[$note:meta])* $table:ident { $(fn $name:ident($($argument:ty),*) -> $output:ty;)* }) => {
        $(#[$note])*
        #[allow(non_snake_case)]
        pub(super) struct $table {
            library: $crate::cuda::vendor::library::Library,
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $output,)*
        }

        impl $table {
            fn load(library: $crate::cuda::vendor::library::Library) -> Result<Self, String> {
                // SAFETY: the types are those of the library's own header.
                $(#[allow(non_snake_case)] let $name = unsafe { library.function(stringify!($name))? };)*
                Ok($table { library, $($name,)* })
            }
        }
    };
}
pub(super) use functions;

impl Library {
    /// Opens the first of a library's major versions that can be opened, or says why none could.
    pub(super) fn open(stem: &str, majors: &[u32]) -> Result<Self, String> {
        let mut broken = None;
        for &major in majors {
            let name = file_name(stem, major);
            let places =
                [PathBuf::from(&name)].into_iter().chain(folders().into_iter().map(|folder| folder.join(&name)));
            for place in places {
                // SAFETY: NVIDIA's libraries have no initialisers that ask anything of the program.
                match unsafe { libloading::Library::new(&place) } {
                    Ok(handle) => return Ok(Library { file: name, handle }),
                    Err(error) if place.is_absolute() && place.exists() => broken = Some(format!("{error}")),
                    Err(_) => {}
                }
            }
        }
        if let Some(problem) = broken {
            return Err(format!("it is there but cannot be opened: {problem}"));
        }
        let names: Vec<String> = majors.iter().map(|&major| file_name(stem, major)).collect();
        let folders: Vec<String> = folders().iter().map(|folder| folder.display().to_string()).collect();
        Err(format!("{} is neither on the loader's path nor in {}", names.join(" or "), folders.join(", ")))
    }

    /// A function by its name.
    ///
    /// # Safety
    /// `F` must be the function's type.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: as this function asks of its caller; the copy stays valid because the library is never closed.
        let symbol = unsafe { self.handle.get::<F>(name) };
        symbol.map(|symbol| *symbol).map_err(|_| format!("{} has no function {name}: it is too old", self.file))
    }

    /// The file that holds the code at `address`, or else the name by which the library was opened.
    pub(super) fn path(&self, address: usize) -> PathBuf {
        mapped_file(address).unwrap_or_else(|| PathBuf::from(&self.file))
    }
}

/// Those of a library's major versions, named after CUDA's, that the driver can run. A library made for a later CUDA
/// loads well and then fails at its first use.
pub(super) fn runnable(majors: &[u32]) -> Vec<u32> {
    let newest = driver::version().map_or(u32::MAX, |(major, _)| major);
    majors.iter().copied().filter(|&major| major <= newest).collect()
}

/// A version as NVIDIA's libraries number them: 91400 is 9.14.0.
pub(super) fn version_text(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// The text behind a library's pointer to a constant message.
///
/// # Safety
/// `text` must be null or a C string that is never freed.
pub(super) unsafe fn message(text: *const c_char) -> String {
    match text.is_null() {
        true => "unknown error".into(),
        // SAFETY: as this function asks of its caller.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

fn file_name(stem: &str, major: u32) -> String {
    match cfg!(windows) {
        true => format!("{stem}64_{major}.dll"),
        false => format!("lib{stem}.so.{major}"),
    }
}

/// Where toolkits are installed without telling the loader.
fn folders() -> Vec<PathBuf> {
    let inside = if cfg!(windows) { "bin" } else { "lib64" };
    let mut roots: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(Into::into).collect();
    if !cfg!(windows) {
        roots.extend(["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"].map(PathBuf::from));
    }
    roots.into_iter().filter(|root| root.is_absolute()).map(|root| root.join(inside)).collect()
}

/// The file mapped at an address, as Linux lists it: `7f12a000-7f13b000 r-xp 00006000 08:01 1234   /usr/lib/…`.
fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        range.contains(&address).then(|| line.find('/').map(|at| PathBuf::from(&line[at..])))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_says_where_it_was_looked_for() {
        let problem = Library::open("neurona_has_no_such_library", &[3, 2]).err().unwrap();
        assert!(problem.contains("neurona_has_no_such_library.so.3 or ") || cfg!(windows), "{problem}");
        assert!(problem.contains("nor in"), "{problem}");
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(91400), "9.14.0");
        assert_eq!(version_text(130_002), "13.0.2");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn code_is_traced_to_its_file() {
        let here = mapped_file(mapped_file as *const () as usize).unwrap();
        assert_eq!(here, std::env::current_exe().unwrap());
    }
}
