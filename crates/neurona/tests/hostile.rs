//! Weights files that are damaged or made to harm: an error that says what, little memory, never a panic.

#[path = "common/peak.rs"]
mod peak;

use neurona::io::{inspect, pickle, pth, safetensors};
use std::io::Cursor;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: peak::Peak = peak::Peak;

/// Bytes that reading a file of a few kilobytes may need.
const SMALL: usize = 1 << 20;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/pth").join(name)).unwrap()
}

fn load_pth(bytes: &[u8]) -> Result<usize, String> {
    pth::read(Cursor::new(bytes), "x".as_ref(), None).map(|c| c.state.len()).map_err(|e| e.to_string())
}

fn load_safetensors(bytes: &[u8]) -> Result<usize, String> {
    safetensors::read(Cursor::new(bytes), "x".as_ref()).map(|(state, _)| state.len()).map_err(|e| e.to_string())
}

/// One test, because the allocator counts for all threads together.
#[test]
fn hostile_files_cost_little_and_harm_nothing() {
    every_cut_and_every_flipped_bit();
    headers_that_promise_much();
    pickles_that_grow();
    archives_that_grow();
}

fn every_cut_and_every_flipped_bit() {
    let whole = file("tied.pth");
    assert_eq!(load_pth(&whole), Ok(4));
    for n in 0..whole.len() {
        let (result, most) = peak::during(|| load_pth(&whole[..n]));
        assert!(result.is_err_and(|e| e.starts_with("x: ")) && most < SMALL, "cut to {n}: {most}");
    }
    let pickle = whole.windows(2).position(|w| w == b"\x80\x02").unwrap();
    let end = pickle + whole[pickle..].windows(4).position(|w| w == b"PK\x07\x08").unwrap();
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut broken = whole.clone();
            broken[place] ^= 1 << bit;
            let (result, most) = peak::during(|| load_pth(&broken));
            assert!(most < SMALL, "bit {bit} of byte {place}: {most} bytes");
            // Padding and dates may change unseen; the pickle may not.
            assert!(result.is_err() || !(pickle..end).contains(&place), "bit {bit} of byte {place}");
            let _ = inspect::read(Cursor::new(&broken), "x".as_ref());
        }
    }
    let whole = file("kinds.safetensors");
    for n in 0..whole.len() {
        let (result, most) = peak::during(|| load_safetensors(&whole[..n]));
        assert!(result.is_err() && most < SMALL, "cut to {n}: {most}");
        for bit in 0..8 {
            let mut broken = whole.clone();
            broken[n] ^= 1 << bit;
            let (_, most) = peak::during(|| load_safetensors(&broken));
            assert!(most < SMALL, "bit {bit} of byte {n}: {most} bytes");
        }
    }
}

fn headers_that_promise_much() {
    let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let entry = |name: &str, shape: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"U8","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let nested = header(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let overlapping = [header(&format!("{{{},{}}}", entry("a", "[8]", 0, 8), entry("b", "[8]", 4, 12))), vec![0; 12]];
    let cases = [
        (u64::MAX.to_le_bytes().to_vec(), "not a safetensors file"),
        ([&(90_000_000u64).to_le_bytes()[..], b"{"].concat(), "was cut off"),
        (header(&format!("{{{}}}", entry("a", "[1099511627776]", 0, 1 << 40))), "was cut off"),
        (overlapping.concat(), "broken header"),
        (nested, "broken header"),
    ];
    for (bytes, want) in cases {
        let (result, most) = peak::during(|| load_safetensors(&bytes));
        let problem = result.unwrap_err();
        assert!(problem.contains(want) && most < SMALL + 2 * bytes.len(), "{problem}: {most} bytes");
    }
}

fn pickles_that_grow() {
    // A tuple of the tuple before it twice, a hundred times.
    let laughs = [&b"(K\x01t"[..], &b"2\x86".repeat(100), b"."].concat();
    let (result, most) = peak::during(|| pickle::parse(&laughs, "x".as_ref()).map(|v| v.kind()));
    assert!(result.is_ok() && most < SMALL, "{most}");
    // A name that is remembered and used again and again must not be copied each time.
    let name = [&b"\x80\x04\x8d"[..], &100_000u64.to_le_bytes(), &b"m".repeat(100_000), b"\x940("].concat();
    let names = [name, b"h\x00h\x00\x93".repeat(100_000), b"t.".to_vec()].concat();
    let (result, most) = peak::during(|| pickle::parse(&names, "x".as_ref()).map(drop));
    assert!(result.unwrap_err().to_string().contains("too long") && most < SMALL, "{most}");
    let lying = b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert!(peak::during(|| pickle::parse(lying, "x".as_ref()).is_err()).1 < SMALL);
    let deep = [b"]".repeat(300_000), b"a".repeat(299_999), b".".to_vec()].concat();
    assert!(pickle::parse(&deep, "x".as_ref()).unwrap_err().to_string().contains("deeper"));
    // However long, a bounded number of values: here four million of the two hundred megabytes asked for.
    let many = [&b"("[..], &b"N".repeat(8 << 20), b"t."].concat();
    let (result, most) = peak::during(|| pickle::parse(&many, "x".as_ref()).map(drop));
    assert!(result.unwrap_err().to_string().contains("more than") && most < 512 << 20, "{most}");
}

fn archives_that_grow() {
    let marker = std::env::temp_dir().join(format!("neurona-hostile-{}", std::process::id()));
    let command = format!("cposix\nsystem\n(S'touch {}'\ntR.", marker.display());
    for (pickle, want) in [
        (command.as_bytes(), "its pickle is refused at byte 0 (GLOBAL): it names posix.system"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "it names builtins.eval"),
    ] {
        let problem = load_pth(&zip(&[("a/data.pkl", pickle, 0, pickle.len() as u32)])).unwrap_err();
        assert!(problem.contains(want), "{problem}");
    }
    assert!(!marker.exists());
    // A compressed entry that says it has four gigabytes.
    let (result, most) = peak::during(|| load_pth(&zip(&[("a/data.pkl", &[0; 100], 8, u32::MAX - 1)])));
    assert!(result.unwrap_err().contains("its entry a/data.pkl is compressed") && most < SMALL, "{most}");
    let (result, most) = peak::during(|| load_pth(&zip(&[("a/data.pkl", b"N.", 0, 1 << 30)])));
    assert!(result.unwrap_err().contains("a/data.pkl") && most < SMALL, "{most}");
    let outside = zip(&[("a/data.pkl", b"N.", 0, 2), ("a/../../etc/passwd", b"", 0, 0)]);
    assert!(load_pth(&outside).unwrap_err().contains("the name leads out of the folder"));
    // A tensor of a gigabyte that is one number seen again and again.
    let seen = b"}U\x01actorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x01tQ\
                 K\x00(J\x00\x00\x00\x10t(K\x00t\x89}tRs.";
    let (result, most) =
        peak::during(|| load_pth(&zip(&[("a/data.pkl", seen, 0, seen.len() as u32), ("a/data/0", &[0; 4], 0, 4)])));
    assert!(result.unwrap_err().contains("would take 1073741824 bytes") && most < SMALL, "{most}");
}

/// An archive of entries: name, bytes, method, and the size that its list claims once unpacked. No checksums.
fn zip(entries: &[(&str, &[u8], u16, u32)]) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for (name, bytes, method, unpacked) in entries {
        let start = file.len() as u32;
        let mut common = [0, 0, *method, 0, 0].map(u16::to_le_bytes).concat();
        common.extend([0, bytes.len() as u32, *unpacked].map(u32::to_le_bytes).concat());
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
