//! Runs a plan on CPU cores: thread team, memory, SIMD helpers, kernels that several ops share.

pub(crate) mod block;
pub mod columns;
pub mod elementwise;
mod gate;
pub mod gemm;
pub mod kernel;
pub mod math;
pub(crate) mod pace;
mod rounds;
pub(crate) mod runner;
mod seat;
pub mod simd;
pub mod storage;
pub(crate) mod stream;
pub mod tasks;
pub mod team;
