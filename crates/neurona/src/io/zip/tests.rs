use super::*;
use std::io::Cursor;

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    entries.iter().for_each(|(name, body)| writer.entry(name, body).unwrap());
    writer.finish().unwrap();
    bytes
}

fn problem(bytes: &[u8]) -> String {
    let opened = Archive::open(Cursor::new(bytes)).and_then(|mut archive| {
        let entries = archive.entries.clone();
        entries.iter().try_for_each(|entry| archive.read(entry).map(drop))
    });
    match opened {
        Err(Failure::Contents(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

/// The list of entries begins where the second entry's copy of its name is.
fn list_at(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|w| w == CENTRAL.to_le_bytes()).unwrap()
}

#[test]
fn entries_come_back_and_lie_at_multiples_of_64() {
    let entries: [(&str, &[u8]); 3] = [("a/x", b"hello"), ("a/empty", b""), ("a/b/ü", &[7; 1000])];
    let bytes = archive(&entries);
    let mut read = Archive::open(Cursor::new(&bytes)).unwrap();
    for (name, body) in entries {
        let entry = read.get(name).unwrap().clone();
        assert_eq!((entry.offset % 64, read.read(&entry).unwrap()), (0, body.to_vec()), "{name}");
    }
    assert!(read.get("a").is_none());
    // A comment at the end hides nothing.
    let mut commented = bytes.clone();
    let end = commented.len() - 2;
    commented[end..].copy_from_slice(&3u16.to_le_bytes());
    commented.extend(b"PK\x05");
    assert_eq!(Archive::open(Cursor::new(&commented)).unwrap().entries.len(), 3);
}

#[test]
fn damage_and_hostility_are_named() {
    let good = archive(&[("a/x", b"hello"), ("a/y", b"world")]);
    let list = list_at(&good);
    let second = list + CENTRAL_BYTES + 3;
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let both = |at: usize, and: usize, new: &[u8]| {
        let mut bytes = with(at, new);
        bytes[and..and + new.len()].copy_from_slice(new);
        bytes
    };
    let first_header = &good[list + 42..list + 46];
    let cases = [
        (with(64, b"J"), "its entry a/x is damaged"),
        (with(list + 10, &[8]), "its entry a/x does not lie where the list says"),
        (both(8, list + 10, &[8]), "its entry a/x is compressed"),
        (with(list + 24, &1000u32.to_le_bytes()), "its entry a/x is compressed"),
        (with(list + 20, &[0xf0; 8]), "its entry a/x does not lie where the list says"),
        (with(list + 20, &[20, 0, 0, 0, 20, 0, 0, 0]), "its entries a/x and a/y overlap"),
        (with(list + 8, &[1]), "its entry a/x is encrypted"),
        (with(second + 42, first_header), "its entry a/y does not lie where the list says"),
        (with(second, b"XX"), "broken at entry 1"),
        (with(list + CENTRAL_BYTES, b"../"), "its entry \"../\" is refused: the name leads out of the folder"),
        (with(list + CENTRAL_BYTES, b"/ab"), "\"/ab\" is refused"),
        (with(list + CENTRAL_BYTES, b"a\\b"), "is refused"),
        (with(list + CENTRAL_BYTES, b"a/\xff"), "not UTF-8"),
        (good[..good.len() - 1].to_vec(), "cut off"),
        (good[1..].to_vec(), "not where it should be"),
        (Vec::new(), "cut off"),
        (archive(&[("a", b""), ("a", b"")]), "two entries named a"),
    ];
    for (bytes, want) in cases {
        let text = problem(&bytes);
        assert!(text.contains(want), "{text} should say {want}");
    }
}

#[test]
fn beyond_4_gib_numbers_have_64_bits() {
    // Five GiB of zeros before and in the entry, which are not written: the list alone tells.
    let (start, size) = (5u64 << 30, 6u64 << 30);
    let mut bytes = Vec::new();
    let mut writer = Writer::starting_at(&mut bytes, start);
    writer.header("big", size, 7).unwrap();
    writer.finish().unwrap();

    struct Behind(Cursor<Vec<u8>>, u64);
    impl std::io::Read for Behind {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(to)
        }
    }
    impl std::io::Seek for Behind {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            let to = match to {
                std::io::SeekFrom::Start(at) => std::io::SeekFrom::Start(at.checked_sub(self.1).unwrap()),
                other => other,
            };
            self.0.seek(to).map(|at| at + self.1)
        }
    }
    // The entry's bytes are missing, so it cannot lie where the list says; everything before that was understood.
    let shown = [vec![0; 1 << 17], bytes.clone()].concat();
    let opened = Archive::open(Behind(Cursor::new(shown), start - (1 << 17))).map(|_| ());
    assert!(matches!(opened, Err(Failure::Contents(text)) if text.contains("its entry big does not lie")));
    let list = list_at(&bytes);
    assert_eq!(bytes[list + 20..list + 28], [0xff; 8]);
    assert_eq!(bytes[list + 42..list + 46], [0xff; 4]);
    let extra = &bytes[list + CENTRAL_BYTES + 3..][..28];
    assert_eq!(extra[..4], [1, 0, 24, 0]);
    assert_eq!(extra[4..], [size, size, start].map(u64::to_le_bytes).concat());
    // Its own header has both sizes too, and padding to 64 behind.
    assert_eq!(bytes[18..26], [0xff; 8]);
    assert_eq!(bytes[33..37], [1, 0, 16, 0]);
    assert_eq!((start + list as u64) % 64, 0);
}
