#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::io::pickle::{self, numpy};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = pickle::parse(bytes, "fuzz".as_ref()) {
        let _ = (value.get("data").and_then(numpy::array), value.kind());
    }
});
