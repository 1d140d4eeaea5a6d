//! Layers with PyTorch's names, defaults and initialisers, and what makes a struct of them a model.

mod activation;
mod adaptive_pool;
mod batch_norm;
mod conv;
mod dropout;
mod flatten;
mod identity;
pub mod init;
mod linear;
mod module;
mod parameter;
mod pool;
mod sequential;
mod softmax;
mod state;

pub use crate::io::StateDict;
pub use activation::{ELU, GELU, Hardsigmoid, Hardswish, LeakyReLU, ReLU, SiLU, Sigmoid, Softplus, Tanh};
pub use adaptive_pool::AdaptiveAvgPool2d;
pub use batch_norm::{BatchNorm1d, BatchNorm2d};
pub use conv::Conv2d;
pub use dropout::Dropout;
pub use flatten::Flatten;
pub use identity::Identity;
pub use linear::Linear;
pub use module::{Forward, Item, Module, Visitor};
pub use neurona_derive::Module;
pub use parameter::{Buffer, Mode, ModulePath, Parameter};
pub use pool::{AvgPool2d, MaxPool2d};
pub use sequential::Sequential;
pub use softmax::{LogSoftmax, Softmax};
pub use state::LoadReport;
