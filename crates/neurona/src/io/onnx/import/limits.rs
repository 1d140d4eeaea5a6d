//! How much a file may make us allocate. Two bytes of a file can claim a node, which takes a hundred times as much
//! memory: they are counted before anything is built.

use prost::encoding::{WireType, decode_key, decode_varint};

/// Messages and names in a file; large networks have some ten thousand.
const MOST: usize = 2_000_000;

/// A field that holds messages, and which of their fields do.
struct Field(u32, &'static [Field]);

const MODEL: &[Field] = &[Field(7, GRAPH), Field(8, &[]), Field(14, &[])];
const GRAPH: &[Field] = &[Field(1, NODE), Field(5, TENSOR), Field(11, INFO), Field(12, INFO)];
const NODE: &[Field] = &[Field(5, ATTRIBUTE)];
const ATTRIBUTE: &[Field] = &[Field(5, TENSOR)];
const TENSOR: &[Field] = &[Field(13, &[])];
const INFO: &[Field] = &[Field(2, &[Field(1, &[Field(2, &[Field(1, &[])])])])];

/// Refuses files with more parts than any network has.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut left = MOST;
    match count(bytes, MODEL, &mut left) {
        Some(()) => Ok(()),
        None if left == 0 => Err(format!("has more than {MOST} parts, which no network has")),
        None => Err("is not an ONNX file, or was damaged: its fields do not fit its size".into()),
    }
}

fn count(mut bytes: &[u8], fields: &[Field], left: &mut usize) -> Option<()> {
    while !bytes.is_empty() {
        let (field, wire) = decode_key(&mut bytes).ok()?;
        let skip = match wire {
            WireType::Varint => {
                decode_varint(&mut bytes).ok()?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut bytes).ok()?).ok()?,
            // Groups went out of use before ONNX began.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let inside = bytes.get(..skip)?;
        bytes = &bytes[skip..];
        if wire == WireType::LengthDelimited {
            *left = left.checked_sub(1)?;
            if let Some(Field(_, fields)) = fields.iter().find(|f| f.0 == field) {
                count(inside, fields, left)?;
            }
        }
    }
    Some(())
}
