//! What the folder of a run holds besides checkpoints, and how it is read again.

mod environment;
pub(crate) mod history;
mod story;

pub use environment::{environment, note_gpu};
pub use history::{Epoch, read_history};
pub use story::{Mistakes, write_story};
