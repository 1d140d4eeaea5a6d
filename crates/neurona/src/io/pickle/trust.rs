//! Which names of classes and functions are data's.

use super::Global;

/// What data may need of Python's own names.
const PLAIN: &str = "bool bytearray bytes complex dict float frozenset int list object range set slice str tuple";
/// Packages that run programs, load code, or lead to what does.
const RUNNERS: &str = "_pickle asyncio bdb cProfile cffi code codeop commands ctypes doctest imp importlib marshal \
                       multiprocessing nt operator os pdb pickle pip popen2 posix profile pty runpy shutil socket \
                       subprocess sys timeit webbrowser";

/// Whether data may need this name. Nothing is ever called; but a file that names a way to run programs is an
/// attack, and its user should hear so.
pub fn harmless(global: &Global) -> bool {
    let listed = |list: &str, name: &str| list.split(' ').any(|word| word == name);
    match global.module.split('.').next().unwrap_or_default() {
        "builtins" | "__builtin__" => listed(PLAIN, &global.name),
        package => !listed(RUNNERS, package),
    }
}
