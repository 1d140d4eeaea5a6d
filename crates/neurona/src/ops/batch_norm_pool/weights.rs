//! The gradient, and with it that of the filters of a convolution before it: what a lowering pass makes of the two on CPU
//! cores, an image at a time. What passes between them is a result where somebody else needs it.

use super::{BatchNormPoolGrad, cpu, geometry};
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::ops::conv2d::Conv2dWeightGrad;
use crate::ops::{Operation, Spatial};
use crate::tensor::{DType, Meta};
use crate::{Error, Result};

/// Operands: the convolution's images, then those of the gradient. Results: dx if it is kept; if affine dweight, dbias; those
/// of the filters' gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchNormPoolWeightGrad {
    pub norm: BatchNormPoolGrad,
    pub filters: Conv2dWeightGrad,
    /// Somebody else needs what passes from one to the other, too.
    pub keep: bool,
}

impl BatchNormPoolWeightGrad {
    /// Whether there is a kernel for the two.
    pub fn fits(&self, inputs: &[&Meta]) -> bool {
        inputs.iter().all(|meta| meta.dtype == DType::F32) && self.kernel(inputs).is_ok()
    }

    fn kernel(&self, inputs: &[&Meta]) -> Result<Box<dyn Kernel>> {
        let (images, x) = (inputs[0], inputs[2]);
        let pool = geometry(&self.norm.pool, x)?;
        let filters = &self.filters.outputs(&[images, x])?[0];
        let g = self.filters.options.check(images, filters).map_err(|p| Error::op(self.name(), p))?;
        match cpu::Weights::new(g, self.filters.bias, pool, self.norm.affine, self.keep) {
            Some(kernel) => Ok(Box::new(kernel)),
            None => Err(Error::op(self.name(), "is for few filters, few channels and many images")),
        }
    }
}

impl Operation for BatchNormPoolWeightGrad {
    fn name(&self) -> &'static str {
        "batch_norm_pool_weight_grad"
    }
    fn describe(&self) -> String {
        format!("{}·{}", self.norm.describe(), self.filters.name())
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas = self.norm.outputs(&inputs[1..])?;
        let dx = metas[0].clone();
        if !self.keep {
            metas.remove(0);
        }
        metas.extend(self.filters.outputs(&[inputs[0], &dx])?);
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(&[0, 1, 2], if self.keep { &[0] } else { &[] })
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let metas: Vec<&Meta> = inputs.iter().map(|operand| &operand.meta).collect();
        self.kernel(&metas)
    }
}
