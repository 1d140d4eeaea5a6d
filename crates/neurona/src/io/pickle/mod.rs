//! Python's pickles as data. Nothing is called and nothing imported: where a pickle says "call this", the result is a
//! note of what would have been called, and names that no data needs (`os.system`, `builtins.eval`) are refused.

mod input;
mod machine;
pub mod numpy;
mod opcode;
mod scalar;
mod settle;
mod trust;
mod value;

pub use value::{Global, Object, Value};

use crate::{Error, Result};
use std::path::Path;

/// Values, references to them included, beyond which a pickle is refused; checkpoints have thousands.
const MOST_VALUES: usize = 1 << 22;
/// Lists within lists beyond which a pickle is refused: whoever walks the result may do so by recursion.
const DEEPEST: usize = 200;

/// Reads a pickle (protocols 0 to 5); `name` is for error messages.
///
/// ```
/// use neurona::io::pickle;
/// let list = pickle::parse(b"\x80\x02]q\x00(K\x01X\x02\x00\x00\x00hie.", "example".as_ref())?;
/// let items = list.items().unwrap();
/// assert_eq!((items[0].int(), items[1].text()), (Some(1), Some("hi")));
///
/// let hostile = pickle::parse(b"cos\nsystem\n(S'rm -r /'\ntR.", "hostile".as_ref()).unwrap_err().to_string();
/// assert_eq!(hostile, "hostile: its pickle is refused at byte 0 (GLOBAL): it names os.system, which is no data");
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn parse(bytes: &[u8], name: &Path) -> Result<Value> {
    machine::run(bytes).map_err(|problem| Error::Format { path: name.into(), problem })
}

#[cfg(test)]
mod tests;
