//! TensorBoard's event files: protobuf messages in TFRecord frames, with CRC-32C.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the names of event files begin with; TensorBoard looks for it.
const PREFIX: &str = "events.out.tfevents.";

/// A file of events that TensorBoard reads.
///
/// ```
/// use neurona::train::EventFile;
/// # let folder = std::env::temp_dir().join(format!("neurona-doc-events-{}", std::process::id()));
/// let mut events = EventFile::create(&folder, None)?;
/// events.scalars(1, &[("train/loss", 0.7), ("lr", 0.1)])?;
/// assert!(events.path().metadata().unwrap().len() > 100);
/// # std::fs::remove_dir_all(folder).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// A new file in this folder, which is made when it is not there. A run that goes on says at which step:
    /// TensorBoard then forgets what older files say of that step and later ones.
    pub fn create(folder: impl AsRef<Path>, from_step: Option<u64>) -> Result<Self> {
        let folder = folder.as_ref();
        let failed = |source| Error::File { action: "make the folder", path: folder.into(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        // Files are read in the order of their names, which begin with the time: one must come after all before it.
        let newest =
            fs::read_dir(folder).map_err(failed)?.flatten().filter_map(|entry| number(&entry.file_name())).max();
        let mut time = newest.map_or(0, |newest| newest + 1).max(now() as u64);
        loop {
            let path = folder.join(format!("{PREFIX}{time:010}.neurona.{}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut events = EventFile { file, path };
                    events.event(0, Message::new().text(3, "brain.Event:2"))?;
                    if let Some(step) = from_step {
                        // Field 7 is a session log; its status 1 is "start".
                        events.event(step, Message::new().message(7, Message::new().number(1, 1)))?;
                    }
                    return Ok(events);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => time += 1,
                Err(source) => return Err(Error::File { action: "write", path, source }),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds values of a step, each under its tag.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        let value = |(tag, value): &(&str, f64)| Message::new().text(1, tag).float(2, *value as f32);
        let summary = values.iter().fold(Message::new(), |summary, pair| summary.message(1, value(pair)));
        self.event(step, Message::new().message(5, summary))
    }

    /// Adds an event: the time and the step, and what it says.
    fn event(&mut self, step: u64, what: Message) -> Result<()> {
        let event = Message::new().double(1, now()).number(2, step);
        let record = record(&[event.0, what.0].concat());
        // In one call: whoever reads at the same time sees all of it or nothing.
        let written = self.file.write_all(&record);
        written.map_err(|source| Error::File { action: "write", path: self.path.clone(), source })
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The time in the name of an event file.
fn number(name: &std::ffi::OsStr) -> Option<u64> {
    name.to_str()?.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

/// A protobuf message in the making.
struct Message(Vec<u8>);

impl Message {
    fn new() -> Self {
        Message(Vec::new())
    }

    /// A field's number and how its value is written.
    fn key(&mut self, field: u8, kind: u8) {
        self.0.push(field << 3 | kind);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u8, value: u64) -> Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u8, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u8, message: Message) -> Self {
        self.bytes(field, &message.0)
    }
}

/// A TFRecord: the length and its sum, the data and their sum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length, &masked(&length).to_le_bytes()[..], data, &masked(data).to_le_bytes()].concat()
}

/// Sums are masked: a sum over data that hold their own sum would be a constant.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bits in reverse order.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut crc, mut bit) = (byte as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !data.iter().fold(!0, |crc, byte| crc >> 8 ^ TABLE[((crc as u8) ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a file, framing and sums checked.
    fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut found) = (bytes, Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked(&rest[..8]));
            let data = &rest[12..12 + length];
            assert_eq!(u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()), masked(data));
            found.push(data.to_vec());
            rest = &rest[16 + length..];
        }
        found
    }

    #[test]
    fn the_sums_of_the_standard() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_bytes_of_tensorboards_own_writer() {
        // EventFileWriter of TensorBoard 2.21: Event(wall_time=1.5, step=300, summary=[loss: 0.25]).
        let summary = Message::new().message(1, Message::new().text(1, "loss").float(2, 0.25));
        let event = Message::new().double(1, 1.5).number(2, 300).message(5, summary);
        assert_eq!(record(&event.0), KNOWN);
    }

    const KNOWN: &[u8] = b"\x1b\x00\x00\x00\x00\x00\x00\x00\x1a\x0d\x9e\x13\x09\x00\x00\x00\x00\x00\x00\xf8?\x10\xac\x02*\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x80>\x99\x08\xde\xed";

    #[test]
    fn files_follow_one_another() {
        let folder = std::env::temp_dir().join(format!("neurona-events-{}", std::process::id()));
        let mut first = EventFile::create(&folder, None).unwrap();
        first.scalars(1, &[("a", 1.0), ("b", f64::NAN)]).unwrap();
        let second = EventFile::create(&folder, Some(2)).unwrap();
        assert!(first.path() < second.path());
        let (one, two) = (fs::read(first.path()).unwrap(), fs::read(second.path()).unwrap());
        let (one, two) = (records(&one), records(&two));
        assert_eq!((one.len(), two.len()), (2, 2));
        assert!(one[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        assert!(two[1].ends_with(b"\x10\x02\x3a\x02\x08\x01"));
        fs::remove_dir_all(folder).unwrap();
    }
}
