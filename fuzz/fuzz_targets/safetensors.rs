#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::io::{inspect, safetensors};
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    let _ = safetensors::read(Cursor::new(bytes), "fuzz".as_ref());
    // Whatever the first bytes say it is: ONNX files are described here too.
    let _ = inspect::read(Cursor::new(bytes), "fuzz".as_ref());
});
