#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::data::Image;

fuzz_target!(|bytes: &[u8]| {
    let _ = Image::decode(bytes, "fuzz");
});
