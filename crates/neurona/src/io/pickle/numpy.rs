//! NumPy's arrays inside pickles.

use super::Value;
use std::sync::Arc;

/// An array's elements as they were in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// NumPy's name of the element type, as in `u1` and `f4`.
    pub kind: String,
    /// Whether elements have their highest byte first.
    pub big_endian: bool,
    /// Whether the first index runs fastest.
    pub fortran: bool,
    /// The elements.
    pub bytes: Arc<[u8]>,
}

/// The array that a value would be in Python, none when it is something else or its parts do not fit together.
///
/// ```
/// use neurona::io::pickle::{self, numpy};
/// let pickle = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01K\x02\x85\
///                cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNK\xffK\xffK\x00tb\x89U\x02\x07\x08tb.";
/// let array = numpy::array(&pickle::parse(pickle, "example".as_ref())?).unwrap();
/// assert_eq!((array.shape, array.kind.as_str(), &array.bytes[..]), (vec![2], "u1", &[7, 8][..]));
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn array(value: &Value) -> Option<Array> {
    let Value::Object(object) = value else { return None };
    let global = object.global()?;
    let numpy = global.module.starts_with("numpy.");
    let (shape, dtype, fortran, data) = match (global.name.as_str(), object.args.items()?, &object.state) {
        ("_reconstruct", _, Some(state)) if numpy => match state.items()? {
            [_, shape, dtype, fortran, data] => (shape, dtype, fortran.int()? != 0, data),
            _ => return None,
        },
        // Protocol 5.
        ("_frombuffer", [data, dtype, shape, order], _) if numpy => (shape, dtype, order.text()? == "F", data),
        _ => return None,
    };
    let shape: Vec<usize> = shape.items()?.iter().map(Value::size).collect::<Option<_>>()?;
    let (kind, big_endian) = dtype_of(dtype)?;
    let width: usize = kind.get(1..)?.parse().ok()?;
    let bytes = bytes(data)?;
    let need = shape.iter().try_fold(width, |n, size| n.checked_mul(*size))?;
    (need == bytes.len()).then_some(Array { shape, kind, big_endian, fortran, bytes })
}

/// Bytes, also those that Python 3 writes as Latin-1 text where a protocol has no bytes.
pub fn bytes(value: &Value) -> Option<Arc<[u8]>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        Value::Object(object) => match object.call_of("_codecs.encode")? {
            [Value::Text(text), code] if matches!(code.text(), Some("latin1" | "latin-1")) => {
                text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
            }
            _ => None,
        },
        _ => None,
    }
}

fn dtype_of(value: &Value) -> Option<(String, bool)> {
    let Value::Object(object) = value else { return None };
    let kind = object.call_of("numpy.dtype")?.first()?.text()?;
    let order = object.state.as_ref().and_then(Value::items).and_then(|state| state.get(1)?.text());
    Some((kind.to_string(), order == Some(">")))
}
