//! TrivialAugment and RandAugment: one of many changes at random, with torchvision's tables.

use super::functional as f;
use super::{Fill, Interpolation, Transform};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

/// What may be done to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing.
    Identity,
    /// Sheared along x.
    ShearX,
    /// Sheared along y.
    ShearY,
    /// Moved along x.
    TranslateX,
    /// Moved along y.
    TranslateY,
    /// Turned.
    Rotate,
    /// Brighter or darker.
    Brightness,
    /// More or less colour.
    Color,
    /// More or less contrast.
    Contrast,
    /// Sharper or smoother.
    Sharpness,
    /// Fewer levels.
    Posterize,
    /// The light inverted.
    Solarize,
    /// Stretched to all levels.
    AutoContrast,
    /// All levels used alike.
    Equalize,
}

use Op::*;

/// In torchvision's order.
const OPS: [Op; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

impl Op {
    /// Whether the magnitude is turned round every second time.
    fn signed(self) -> bool {
        !matches!(self, Identity | Posterize | Solarize | AutoContrast | Equalize)
    }

    /// Whether there is a magnitude to choose.
    fn graded(self) -> bool {
        !matches!(self, Identity | AutoContrast | Equalize)
    }

    /// Does it to an image.
    pub fn apply(self, image: &mut Image, magnitude: f64, how: Interpolation, fill: Fill) -> Result<()> {
        let shear = magnitude.atan().to_degrees();
        let mut warp = |translate: [f64; 2], shear: [f64; 2], center: Option<[f64; 2]>| {
            f::affine(image, 0.0, translate, 1.0, shear, how, fill, center)
        };
        match self {
            Identity => Ok(()),
            ShearX => warp([0.0; 2], [shear, 0.0], Some([0.0; 2])),
            ShearY => warp([0.0; 2], [0.0, shear], Some([0.0; 2])),
            TranslateX => warp([magnitude.trunc(), 0.0], [0.0; 2], None),
            TranslateY => warp([0.0, magnitude.trunc()], [0.0; 2], None),
            Rotate => f::rotate(image, magnitude, how, false, None, fill),
            Brightness => f::adjust_brightness(image, 1.0 + magnitude),
            Color => f::adjust_saturation(image, 1.0 + magnitude),
            Contrast => f::adjust_contrast(image, 1.0 + magnitude),
            Sharpness => f::adjust_sharpness(image, 1.0 + magnitude),
            Posterize => f::posterize(image, magnitude as u32),
            Solarize => f::solarize(image, magnitude),
            AutoContrast => f::autocontrast(image),
            Equalize => f::equalize(image),
        }
    }
}

/// How strong the changes are at most.
struct Strength {
    shear: f64,
    /// In pixels, along x and y.
    translate: [f64; 2],
    rotate: f64,
    colour: f64,
    /// Bits that posterize takes away.
    bits: f64,
}

impl Strength {
    /// The magnitude of an op in one of the bins.
    fn magnitude(&self, op: Op, bin: usize, bins: usize) -> f64 {
        let from_zero = |most: f64| linspace([0.0, most], bin, bins);
        match op {
            Identity | AutoContrast | Equalize => 0.0,
            ShearX | ShearY => from_zero(self.shear),
            TranslateX => from_zero(self.translate[0]),
            TranslateY => from_zero(self.translate[1]),
            Rotate => from_zero(self.rotate),
            Brightness | Color | Contrast | Sharpness => from_zero(self.colour),
            Posterize => 8.0 - (bin as f64 / ((bins - 1) as f64 / self.bits)).round_ties_even(),
            Solarize => linspace([255.0, 0.0], bin, bins),
        }
    }
}

/// PyTorch's numbers at equal distances, in its 32 bits: a shift by 15.999999 pixels is one by 15.
fn linspace([first, last]: [f64; 2], at: usize, count: usize) -> f64 {
    let (first, last) = (first as f32, last as f32);
    let step = (last - first) / (count - 1) as f32;
    // From the nearer end, and rounded once.
    f64::from(match at < count / 2 {
        true => (f64::from(first) + f64::from(step) * at as f64) as f32,
        false => (f64::from(last) - f64::from(step) * (count - 1 - at) as f64) as f32,
    })
}

/// One random change of random strength: no settings to tune.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{TrivialAugmentWide, Transform}};
/// let mut image = Image::new(32, 32, 3, vec![100; 3072])?;
/// TrivialAugmentWide::default().apply(&mut image, &mut Draws::new(1, 2, 3))?;
/// assert_eq!((image.width(), image.height()), (32, 32));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct TrivialAugmentWide {
    bins: usize,
    interpolation: Interpolation,
    fill: Fill,
}

impl TrivialAugmentWide {
    /// With this many strengths to choose from; 31 by default.
    pub fn new(num_magnitude_bins: usize) -> Result<Self> {
        if num_magnitude_bins < 2 {
            return Err(Error::Argument("TrivialAugmentWide needs 2 or more magnitude bins".into()));
        }
        Ok(TrivialAugmentWide { bins: num_magnitude_bins, ..Self::default() })
    }

    /// Nearest (the default) or bilinear.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The colour of what has no pixel; 0 by default.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Which change an image gets, and how strong.
    pub fn params(&self, draws: &mut Draws) -> (Op, f64) {
        let strength = Strength { shear: 0.99, translate: [32.0; 2], rotate: 135.0, colour: 0.99, bits: 6.0 };
        let op = OPS[draws.below(OPS.len())];
        let bin = if op.graded() { draws.below(self.bins) } else { 0 };
        let magnitude = strength.magnitude(op, bin, self.bins);
        (op, if op.signed() && draws.chance(0.5) { -magnitude } else { magnitude })
    }
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        TrivialAugmentWide { bins: 31, interpolation: Interpolation::Nearest, fill: Fill::default() }
    }
}

impl Transform for TrivialAugmentWide {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let (op, magnitude) = self.params(draws);
        op.apply(image, magnitude, self.interpolation, self.fill)
    }
}

impl fmt::Debug for TrivialAugmentWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bins, how, fill) = (self.bins, self.interpolation, self.fill);
        write!(f, "TrivialAugmentWide(num_magnitude_bins={bins}, interpolation={how}, fill={fill})")
    }
}

/// Several random changes of one strength.
#[derive(Clone, Copy)]
pub struct RandAugment {
    ops: usize,
    magnitude: usize,
    bins: usize,
    interpolation: Interpolation,
    fill: Fill,
}

impl RandAugment {
    /// So many changes of this strength, of 31 strengths (the first is 0).
    pub fn new(num_ops: usize, magnitude: usize) -> Result<Self> {
        RandAugment { ops: num_ops, ..Self::default() }.bins(magnitude, 31)
    }

    /// This strength of so many.
    pub fn bins(mut self, magnitude: usize, num_magnitude_bins: usize) -> Result<Self> {
        if num_magnitude_bins < 2 || magnitude >= num_magnitude_bins {
            let problem =
                format!("RandAugment's magnitude {magnitude} is not one of {num_magnitude_bins} (from 0, 2 or more)");
            return Err(Error::Argument(problem));
        }
        (self.magnitude, self.bins) = (magnitude, num_magnitude_bins);
        Ok(self)
    }

    /// Nearest (the default) or bilinear.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The colour of what has no pixel; 0 by default.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }

    /// The next change of an image of this height and width, and how strong.
    pub fn params(&self, height: usize, width: usize, draws: &mut Draws) -> (Op, f64) {
        let translate = [width, height].map(|n| 150.0 / 331.0 * n as f64);
        let strength = Strength { shear: 0.3, translate, rotate: 30.0, colour: 0.9, bits: 4.0 };
        let op = OPS[draws.below(OPS.len())];
        let magnitude = strength.magnitude(op, self.magnitude, self.bins);
        (op, if op.signed() && draws.chance(0.5) { -magnitude } else { magnitude })
    }
}

/// Two changes of strength 9 of 31.
impl Default for RandAugment {
    fn default() -> Self {
        RandAugment { ops: 2, magnitude: 9, bins: 31, interpolation: Interpolation::Nearest, fill: Fill::default() }
    }
}

impl Transform for RandAugment {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        for _ in 0..self.ops {
            let (op, magnitude) = self.params(image.height(), image.width(), draws);
            op.apply(image, magnitude, self.interpolation, self.fill)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RandAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RandAugment(num_ops={}, magnitude={}, ", self.ops, self.magnitude)?;
        write!(f, "num_magnitude_bins={}, interpolation={}, fill={})", self.bins, self.interpolation, self.fill)
    }
}
