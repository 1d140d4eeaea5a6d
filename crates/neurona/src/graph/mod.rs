//! One graph, five passes: trace, gradient, lower, plan, run. No arithmetic here.

mod arena;
pub(crate) mod cell;
pub(crate) mod debug;
pub(crate) mod engine;
pub(crate) mod gradient;
pub mod ir;
pub(crate) mod lasting;
pub(crate) mod lower;
pub(crate) mod node;
pub(crate) mod outline;
pub(crate) mod plan;
pub(crate) mod stretch;
pub(crate) mod version;
pub(crate) mod walk;
