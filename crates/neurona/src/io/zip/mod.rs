//! Zip archives of uncompressed entries, which is what PyTorch writes: read where they lie, and written.
//!
//! By hand, because little is needed and all of it must be checked: entries lie apart from each other and within the
//! file, have names that stay in their folder, and are not read when they are compressed: nothing grows beyond the file.

mod read;
mod write;

pub(super) use read::{Archive, Entry, Failure};
pub(super) use write::Writer;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// Sizes of the records without names, extra fields and comments.
const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END_64_BYTES: usize = 56;
const LOCATOR_64_BYTES: usize = 20;
/// The extra field that holds what does not fit into 32 bits.
const EXTRA_64: u16 = 1;
/// The name is UTF-8.
const UTF8: u16 = 1 << 11;

#[cfg(test)]
mod tests;
