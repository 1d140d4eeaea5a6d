//! Archives and folders.

use super::*;
use flate2::{Compression, write::GzEncoder};
use std::fs;
use tar::{Builder, EntryType, Header};

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// An archive of such entries; paths are written as they are, good or bad.
fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (path, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        if *kind == EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    packed(&tar.into_inner().unwrap())
}

const FILE: EntryType = EntryType::Regular;

/// A set whose archive is this.
fn archived(content: &[u8]) -> &'static Set {
    let note = Piece { name: "note.txt", size: 100, md5: None, unpacked: None };
    let files = leak([piece("file.bin", body()), note]).as_slice();
    let archive = Some(piece("tiny.tar.gz", content));
    leak(Set { name: "tiny", title: "Tiny-Set", folder: "tiny-files", images: [1, 1], mirrors: &[], archive, files })
}

fn unpacked(content: Vec<u8>) -> Trial {
    let set = archived(&content);
    let server = Server::start(move |_, asked, to| serve(&content, asked, to));
    run_in(TempDir::new().unwrap(), set, Some(&server.url))
}

#[test]
fn an_archive_is_unpacked_and_nothing_else_is_written() {
    let trial = unpacked(archive(&[
        ("tiny-files/", EntryType::Directory, b""),
        ("../../escaped", FILE, b"x"),
        ("/neurona-escaped", FILE, b"x"),
        ("tiny-files/../file.bin", FILE, b"x"),
        ("tiny-files/unknown.exe", FILE, b"x"),
        ("./tiny-files/note.txt", FILE, b"a note"),
        ("tiny-files/file.bin", FILE, body()),
    ]));
    assert!(trial.installed(), "{:?}", trial.result);
    let all: Vec<_> = fs::read_dir(trial.data.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(all, ["tiny-files"]);
    let mut names: Vec<_> =
        fs::read_dir(trial.data.path().join("tiny-files")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file.bin", "note.txt"]);
    assert!(!Path::new("/neurona-escaped").exists());
}

#[test]
fn archives_that_are_not_what_they_should_be() {
    let longer = [body(), b"more"].concat();
    let cut = archive(&[("tiny-files/file.bin", FILE, body())]);
    let cases: &[(Vec<u8>, &str)] = &[
        (archive(&[("tiny-files/file.bin", EntryType::Symlink, b"")]), "not a plain file"),
        (archive(&[("tiny-files/file.bin", FILE, &longer)]), "has 200004 bytes"),
        (archive(&[("tiny-files/file.bin", FILE, b"short")]), "is damaged"),
        (archive(&[("other/file.bin", FILE, body())]), "it has no file.bin"),
        (cut[..cut.len() / 2].to_vec(), "cannot be unpacked"),
        (b"no gzip at all".to_vec(), "cannot be unpacked"),
        // Zeros that unpack to far more than the set has.
        (archive(&[("junk", FILE, &vec![0; 40 << 20]), ("tiny-files/file.bin", FILE, body())]), "cannot be unpacked"),
    ];
    for (content, problem) in cases {
        let trial = unpacked(content.clone());
        assert!(trial.problem().contains(problem) && trial.nothing_installed(), "{problem}: {:?}", trial.result);
    }
}

fn from_folder(set: &'static Set, files: &[(&str, &[u8])]) -> Trial {
    let source = TempDir::new().unwrap();
    for (name, content) in files {
        let path = source.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    run_in(TempDir::new().unwrap(), set, source.path().to_str())
}

#[test]
fn folders_hold_files_or_the_archive() {
    let whole = archive(&[("tiny-files/file.bin", FILE, body())]);
    let set = archived(&whole);
    for name in ["file.bin", "tiny-files/file.bin", "tiny/file.bin", "TinySet/raw/file.bin"] {
        assert!(from_folder(set, &[(name, body())]).installed(), "{name}");
    }
    assert!(from_folder(set, &[("tiny.tar.gz", &whole)]).installed());
    type Files<'a> = [(&'a str, &'a [u8])];
    let cases: &[(&Files<'_>, &str)] = &[
        (&[("tiny.tar.gz", &whole[1..])], "not the published file"),
        (&[("file.bin", &body()[1..])], "not the published file: it has 199999 bytes"),
        (&[("readme", b"")], "Tiny-Set is not all there: no file.bin, nor tiny.tar.gz"),
    ];
    for (files, problem) in cases {
        let trial = from_folder(set, files);
        assert!(trial.problem().contains(problem) && trial.nothing_installed(), "{problem}: {:?}", trial.result);
    }
    assert!(run("/no/such/folder").problem().contains("there is no such folder"));
}

#[test]
fn gzip_files_may_be_packed_by_others_or_not_at_all() {
    let inner = leak(check::md5(body()).unwrap()).as_str();
    let published = Piece { unpacked: Some(inner), ..piece("file.gz", &packed(body())) };
    let set = leak(Set { files: leak([published]).as_slice(), ..*super::set(&[]) });
    let mut slow = GzEncoder::new(Vec::new(), Compression::best());
    slow.write_all(body()).unwrap();
    let repacked = slow.finish().unwrap();
    for (name, content) in [("file.gz", &packed(body())[..]), ("file.gz", &repacked), ("file", body())] {
        let trial = from_folder(set, &[(name, content)]);
        assert_eq!(*trial.result.as_ref().unwrap(), Done::Fetched);
        assert_eq!(fs::read(trial.data.path().join("tiny-files").join(name)).unwrap(), content);
        assert_eq!(set.verify(trial.data.path()).unwrap(), State::Complete);
    }
    for (name, content) in [("file.gz", packed(&body()[1..])), ("file.gz", b"\x1f\x8b".to_vec()), ("file", vec![1])] {
        assert!(from_folder(set, &[(name, &content)]).problem().contains("not the published file"), "{name}");
    }
}
