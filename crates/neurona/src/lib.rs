//! Neurona trains, evaluates and ships image classifiers on CPU cores.
//!
//! Its tensors are lazy: an op checks shapes and adds a node to a graph; when a value is needed the graph is
//! compiled to a plan once, and the plan runs again for every later batch. A training loop reads like PyTorch's.

#![cfg_attr(test, allow(clippy::undocumented_unsafe_blocks))]

// Its own layers derive Module too; the macro writes paths from the crate's name.
extern crate self as neurona;

pub mod cpu;
pub mod data;
mod error;
pub mod graph;
pub mod io;
pub mod loss;
pub mod models;
pub mod nn;
pub(crate) mod ops;
pub mod optim;
pub mod tensor;

pub use error::{Error, OpError, Place, Result};
pub use graph::cell::Cell;
pub use graph::debug::{set_check_finite, set_debug};
#[doc(hidden)]
pub use graph::engine::observe_runs;
pub use graph::engine::{Stats, num_threads, set_fusion, set_num_threads, stats};
pub use ops::batch_norm::{Normalized, RunningStats};
pub use ops::conv2d::Conv2dOptions;
pub use ops::cross_entropy::{CrossEntropyOptions, Reduction};
pub use ops::pad::PadMode;
pub use ops::pool::PoolOptions;
pub use tensor::{DType, Device, Element, Number, Shape, Tensor, manual_seed, no_grad};
