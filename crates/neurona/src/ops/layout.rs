//! The same image in another order in memory. Only the lowering pass makes these.

use super::{Operation, movement, one, permute};
use crate::Result;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::{Layout, Operand};
use crate::graph::node::Metas;
use crate::tensor::Meta;

/// Channels first to channels last, or back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ToLayout {
    pub to: Layout,
}

impl ToLayout {
    /// Of the dimensions as they lie in memory.
    fn order(&self) -> [usize; 4] {
        if self.to == Layout::ChannelsLast { [0, 2, 3, 1] } else { [0, 3, 1, 2] }
    }
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
        Ok(permute::copy(&inputs[0], &self.order()))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let x = &inputs[0];
        movement::Strided::permute(x.meta.dtype.size(), &x.physical(), &self.order()).kernel(gpu)
    }
}
