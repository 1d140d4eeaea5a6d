//! Convolution, relu and max pooling of 2 by 2 in one, on CPU cores. Only the lowering pass makes it, where nobody else
//! needs what is convolved: that is then never stored as a whole, and the gradients have a quarter of the work, because
//! each window sends its gradient back through one element.

pub(crate) mod cpu;

use super::conv2d::{Conv2d, Conv2dOptions};
use super::{Operation, Spatial, sgd_step};
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};
use cpu::{ByRows, Geometry};
use smallvec::smallvec;

/// Operands: those of the convolution. Results: the pooled images; with `places`, where in its window each element stood,
/// in an order that only the gradient knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dPool {
    /// With relu.
    pub conv: Conv2d,
    pub places: bool,
    /// The images come by rows and not with channels last.
    pub from_rows: bool,
    /// The pooled images go by rows.
    pub to_rows: bool,
}

/// Operands: the gradient by the pooled images, places, the images, weight; with a step the weight again, with momentum its
/// buffer, and the step's numbers.
/// Results: the gradient by weight; with `bias` the one by bias; with `input` the one by the images; with a step the weight
/// and its buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dPoolGrad {
    pub options: Conv2dOptions,
    pub bias: bool,
    pub input: bool,
    pub by_rows: ByRows,
    /// The weight takes its step along.
    pub step: Option<sgd_step::Options>,
}

fn geometry(options: &Conv2dOptions, x: &Meta, weight: &Meta) -> Result<Geometry> {
    options.check(x, weight).map_err(|problem| Error::op("conv2d_pool", problem))
}

impl Operation for Conv2dPool {
    fn name(&self) -> &'static str {
        "conv2d_pool"
    }
    fn describe(&self) -> String {
        format!("{}·max_pool2d", self.conv.describe())
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas = self.conv.outputs(inputs)?;
        let &[n, k, h, w] = &metas[0].shape[..] else { return Err(Error::op(self.name(), "needs images")) };
        let shape = [n, k, h / 2, w / 2];
        metas[0] = Meta::new(shape, metas[0].dtype);
        if self.places {
            metas.push(Meta::new(shape, DType::U8));
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        let first = |rows: bool| -> &'static [usize] { if rows { &[] } else { &[0] } };
        Spatial::of(first(self.from_rows), first(self.to_rows))
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = geometry(&self.conv.options, &inputs[0].meta, &inputs[1].meta)?;
        let options = cpu::Options {
            bias: inputs.len() > 2,
            scaled: self.conv.scaled,
            places: self.places,
            from_rows: self.from_rows,
            to_rows: self.to_rows,
        };
        cpu::forward(g, options).ok_or_else(|| Error::op(self.name(), "is not made for these sizes"))
    }
}

impl Operation for Conv2dPoolGrad {
    fn name(&self) -> &'static str {
        "conv2d_pool_grad"
    }
    fn describe(&self) -> String {
        format!("conv2d·relu·max_pool2d_grad{}", if self.step.is_some() { "·sgd_step" } else { "" })
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (x, weight) = (inputs[2], inputs[3]);
        let mut metas: Metas = smallvec![weight.clone()];
        if self.bias {
            metas.push(Meta::new([weight.shape[0]], weight.dtype));
        }
        if self.input {
            metas.push(x.clone());
        }
        if self.step.is_some() {
            metas.extend(inputs[4..inputs.len() - 1].iter().map(|m| (*m).clone()));
        }
        Ok(metas)
    }
    fn in_place(&self, inputs: usize) -> Vec<(usize, usize)> {
        let first = 1 + usize::from(self.bias) + usize::from(self.input);
        // The filters as they were are packed in the first phase, and written in the second.
        (4..inputs.saturating_sub(1)).map(|input| (first + input - 4, input)).collect()
    }
    fn spatial(&self) -> Spatial {
        let inputs: &[usize] = match self.by_rows {
            ByRows { slopes: false, images: false } => &[0, 2],
            ByRows { slopes: true, images: false } => &[2],
            ByRows { slopes: false, images: true } => &[0],
            ByRows { slopes: true, images: true } => &[],
        };
        match (self.input, self.bias) {
            (false, _) => Spatial::of(inputs, &[]),
            (true, false) => Spatial::of(inputs, &[1]),
            (true, true) => Spatial::of(inputs, &[2]),
        }
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let g = geometry(&self.options, &inputs[2].meta, &inputs[3].meta)?;
        Ok(Box::new(cpu::Backward::new(g, self.bias, self.input, self.by_rows, self.step)))
    }
}
