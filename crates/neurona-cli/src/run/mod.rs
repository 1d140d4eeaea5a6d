//! The folder of a run: what it holds and how it is read again.

mod environment;
mod folder;
pub(crate) mod history;

pub use environment::environment;
pub use folder::Folder;
pub use history::{Epoch, read_history};
