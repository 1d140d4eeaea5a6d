//! The same image in another order in memory. Only the lowering pass makes these.

use super::{Operation, one, permute};
use crate::Result;
use crate::cpu::kernel::Kernel;
use crate::graph::ir::{Layout, Operand};
use crate::graph::node::Metas;
use crate::tensor::Meta;

/// Channels first to channels last, or back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ToLayout {
    pub to: Layout,
}

impl Operation for ToLayout {
    fn name(&self) -> &'static str {
        "to_layout"
    }
    fn describe(&self) -> String {
        format!("to_{}", if self.to == Layout::ChannelsLast { "nhwc" } else { "nchw" })
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(inputs[0].clone())
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let order = if self.to == Layout::ChannelsLast { [0, 2, 3, 1] } else { [0, 3, 1, 2] };
        Ok(permute::copy(&inputs[0], &order))
    }
}
