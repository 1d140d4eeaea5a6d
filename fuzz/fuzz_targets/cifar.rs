#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::data::sets::Cifar10;
use std::fs;

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("neurona-fuzz-cifar-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the batch");
    // The reader takes files by name, in either form: a pickle says its protocol or begins with a mark.
    let pickled = matches!(bytes.first(), Some(0x80 | b'('));
    let file = folder.join(if pickled { "test_batch" } else { "test_batch.bin" });
    fs::write(&file, bytes).expect("the batch");
    let _ = Cifar10::test(&folder);
    fs::remove_file(file).expect("the batch");
});
