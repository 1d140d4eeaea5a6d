//! The crop that ImageNet networks are trained with.

use super::arguments::{positive, range};
use super::{Interpolation, Size, Transform, functional};
use crate::Result;
use crate::data::{Draws, Image};
use std::fmt;

/// A part of random area, shape and place, resized to a size.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{RandomResizedCrop, Transform}};
/// let mut image = Image::new(64, 48, 3, vec![7; 64 * 48 * 3])?;
/// RandomResizedCrop::new(32)?.scale(0.5, 1.0)?.apply(&mut image, &mut Draws::new(1, 2, 3))?;
/// assert_eq!((image.width(), image.height()), (32, 32));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RandomResizedCrop {
    size: Size,
    scale: [f64; 2],
    ratio: [f64; 2],
    interpolation: Interpolation,
}

impl RandomResizedCrop {
    /// To this size, from 8 % to all of the area, from 3:4 to 4:3.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        let size = size.into().checked("RandomResizedCrop")?;
        let interpolation = Interpolation::Bilinear;
        Ok(RandomResizedCrop { size, scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0], interpolation })
    }

    /// From and to which share of the area.
    pub fn scale(mut self, low: f64, high: f64) -> Result<Self> {
        self.scale = range("the scale of RandomResizedCrop", [low, high], [0.0, f64::INFINITY])?;
        Ok(self)
    }

    /// From and to which width for a height of 1.
    pub fn ratio(mut self, low: f64, high: f64) -> Result<Self> {
        self.ratio = positive("the ratio of RandomResizedCrop", [low, high])?;
        Ok(self)
    }

    /// With another way to find values between pixels.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Top, left, height and width of a crop from an image of this height and width.
    pub fn params(&self, height: usize, width: usize, draws: &mut Draws) -> [usize; 4] {
        let area = height as f64 * width as f64;
        let logs = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let target = area * draws.uniform(self.scale[0], self.scale[1]);
            let ratio = draws.uniform(logs[0], logs[1]).exp();
            let w = (target * ratio).sqrt().round_ties_even() as usize;
            let h = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                let top = draws.below(height - h + 1);
                return [top, draws.below(width - w + 1), h, w];
            }
        }
        // None of ten fits: the largest middle part of an allowed shape.
        let shape = width as f64 / height as f64;
        let (mut h, mut w) = (height, width);
        if shape < self.ratio[0] {
            h = (width as f64 / self.ratio[0]).round_ties_even() as usize;
        } else if shape > self.ratio[1] {
            w = (height as f64 * self.ratio[1]).round_ties_even() as usize;
        }
        let (h, w) = (h.clamp(1, height.max(1)), w.clamp(1, width.max(1)));
        [height.saturating_sub(h) / 2, width.saturating_sub(w) / 2, h, w]
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let part = self.params(image.height(), image.width(), draws);
        functional::resized_crop(image, part, self.size.pair(), self.interpolation)
    }
}

impl fmt::Debug for RandomResizedCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([height, width], [s0, s1], [r0, r1]) = (self.size.pair(), self.scale, self.ratio);
        let how = self.interpolation;
        write!(f, "RandomResizedCrop(size=({height}, {width}), scale=({s0}, {s1}), ratio=({r0:.4}, {r1:.4}), ")?;
        write!(f, "interpolation={how}, antialias=True)")
    }
}
