#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::data::idx;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = idx::parse(bytes, "fuzz".as_ref()) {
        assert_eq!(file.shape.iter().product::<usize>(), file.data.len());
    }
});
