//! Layers with PyTorch's names, defaults and initialisers, and what makes a struct of them a model.

mod conv;
pub mod init;
mod linear;
mod module;
mod parameter;

pub use conv::Conv2d;
pub use linear::Linear;
pub use module::{Forward, Item, Module, Visitor};
pub use neurona_derive::Module;
pub use parameter::{Buffer, Mode, ModulePath, Parameter};
