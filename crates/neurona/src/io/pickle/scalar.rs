//! Opcodes that carry a value without parts.

use super::Value;
use super::input::{Input, Problem, quoted, raw_unicode, utf8};
use super::opcode::*;

/// The value of an opcode that carries one, none for other opcodes.
pub fn scalar(opcode: u8, input: &mut Input<'_>) -> Result<Option<Value>, Problem> {
    Ok(Some(match opcode {
        NONE => Value::None,
        NEWTRUE => Value::Bool(true),
        NEWFALSE => Value::Bool(false),
        INT => match input.text_line()? {
            "00" => Value::Bool(false),
            "01" => Value::Bool(true),
            line => Value::Int(line.trim().parse().map_err(|_| format!("{line:?} is not an integer of 64 bits"))?),
        },
        BININT => Value::Int(i32::from_le_bytes(input.array()?).into()),
        BININT1 => Value::Int(input.byte()?.into()),
        BININT2 => Value::Int(u16::from_le_bytes(input.array()?).into()),
        LONG => {
            let line = input.text_line()?;
            let digits = line.trim().trim_end_matches('L');
            Value::Int(digits.parse().map_err(|_| format!("{line:?} is not an integer of 64 bits"))?)
        }
        LONG1 => integer(input.counted::<1>()?),
        LONG4 => integer(input.counted::<4>()?),
        FLOAT => Value::Float(input.number()?),
        BINFLOAT => Value::Float(f64::from_be_bytes(input.array()?)),
        STRING => Value::Bytes(quoted(input.line()?)?.into()),
        BINSTRING | BINBYTES => Value::Bytes(input.counted::<4>()?.into()),
        SHORT_BINSTRING | SHORT_BINBYTES => Value::Bytes(input.counted::<1>()?.into()),
        BINBYTES8 | BYTEARRAY8 => Value::Bytes(input.counted::<8>()?.into()),
        UNICODE => Value::Text(raw_unicode(input.line()?)?.into()),
        SHORT_BINUNICODE => Value::Text(utf8(input.counted::<1>()?)?.into()),
        BINUNICODE => Value::Text(utf8(input.counted::<4>()?)?.into()),
        BINUNICODE8 => Value::Text(utf8(input.counted::<8>()?)?.into()),
        _ => return Ok(None),
    }))
}

/// An integer from its little-endian bytes in two's complement.
fn integer(bytes: &[u8]) -> Value {
    let sign = bytes.last().map_or(0, |b| if b & 0x80 == 0 { 0 } else { 0xff });
    let mut wide = [sign; 8];
    match wide.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(wide))
        }
        None => Value::BigInt(bytes.into()),
    }
}
