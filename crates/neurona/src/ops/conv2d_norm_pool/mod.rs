//! A network's first convolution, batch normalisation in training, relu and max pooling of 2 by 2, on CPU cores. Only the
//! lowering pass makes these ops, where nobody else needs what lies between.
//!
//! What is convolved is never stored. Forward, the winners of its windows are all that is normalised. Backward, the filters'
//! gradient is a sum over all pixels of what normalising makes of their gradients, times their windows; but normalising is
//! linear there, and so is the convolution: the sum follows from the winners' windows and from products of the images'
//! windows with each other, which need no convolution's result.

pub(crate) mod cpu;

use super::conv2d::Conv2dOptions;
use super::conv2d::cpu::{Bands, Geometry, Winners, statistics};
use super::{Operation, Spatial};
use crate::cpu::kernel::Kernel;
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};
use cpu::{Backward, Options};
use smallvec::smallvec;

/// Operands: those of the convolution; with scales those of the normalisation.
/// Results: of each window the element that will be the greatest; the convolution's statistics; where winners stood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dWinners {
    pub options: Conv2dOptions,
    pub winners: Winners,
}

/// Operands: the gradient by the pooled images, these, places, inverse deviation, the images, filters; if affine weight of
/// the normalisation.
/// Results: if affine dweight, dbias; the gradient by filters; if asked the one by the convolution's bias.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv2dNormPoolGrad {
    pub conv: Conv2dOptions,
    pub options: Options,
}

fn geometry(name: &'static str, options: &Conv2dOptions, x: &Meta, weight: &Meta) -> Result<Geometry> {
    options.check(x, weight).map_err(|problem| Error::op(name, problem))
}

fn misfit(name: &'static str) -> Error {
    Error::op(name, "is for few channels, many images, and windows without rest")
}

impl Conv2dWinners {
    fn kernel(&self, inputs: &[&Meta]) -> Result<Bands> {
        let g = geometry(self.name(), &self.options, inputs[0], inputs[1])?;
        let bias = inputs.len() > 2 + usize::from(self.winners.scales);
        Bands::new(g, bias, Some(self.winners)).ok_or_else(|| misfit(self.name()))
    }
}

impl Operation for Conv2dWinners {
    fn name(&self) -> &'static str {
        "conv2d_winners"
    }
    fn describe(&self) -> String {
        "conv2d·statistics·max_pool2d".into()
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.kernel(inputs)?;
        let g = geometry(self.name(), &self.options, inputs[0], inputs[1])?;
        let shape = [g.n, g.k, g.oh() / 2, g.ow() / 2];
        let images = |dtype| Meta::new(shape, dtype);
        Ok(smallvec![images(inputs[0].dtype), Meta::new(statistics(g), DType::F64), images(DType::U8)])
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(if self.winners.from_rows { &[] } else { &[0] }, &[0, 2])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let metas: Vec<&Meta> = inputs.iter().map(|operand| &operand.meta).collect();
        Ok(Box::new(self.kernel(&metas)?))
    }
}

impl Conv2dNormPoolGrad {
    /// Where the images are among the operands; filters follow them.
    const IMAGES: usize = 4;

    fn kernel(&self, inputs: &[&Meta]) -> Result<Backward> {
        let g = geometry(self.name(), &self.conv, inputs[Self::IMAGES], inputs[Self::IMAGES + 1])?;
        Backward::new(g, self.options).ok_or_else(|| misfit(self.name()))
    }
}

impl Operation for Conv2dNormPoolGrad {
    fn name(&self) -> &'static str {
        "conv2d_norm_pool_grad"
    }
    fn describe(&self) -> String {
        "conv2d·batch_norm·relu·max_pool2d_grad".into()
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.kernel(inputs)?;
        let weight = inputs[Self::IMAGES + 1];
        let channels = Meta::new([weight.shape[0]], weight.dtype);
        let mut metas: Metas = smallvec![];
        if self.options.affine {
            metas.extend([channels.clone(), channels.clone()]);
        }
        metas.push(weight.clone());
        if self.options.bias {
            metas.push(channels);
        }
        Ok(metas)
    }
    fn spatial(&self) -> Spatial {
        Spatial::of(if self.options.from_rows { &[0, 1, 2] } else { &[0, 1, 2, Self::IMAGES] }, &[])
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let metas: Vec<&Meta> = inputs.iter().map(|operand| &operand.meta).collect();
        Ok(Box::new(self.kernel(&metas)?))
    }
}
