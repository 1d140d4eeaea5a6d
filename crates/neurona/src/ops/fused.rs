//! A group of element-wise ops as one pass over memory. Only the lowering pass makes these.

use super::Operation;
use crate::Result;
use crate::cpu::elementwise::Program;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::Meta;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The program, and the names of its ops.
#[derive(Clone, Debug)]
pub(crate) struct Fused {
    pub program: Arc<Program>,
    pub name: String,
}

/// Two are the same only when they are one: fused ops never take part in looking plans up.
impl PartialEq for Fused {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }
}
impl Eq for Fused {}
impl Hash for Fused {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.program).hash(state);
    }
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }
    fn describe(&self) -> String {
        self.name.clone()
    }
    fn outputs(&self, _inputs: &[&Meta]) -> Result<Metas> {
        Err(crate::Error::op("fused", "is made by the lowering pass, which knows its results"))
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, _inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Ok(Box::new((*self.program).clone()))
    }
    fn cuda(&self, _inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        crate::cuda::elementwise::kernel(&self.program, &self.name, gpu)
    }
}
