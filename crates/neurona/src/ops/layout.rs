//! The same image in another order in memory. Only the lowering pass makes these.

use super::{Operation, movement, one, permute};
use crate::Result;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::{Layout, Operand};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};

/// Channels first to channels last, or back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ToLayout {
    pub to: Layout,
    /// The element type of the result where it is another one, which only kernels for GPUs do on the way.
    pub dtype: Option<DType>,
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
        let layout = if self.to == Layout::ChannelsLast { "nhwc" } else { "nchw" };
        self.dtype.map_or_else(|| format!("to_{layout}"), |dtype| format!("to_{layout}·to_{dtype}"))
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(Meta { shape: inputs[0].shape.clone(), dtype: self.dtype.unwrap_or(inputs[0].dtype) })
    }
    fn moves_only(&self) -> bool {
        self.dtype.is_none()
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Ok(permute::copy(&inputs[0], &self.order()))
    }
    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (x, from) = (inputs[0].physical(), inputs[0].meta.dtype);
        match self.dtype {
            Some(to) => movement::Strided::converting((from, to), &x, &self.order()).kernel(gpu),
            None => movement::Strided::permute(from.size(), &x, &self.order()).kernel(gpu),
        }
    }
}
