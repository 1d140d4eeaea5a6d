//! Writing an archive.

use super::*;
use std::io::{self, Write};

/// Bytes of entries begin at multiples of this, as PyTorch's do, so that readers may map the file.
const ALIGN: u64 = 64;
/// The extra field that PyTorch pads with, and what it fills it with.
const PADDING: [u8; 2] = *b"FB";
const FILLER: u8 = b'Z';

/// Writes entries one after the other, then their list.
pub(in super::super) struct Writer<'a> {
    to: &'a mut dyn Write,
    at: u64,
    list: Vec<u8>,
    count: u64,
}

impl<'a> Writer<'a> {
    pub fn new(to: &'a mut dyn Write) -> Self {
        Writer { to, at: 0, list: Vec::new(), count: 0 }
    }

    /// A writer at another place, as after entries of so many bytes.
    #[cfg(test)]
    pub fn starting_at(to: &'a mut dyn Write, at: u64) -> Self {
        Writer { at, ..Writer::new(to) }
    }

    /// Writes an entry.
    pub fn entry(&mut self, name: &str, body: &[u8]) -> io::Result<()> {
        let mut crc = flate2::Crc::new();
        crc.update(body);
        self.header(name, body.len() as u64, crc.sum())?;
        self.put(body)
    }

    /// Writes what stands before an entry's bytes.
    pub fn header(&mut self, name: &str, bytes: u64, crc: u32) -> io::Result<()> {
        let start = self.at;
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        // Zeros for versions, time and date: the same tensors give the same file.
        let common = |version: u16| {
            let mut part = [version, UTF8, 0, 0, 0].map(u16::to_le_bytes).concat();
            part.extend([crc, small(bytes), small(bytes)].map(u32::to_le_bytes).concat());
            part.extend((name.len() as u16).to_le_bytes());
            part
        };
        let large = bytes >= u32::MAX.into();
        let far = start >= u32::MAX.into();
        let version = if large || far { 45 } else { 0 };
        let field = |numbers: &[u64]| {
            let mut field = [EXTRA_64, 8 * numbers.len() as u16].map(u16::to_le_bytes).concat();
            field.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            field
        };
        let mut extra = if large { field(&[bytes, bytes]) } else { Vec::new() };
        let before = start + LOCAL_BYTES + (name.len() + extra.len() + 4) as u64;
        let padding = (before.next_multiple_of(ALIGN) - before) as usize;
        extra.extend(PADDING);
        extra.extend((padding as u16).to_le_bytes());
        extra.extend(vec![FILLER; padding]);
        self.put(&LOCAL.to_le_bytes())?;
        self.put(&common(version))?;
        self.put(&(extra.len() as u16).to_le_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&extra)?;

        let numbers: Vec<u64> = [(large, bytes), (large, bytes), (far, start)]
            .into_iter()
            .filter(|(wide, _)| *wide)
            .map(|(_, n)| n)
            .collect();
        let extra = if numbers.is_empty() { Vec::new() } else { field(&numbers) };
        self.list.extend(CENTRAL.to_le_bytes());
        self.list.extend(version.to_le_bytes());
        self.list.extend(common(version));
        self.list.extend((extra.len() as u16).to_le_bytes());
        // No comment, first disk, no attributes.
        self.list.extend([0; 10]);
        self.list.extend(small(start).to_le_bytes());
        self.list.extend(name.as_bytes());
        self.list.extend(extra);
        self.count += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    /// Writes the list of entries. The 64-bit record always stands before the old one, as in PyTorch's files.
    pub fn finish(mut self) -> io::Result<()> {
        let (start, list) = (self.at, std::mem::take(&mut self.list));
        self.put(&list)?;
        let record = self.at;
        let (length, count) = (list.len() as u64, self.count);
        let mut tail = END_64.to_le_bytes().to_vec();
        tail.extend((END_64_BYTES as u64 - 12).to_le_bytes());
        tail.extend([45u16, 45].map(u16::to_le_bytes).concat());
        tail.extend([0; 8]);
        tail.extend([count, count, length, start].map(u64::to_le_bytes).concat());
        tail.extend(LOCATOR_64.to_le_bytes());
        tail.extend([0; 4]);
        tail.extend(record.to_le_bytes());
        tail.extend(1u32.to_le_bytes());
        tail.extend(END.to_le_bytes());
        tail.extend([0; 4]);
        tail.extend([u16::try_from(count).unwrap_or(u16::MAX); 2].map(u16::to_le_bytes).concat());
        tail.extend([length, start].map(|n| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes()).concat());
        tail.extend([0; 2]);
        self.put(&tail)
    }
}
