//! Images from bytes to normalised floats, changed at random on the way: crop, flip, colours, cutout, MixUp; in one
//! pass over memory. Users reach it through [`crate::data::Augment`].

pub(crate) mod cpu;
mod cuda;
mod draw;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use super::{Operation, Spatial};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, kernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta};
use crate::{Error, Result};
pub(crate) use draw::{Fixed, Flip, Jitter, Settings};
use smallvec::smallvec;

/// Operands: images u8 `[n, c, h, w]`, a random key (i64), means and deviations (f32 `[2, c]`); when flips are given,
/// u8 `[n]`; for MixUp an image's own share (f32) and the labels (i64 `[n]`).
/// Results: images, and for MixUp the classes' probabilities (f32 `[n, classes]`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Augment {
    pub settings: Settings,
    /// The number of classes, when images are mixed.
    pub mix: Option<usize>,
    /// The element type of the result. All arithmetic is f32, so that every device has the same bits.
    pub to: DType,
}

impl Augment {
    /// Where the flips are among the operands.
    fn flips(&self) -> Option<usize> {
        (self.settings.flip == Flip::Given).then_some(3)
    }

    /// Where the own share is among the operands, and the labels.
    fn mixed(&self) -> Option<[usize; 2]> {
        let first = 3 + usize::from(self.flips().is_some());
        self.mix.map(|_| [first, first + 1])
    }
}

impl Operation for Augment {
    fn name(&self) -> &'static str {
        "augment"
    }

    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let images = inputs[0];
        let wrong = |problem: String| Err(Error::operands("augment", problem, &[("images", images)]));
        let &[n, c, h, w] = &images.shape[..] else { return wrong("needs images [n, c, h, w]".into()) };
        if images.dtype != DType::U8 {
            return wrong("needs images of bytes (u8)".into());
        }
        if c == 0 || h == 0 || w == 0 {
            return wrong("the images have no pixels".into());
        }
        // Rows, columns and pixels of an image are counted in 32 bits.
        if i32::try_from(n).is_err() || i32::try_from(c.saturating_mul(h).saturating_mul(w)).is_err() {
            return wrong("the images are too large".into());
        }
        let Settings { padding, jitter, .. } = self.settings;
        if padding >= h.min(w) && padding > 0 {
            return wrong(format!("a crop cannot move them by {padding} pixels"));
        }
        if jitter.is_some() && !matches!(c, 1 | 3) {
            return wrong("only images with 1 or 3 channels have colours to change".into());
        }
        if inputs[2].shape[..] != [2, c] {
            let given = inputs[2].shape.last().copied().unwrap_or(0);
            return wrong(format!("there are means and deviations for {given} channels"));
        }
        let flips = self.flips().map(|i| inputs[i]);
        if let Some(flips) = flips.filter(|flips| flips.shape[..] != [n] || flips.dtype != DType::U8) {
            return Err(Error::operands("augment", "needs one flip an image", &[("flips", flips)]));
        }
        let mut outputs: Metas = smallvec![Meta { shape: images.shape.clone(), dtype: self.to }];
        if let (Some([_, labels]), Some(classes)) = (self.mixed(), self.mix) {
            let labels = inputs[labels];
            if labels.shape[..] != [n] || labels.dtype != DType::I64 {
                let operands = [("images", images), ("labels", labels)];
                return Err(Error::operands("augment", "MixUp needs one i64 label an image", &operands));
            }
            outputs.push(Meta::new([n, classes], DType::F32));
        }
        Ok(outputs)
    }

    // Bytes come as they are stored, plane by plane; what follows are convolutions, which want channels last.
    fn spatial(&self) -> Spatial {
        Spatial::of(&[], &[0])
    }

    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Ok(cpu::kernel(self, &inputs[0].meta.shape))
    }

    fn cuda(&self, inputs: &[Operand], _outputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn kernel::Kernel>> {
        cuda::kernel(self, &inputs[0].meta.shape, gpu)
    }
}
