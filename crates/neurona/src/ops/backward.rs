//! The gradient of a loss by its leaves, as a promise: one node with a result a leaf.
//!
//! Building it costs next to nothing, whatever the network; the gradient pass replaces it by real ops
//! only when a plan is made.

use super::Operation;
use crate::graph::node::Metas;
use crate::tensor::Meta;
use crate::{Error, Result};

/// Operands: the loss, then the leaves. Results: one gradient a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Backward;

impl Operation for Backward {
    fn name(&self) -> &'static str {
        "backward"
    }

    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        match inputs {
            [loss, leaves @ ..] if loss.shape.numel() == 1 => Ok(leaves.iter().map(|m| (*m).clone()).collect()),
            _ => Err(Error::op("backward", "the loss must have one element")),
        }
    }
}
