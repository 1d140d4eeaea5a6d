//! Data sets in their official files.

pub mod embedded;
pub mod idx;
