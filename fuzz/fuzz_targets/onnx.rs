#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::io::onnx;

fuzz_target!(|bytes: &[u8]| {
    let _ = onnx::import_bytes(bytes);
});
