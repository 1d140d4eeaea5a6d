#![no_main]

use libfuzzer_sys::fuzz_target;
use neurona::io::{Format, inspect, pth};
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    // Checksums keep changed pickles from being read: what is no archive becomes the pickle of one.
    let whole;
    let file = if bytes.starts_with(b"PK") {
        bytes
    } else {
        whole = archive(&[("a/data.pkl", bytes), ("a/data/0", &[7; 24]), ("a/data/1", &[9; 8])]);
        &whole[..]
    };
    if let Ok(checkpoint) = pth::read(Cursor::new(file), "fuzz".as_ref(), None) {
        // What loads can be described, with the same names.
        let described = inspect::read(Cursor::new(file), "fuzz".as_ref()).expect("it was loaded");
        assert_eq!(described.format, Format::Pth);
        assert!(described.tensors.iter().map(|t| t.name.as_str()).eq(checkpoint.state.names()));
    }
});

/// An archive without checksums.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let start = file.len() as u32;
        let mut common = vec![0; 10];
        common.extend([0, bytes.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        file.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), bytes].concat());
        list.extend([&b"PK\x01\x02\0\0"[..], &common, &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat());
    }
    let (start, count) = (file.len() as u32, entries.len() as u16);
    file.extend(&list);
    file.extend([&b"PK\x05\x06\0\0\0\0"[..], &count.to_le_bytes(), &count.to_le_bytes()].concat());
    file.extend([&(list.len() as u32).to_le_bytes()[..], &start.to_le_bytes(), &[0, 0]].concat());
    file
}
