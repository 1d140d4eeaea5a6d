//! Reading an archive.

use super::*;
use flate2::Crc;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes read at a time: still in the cache when the checksum is taken.
const CHUNK: usize = 256 << 10;

/// What went wrong: with the disk, or with the contents.
#[derive(Debug)]
pub(in super::super) enum Failure {
    Disk(io::Error),
    Contents(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Failure::Contents("it was cut off".into()),
            _ => Failure::Disk(error),
        }
    }
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Failure::Contents(problem)
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// One entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry {
    pub name: String,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// How many it has.
    pub bytes: u64,
    /// How many there would be once unpacked; another number means that it is compressed.
    unpacked: u64,
    method: u16,
    /// Their checksum; zero when the writer left it out, as PyTorch can.
    pub crc: u32,
    /// Where its own header begins.
    header: u64,
}

/// An archive whose list of entries has been read and checked.
pub(in super::super) struct Archive<R> {
    from: R,
    pub entries: Vec<Entry>,
    places: HashMap<String, usize>,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the list of entries.
    pub fn open(mut from: R) -> Result<Self> {
        let size = from.seek(SeekFrom::End(0))?;
        let (start, length, count) = directory(&mut from, size)?;
        let end = start.checked_add(length).filter(|end| *end <= size);
        let end = end.ok_or_else(|| "its list of entries reaches beyond its end".to_string())?;
        let mut list = vec![0; usize::try_from(length).map_err(|_| "its list of entries is too long".to_string())?];
        from.seek(SeekFrom::Start(start))?;
        from.read_exact(&mut list)?;
        let mut entries = parse(&list, count)?;
        for entry in &mut entries {
            locate(&mut from, entry, start)?;
        }
        apart(&entries)?;
        let mut places = HashMap::new();
        for (place, entry) in entries.iter().enumerate() {
            if places.insert(entry.name.clone(), place).is_some() {
                return Err(format!("it has two entries named {}", entry.name).into());
            }
        }
        debug_assert!(entries.iter().all(|e| e.offset + e.bytes <= end));
        Ok(Archive { from, entries, places })
    }

    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.places.get(name).map(|place| &self.entries[*place])
    }

    /// Fills `to`, which is as long as the entry, and checks the checksum on the way.
    pub fn read_into(&mut self, entry: &Entry, to: &mut [u8]) -> Result<()> {
        // Compressed ones may grow to a thousand times the file: a few bytes could ask for all memory.
        if entry.method != 0 || entry.unpacked != entry.bytes {
            return Err(format!(
                "its entry {} is compressed, which PyTorch does not do; unpack the file and pack it with zip -0",
                entry.name
            )
            .into());
        }
        self.from.seek(SeekFrom::Start(entry.offset))?;
        let mut crc = Crc::new();
        for part in to.chunks_mut(CHUNK) {
            self.from.read_exact(part)?;
            if entry.crc != 0 {
                crc.update(part);
            }
        }
        if entry.crc != 0 && crc.sum() != entry.crc {
            return Err(format!("its entry {} is damaged: the checksum is not the one written", entry.name).into());
        }
        Ok(())
    }

    /// The bytes of an entry.
    pub fn read(&mut self, entry: &Entry) -> Result<Vec<u8>> {
        // No longer than the file: `open` has checked.
        let mut bytes = vec![0; entry.bytes as usize];
        self.read_into(entry, &mut bytes)?;
        Ok(bytes)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Where the list of entries begins, its length and how many it has: written at the end of the file, before a
/// comment of up to 64 KiB.
fn directory(from: &mut (impl Read + Seek), size: u64) -> Result<(u64, u64, u64)> {
    let most = (END_BYTES + usize::from(u16::MAX) + LOCATOR_64_BYTES) as u64;
    let mut tail = vec![0; size.min(most) as usize];
    from.seek(SeekFrom::Start(size - tail.len() as u64))?;
    from.read_exact(&mut tail)?;
    let end = (0..=tail.len().saturating_sub(END_BYTES))
        .rev()
        .find(|at| u32_at(&tail, *at) == END && at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len());
    let end = end.ok_or_else(|| "it was cut off: it has no list of entries at its end".to_string())?;
    let record = &tail[end..];
    let mut found = (u32_at(record, 16).into(), u32_at(record, 12).into(), u64::from(u16_at(record, 10)));
    let locator = end.checked_sub(LOCATOR_64_BYTES).map(|at| &tail[at..end]);
    if let Some(locator) = locator.filter(|l| u32_at(l, 0) == LOCATOR_64) {
        let mut record = [0; END_64_BYTES];
        from.seek(SeekFrom::Start(u64_at(locator, 8)))?;
        from.read_exact(&mut record)?;
        if u32_at(&record, 0) != END_64 {
            return Err("its list of entries is not where it should be".to_string().into());
        }
        found = (u64_at(&record, 48), u64_at(&record, 40), u64_at(&record, 32));
    }
    Ok(found)
}

/// The list of entries, of which there must be `count`.
fn parse(mut list: &[u8], count: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while !list.is_empty() {
        let broken = || format!("its list of entries is broken at entry {}", entries.len());
        if list.len() < CENTRAL_BYTES || u32_at(list, 0) != CENTRAL {
            return Err(broken().into());
        }
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(list, at)));
        let (name_end, total) = (CENTRAL_BYTES + lengths[0], CENTRAL_BYTES + lengths.iter().sum::<usize>());
        let (Some(name), Some(extra)) = (list.get(CENTRAL_BYTES..name_end), list.get(name_end..name_end + lengths[1]))
        else {
            return Err(broken().into());
        };
        let name = sound_name(name)?;
        let wide = wide_field(extra);
        let mut wide = wide.chunks_exact(8).map(|b| u64_at(b, 0));
        // What does not fit is written as all ones, and in full in the extra field, in this order.
        let mut number = |at| match u32_at(list, at) {
            u32::MAX => wide.next().ok_or_else(broken),
            small => Ok(small.into()),
        };
        let (unpacked, bytes, header) = (number(24)?, number(20)?, number(42)?);
        if u16_at(list, 8) & 1 != 0 {
            return Err(format!("its entry {name} is encrypted").into());
        }
        let method = u16_at(list, 10);
        entries.push(Entry { name, offset: 0, bytes, unpacked, method, crc: u32_at(list, 16), header });
        list = list.get(total..).ok_or_else(|| format!("its list of entries is broken at entry {}", entries.len()))?;
    }
    if entries.len() as u64 != count {
        return Err(format!("its list has {} entries and should have {count}", entries.len()).into());
    }
    Ok(entries)
}

/// The 64-bit extra field's contents among the extra fields.
fn wide_field(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let length = usize::from(u16_at(extra, 2));
        let Some(body) = extra.get(4..4 + length) else { break };
        if u16_at(extra, 0) == EXTRA_64 {
            return body;
        }
        extra = &extra[4 + length..];
    }
    &[]
}

/// A name that would stay in the folder it is unpacked to. Nothing is unpacked here; but such a file is an attack on
/// whoever unpacks it next.
fn sound_name(bytes: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(bytes).map_err(|_| "the name of an entry is not UTF-8".to_string())?;
    let bad = name.is_empty()
        || name.starts_with('/')
        || name.contains(['\\', '\0'])
        || name.get(1..3) == Some(":/")
        || name.split('/').any(|part| part == "..");
    if bad {
        Err(format!("its entry {name:?} is refused: the name leads out of the folder").into())
    } else {
        Ok(name.into())
    }
}

/// Finds where an entry's bytes begin: behind its own header, which must agree with the list.
fn locate(from: &mut (impl Read + Seek), entry: &mut Entry, list: u64) -> Result<()> {
    let beyond = || format!("its entry {} does not lie where the list says", entry.name);
    if entry.header.checked_add(LOCAL_BYTES).is_none_or(|end| end > list) {
        return Err(beyond().into());
    }
    let mut header = [0; LOCAL_BYTES as usize];
    from.seek(SeekFrom::Start(entry.header))?;
    from.read_exact(&mut header)?;
    let (name, extra) = (u16_at(&header, 26), u16_at(&header, 28));
    if u32_at(&header, 0) != LOCAL || u16_at(&header, 8) != entry.method || usize::from(name) != entry.name.len() {
        return Err(beyond().into());
    }
    let mut own = vec![0; name.into()];
    from.read_exact(&mut own)?;
    let offset = entry.header + LOCAL_BYTES + u64::from(name) + u64::from(extra);
    if own != entry.name.as_bytes() || offset.checked_add(entry.bytes).is_none_or(|end| end > list) {
        return Err(beyond().into());
    }
    entry.offset = offset;
    Ok(())
}

/// Entries that share bytes let a small file claim to hold much.
fn apart(entries: &[Entry]) -> Result<()> {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by_key(|entry| entry.header);
    match order.windows(2).find(|pair| pair[0].offset + pair[0].bytes > pair[1].header) {
        Some(pair) => Err(format!("its entries {} and {} overlap", pair[0].name, pair[1].name).into()),
        None => Ok(()),
    }
}
