//! The weights of an ONNX model, found by walking over its protobuf fields: everything else is skipped unread.

use super::{Inspection, TensorInfo};
use crate::io::Format;
use crate::{Error, Result};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Names, keys and notes beyond this are refused before they are read.
const LONGEST: u64 = 1 << 20;
/// Tensors have few dimensions.
const MOST_DIMENSIONS: usize = 64;

/// What went wrong: with the disk, or with the contents.
enum Failure {
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

impl From<&str> for Failure {
    fn from(problem: &str) -> Self {
        Failure::Contents(problem.into())
    }
}

/// Describes a model's weights without reading them.
pub fn describe(from: impl Read + Seek, name: &Path) -> Result<Inspection> {
    Walk { from: io::BufReader::new(from), at: 0 }.model().map_err(|failure| match failure {
        Failure::Disk(source) => Error::File { action: "read", path: name.into(), source },
        Failure::Contents(problem) => {
            let problem = format!("it is not an ONNX model, or a damaged one: {problem}");
            Error::Format { path: name.into(), problem }
        }
    })
}

/// A field's number and what follows.
enum Field {
    Number(u64, u64),
    /// A message, text or bytes: how many.
    Bytes(u64, u64),
}

struct Walk<R> {
    from: R,
    at: u64,
}

impl<R: Read + Seek> Walk<io::BufReader<R>> {
    fn model(mut self) -> std::result::Result<Inspection, Failure> {
        let end = self.from.seek(SeekFrom::End(0))?;
        self.from.seek(SeekFrom::Start(0))?;
        let mut found =
            Inspection { format: Format::Onnx, tensors: Vec::new(), metadata: Vec::new(), notes: Vec::new() };
        let mut graph = false;
        while self.at < end {
            match self.field(end)? {
                Field::Bytes(2, n) => found.notes.push(format!("written by {}", self.text(n)?)),
                Field::Bytes(7, n) => {
                    graph = true;
                    self.graph(n, &mut found)?;
                }
                Field::Bytes(8, n) => self.opset(n, &mut found)?,
                Field::Bytes(14, n) => {
                    let entry = self.entry(n)?;
                    found.metadata.push(entry);
                }
                field => self.skip(&field)?,
            }
        }
        if graph { Ok(found) } else { Err("it has no graph".into()) }
    }

    fn graph(&mut self, n: u64, found: &mut Inspection) -> std::result::Result<(), Failure> {
        let (end, mut nodes) = (self.at + n, 0u64);
        while self.at < end {
            match self.field(end)? {
                Field::Bytes(5, n) => found.tensors.push(self.tensor(n)?),
                field => {
                    nodes += u64::from(matches!(field, Field::Bytes(1, _)));
                    self.skip(&field)?;
                }
            }
        }
        found.notes.push(format!("a graph of {nodes} nodes"));
        Ok(())
    }

    fn tensor(&mut self, n: u64) -> std::result::Result<TensorInfo, Failure> {
        let end = self.at + n;
        let (mut name, mut kind, mut shape) = (String::new(), 0, Vec::new());
        while self.at < end {
            match self.field(end)? {
                Field::Number(1, size) => shape.push(size),
                // Packed: one after the other.
                Field::Bytes(1, n) => {
                    let end = self.at + n;
                    while self.at < end && shape.len() <= MOST_DIMENSIONS {
                        shape.push(self.varint(end)?);
                    }
                }
                Field::Number(2, number) => kind = number,
                Field::Bytes(8, n) => name = self.text(n)?,
                field => self.skip(&field)?,
            }
            if shape.len() > MOST_DIMENSIONS {
                return Err("a tensor has too many dimensions".into());
            }
        }
        let shape: Option<Vec<usize>> = shape.iter().map(|n| i64::try_from(*n).ok()?.try_into().ok()).collect();
        let shape = shape.ok_or_else(|| Failure::Contents(format!("tensor {name} has a negative size")))?;
        let (dtype, size) = kind_of(kind);
        let bytes = shape.iter().fold(size, |n, d| n.saturating_mul(*d as u64));
        Ok(TensorInfo { name, dtype: dtype.into(), shape, bytes })
    }

    fn opset(&mut self, n: u64, found: &mut Inspection) -> std::result::Result<(), Failure> {
        let end = self.at + n;
        let (mut domain, mut version) = (String::new(), 0);
        while self.at < end {
            match self.field(end)? {
                Field::Bytes(1, n) => domain = self.text(n)?,
                Field::Number(2, number) => version = number,
                field => self.skip(&field)?,
            }
        }
        let domain = if domain.is_empty() { "ai.onnx".into() } else { domain };
        found.notes.push(format!("operators of {domain} version {version}"));
        Ok(())
    }

    fn entry(&mut self, n: u64) -> std::result::Result<(String, String), Failure> {
        let end = self.at + n;
        let mut entry = (String::new(), String::new());
        while self.at < end {
            match self.field(end)? {
                Field::Bytes(1, n) => entry.0 = self.text(n)?,
                Field::Bytes(2, n) => entry.1 = self.text(n)?,
                field => self.skip(&field)?,
            }
        }
        Ok(entry)
    }

    fn field(&mut self, end: u64) -> std::result::Result<Field, Failure> {
        let key = self.varint(end)?;
        let (number, wire) = (key >> 3, key & 7);
        let field = match wire {
            0 => Field::Number(number, self.varint(end)?),
            1 => Field::Bytes(u64::MAX, 8),
            2 => Field::Bytes(number, self.varint(end)?),
            5 => Field::Bytes(u64::MAX, 4),
            _ => return Err(Failure::Contents(format!("byte {} begins no field", self.at))),
        };
        match field {
            Field::Bytes(_, n) if n > end - self.at => {
                Err(Failure::Contents(format!("the field at byte {} reaches beyond what it is part of", self.at)))
            }
            field => Ok(field),
        }
    }

    fn skip(&mut self, field: &Field) -> std::result::Result<(), Failure> {
        if let Field::Bytes(_, n) = field {
            self.at += n;
            // Within the buffer when it can be: most fields are short.
            self.from.seek_relative(i64::try_from(*n).map_err(|_| "a field is too long")?)?;
        }
        Ok(())
    }

    fn text(&mut self, n: u64) -> std::result::Result<String, Failure> {
        if n > LONGEST {
            return Err("a name is too long".into());
        }
        let mut bytes = vec![0; n as usize];
        self.from.read_exact(&mut bytes)?;
        self.at += n;
        String::from_utf8(bytes).map_err(|_| "a name is not UTF-8".into())
    }

    fn varint(&mut self, end: u64) -> std::result::Result<u64, Failure> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.at >= end {
                break;
            }
            let mut byte = [0];
            self.from.read_exact(&mut byte)?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Failure::Contents(format!("the number at byte {} does not end", self.at)))
    }
}

/// The names and sizes of the format's element types.
fn kind_of(number: u64) -> (&'static str, u64) {
    match number {
        1 => ("f32", 4),
        2 => ("u8", 1),
        3 => ("i8", 1),
        4 => ("u16", 2),
        5 => ("i16", 2),
        6 => ("i32", 4),
        7 => ("i64", 8),
        9 => ("bool", 1),
        10 => ("f16", 2),
        11 => ("f64", 8),
        12 => ("u32", 4),
        13 => ("u64", 8),
        16 => ("bf16", 2),
        _ => ("other", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, body.len() as u8][..], body].concat()
    }

    fn model() -> Vec<u8> {
        let tensor = [&[0x08, 2, 0x08, 3, 0x10, 1][..], &field(8, b"fc.weight"), &field(9, &[0; 24])].concat();
        let packed = [field(1, &[5]), vec![0x10, 7], field(8, b"ids"), field(7, &[0; 5])].concat();
        let graph = [field(1, b""), field(5, &tensor), field(5, &packed), field(1, b"")].concat();
        let opset = [0x10, 18].to_vec();
        let note = [field(1, b"key"), field(2, b"value")].concat();
        [vec![0x08, 8], field(2, b"pytorch"), field(7, &graph), field(8, &opset), field(14, &note)].concat()
    }

    #[test]
    fn lists_weights_and_notes() {
        let found = describe(Cursor::new(model()), "x".as_ref()).unwrap();
        let info = |name: &str, dtype: &str, shape: &[usize], bytes| TensorInfo {
            name: name.into(),
            dtype: dtype.into(),
            shape: shape.to_vec(),
            bytes,
        };
        assert_eq!(found.tensors, [info("fc.weight", "f32", &[2, 3], 24), info("ids", "i64", &[5], 40)]);
        assert_eq!(found.metadata, [("key".to_string(), "value".to_string())]);
        assert_eq!(found.notes, ["written by pytorch", "a graph of 2 nodes", "operators of ai.onnx version 18"]);
    }

    #[test]
    fn no_file_can_make_it_panic() {
        let whole = model();
        for n in 0..whole.len() {
            let _ = describe(Cursor::new(&whole[..n]), "x".as_ref());
            for bit in 0..8 {
                let mut broken = whole.clone();
                broken[n] ^= 1 << bit;
                let _ = describe(Cursor::new(broken), "x".as_ref());
            }
        }
        let huge = [&[0x08, 8, 0x3a][..], &[0xff; 9], &[0x01]].concat();
        let text = describe(Cursor::new(huge), "x".as_ref()).unwrap_err().to_string();
        assert!(text.contains("reaches beyond"), "{text}");
        assert!(describe(Cursor::new([0x08, 8]), "x".as_ref()).unwrap_err().to_string().contains("no graph"));
    }
}
