//! Neurona trains, evaluates and ships image classifiers, on CPU cores and NVIDIA GPUs.
//!
//! Its tensors are lazy: an op checks shapes and adds a node to a graph; when a value is needed the graph is
//! compiled to a plan once, and the plan runs again for every later batch. A training loop reads like PyTorch's:
//!
//! ```
//! use neurona::nn::{Conv2d, Forward, Linear, MaxPool2d, Module};
//! use neurona::optim::{Optimizer, Sgd};
//! use neurona::{Result, Tensor, data::embedded};
//!
//! #[derive(Module)]
//! struct Net {
//!     conv: Conv2d,
//!     pool: MaxPool2d,
//!     fc: Linear,
//! }
//!
//! impl Forward for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let x = self.pool.forward(&self.conv.forward(x)?.relu()?)?;
//!         self.fc.forward(&x.flatten(1, -1)?)
//!     }
//! }
//!
//! let train = embedded::fashion_mnist()?.train;
//! let net = Net { conv: Conv2d::new(1, 8, 5)?, pool: MaxPool2d::new(2), fc: Linear::new(8 * 12 * 12, 10)? };
//! let mut optimizer = Sgd::new(net.parameters(), 0.01).momentum(0.9);
//! for batch in (0..640).collect::<Vec<_>>().chunks(64) {
//!     let (images, labels) = train.batch(batch)?;
//!     optimizer.zero_grad();
//!     let loss = net.forward(&images)?.cross_entropy(&labels)?;
//!     loss.backward()?;
//!     optimizer.step()?;
//!     println!("loss {:.3}", loss.item::<f32>()?);
//! }
//! net.save("net.safetensors")?;
//! # std::fs::remove_file("net.safetensors").ok();
//! # Ok::<(), neurona::Error>(())
//! ```

#![cfg_attr(test, allow(clippy::undocumented_unsafe_blocks))]

// Its own layers derive Module too; the macro writes paths from the crate's name.
extern crate self as neurona;

pub mod cpu;
pub(crate) mod cuda;
pub mod data;
mod error;
pub mod graph;
pub mod io;
pub mod loss;
pub mod metrics;
pub mod models;
mod module_name;
pub mod nn;
pub(crate) mod ops;
pub mod optim;
pub mod schedule;
pub mod tensor;
pub mod train;

#[doc(hidden)]
pub use cuda::bench as bench_support;
pub use cuda::choice::{Kernels, kernel_choices, kernels, remember_kernel_choices, set_kernels};
pub use cuda::{CudaPart, CudaReport, cuda_report, gpu_peak_memory, gpu_problem};
pub use error::{Error, OpError, Place, Result};
pub use graph::cell::Cell;
pub use graph::debug::{set_check_finite, set_debug};
pub use graph::engine::{Stats, autocast, num_threads, set_autocast, set_fusion, set_num_threads, stats};
#[doc(hidden)]
pub use graph::engine::{latest_steps, latest_stretches, observe_runs};
pub use module_name::ModuleName;
pub use ops::batch_norm::{Normalized, RunningStats};
pub use ops::conv2d::Conv2dOptions;
#[doc(hidden)]
pub use ops::conv2d::cpu as conv2d_kernels;
pub use ops::cross_entropy::{CrossEntropyOptions, Reduction};
pub use ops::pad::PadMode;
pub use ops::pool::PoolOptions;
pub use tensor::{DType, Device, Element, GpuInfo, Number, Shape, Tensor, manual_seed, no_grad};
