//! Which names of classes and functions are data's.

use super::Global;

/// Whether data may need this name. Nothing is ever called; but a file that names a way to run programs is an
/// attack, and its user should hear so.
pub fn harmless(global: &Global) -> bool {
    const PLAIN: [&str; 14] = [
        "bool",
        "bytearray",
        "bytes",
        "complex",
        "dict",
        "float",
        "frozenset",
        "int",
        "list",
        "object",
        "range",
        "set",
        "slice",
        "tuple",
    ];
    const RUNNERS: [&str; 27] = [
        "asyncio",
        "bdb",
        "cProfile",
        "cffi",
        "code",
        "codeop",
        "commands",
        "ctypes",
        "doctest",
        "imp",
        "importlib",
        "marshal",
        "multiprocessing",
        "nt",
        "operator",
        "os",
        "pdb",
        "pip",
        "popen2",
        "posix",
        "profile",
        "pty",
        "runpy",
        "shutil",
        "socket",
        "subprocess",
        "sys",
    ];
    let package = global.module.split('.').next().unwrap_or_default();
    match package {
        "builtins" | "__builtin__" => PLAIN.contains(&global.name.as_str()) || global.name == "str",
        _ => !RUNNERS.contains(&package) && !matches!(package, "timeit" | "webbrowser" | "pickle" | "_pickle"),
    }
}
