//! Turning, moving, scaling and shearing at random.

use super::arguments::{positive, range};
use super::{Fill, Interpolation, Spread, Transform, functional};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

const ANY: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

/// Refuses what only resizing has.
fn two_kinds(name: &str, interpolation: Interpolation) -> Result<Interpolation> {
    match interpolation {
        Interpolation::Bicubic => Err(Error::Argument(format!("{name} is nearest or bilinear, not bicubic"))),
        other => Ok(other),
    }
}

/// Turns by an angle in degrees from a range.
///
/// ```
/// use neurona::data::transforms::RandomRotation;
/// let turn = RandomRotation::new(15.0)?;
/// assert_eq!(format!("{turn:?}"), "RandomRotation(degrees=[-15.0, 15.0], interpolation=nearest, expand=False, fill=0)");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RandomRotation {
    degrees: [f64; 2],
    interpolation: Interpolation,
    expand: bool,
    center: Option<[f64; 2]>,
    fill: Fill,
}

impl RandomRotation {
    /// By `-d` to `d`, or from low to high.
    pub fn new(degrees: impl Into<Spread>) -> Result<Self> {
        let degrees = degrees.into().resolve("the angle of RandomRotation", 0.0, ANY)?;
        let interpolation = Interpolation::Nearest;
        Ok(RandomRotation { degrees, interpolation, expand: false, center: None, fill: Fill::default() })
    }

    /// Nearest (the default) or bilinear.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Result<Self> {
        self.interpolation = two_kinds("RandomRotation", interpolation)?;
        Ok(self)
    }

    /// The result is as large as the turned image.
    pub fn expand(mut self, expand: bool) -> Self {
        self.expand = expand;
        self
    }

    /// About this point (x, y) and not the middle.
    pub fn center(mut self, x: f64, y: f64) -> Self {
        self.center = Some([x, y]);
        self
    }

    /// The colour of the corners; 0 by default.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }
}

impl Transform for RandomRotation {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let angle = draws.uniform(self.degrees[0], self.degrees[1]);
        functional::rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)
    }
}

impl fmt::Debug for RandomRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expand = if self.expand { "True" } else { "False" };
        write!(f, "RandomRotation(degrees={:?}, interpolation={}, ", self.degrees, self.interpolation)?;
        write!(f, "expand={expand}")?;
        if let Some(center) = self.center {
            write!(f, ", center={center:?}")?;
        }
        write!(f, ", fill={})", self.fill)
    }
}

/// Turns, moves, scales and shears about the middle.
///
/// ```
/// use neurona::data::transforms::RandomAffine;
/// let change = RandomAffine::new(10.0)?.translate(0.1, 0.1)?.scale(0.9, 1.1)?.shear(5.0)?;
/// assert!(RandomAffine::new(-1.0).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RandomAffine {
    degrees: [f64; 2],
    translate: [f64; 2],
    scale: [f64; 2],
    shear: [[f64; 2]; 2],
    interpolation: Interpolation,
    fill: Fill,
    center: Option<[f64; 2]>,
}

/// What one image gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineParams {
    /// In degrees.
    pub angle: f64,
    /// In pixels: x and y.
    pub translate: [f64; 2],
    /// Larger or smaller.
    pub scale: f64,
    /// In degrees: x and y.
    pub shear: [f64; 2],
}

impl RandomAffine {
    /// Turns by `-d` to `d` degrees, or from low to high, and does nothing else yet.
    pub fn new(degrees: impl Into<Spread>) -> Result<Self> {
        Ok(RandomAffine {
            degrees: degrees.into().resolve("the angle of RandomAffine", 0.0, ANY)?,
            translate: [0.0; 2],
            scale: [1.0; 2],
            shear: [[0.0; 2]; 2],
            interpolation: Interpolation::Nearest,
            fill: Fill::default(),
            center: None,
        })
    }

    /// Moves to either side by up to these shares of the width and of the height.
    pub fn translate(mut self, x: f64, y: f64) -> Result<Self> {
        for share in [x, y] {
            range("the share of RandomAffine's translate", [share, share], [0.0, 1.0])?;
        }
        self.translate = [x, y];
        Ok(self)
    }

    /// Scales by a factor from low to high.
    pub fn scale(mut self, low: f64, high: f64) -> Result<Self> {
        self.scale = positive("the scale of RandomAffine", [low, high])?;
        Ok(self)
    }

    /// Shears along x by an angle in degrees.
    pub fn shear(mut self, degrees: impl Into<Spread>) -> Result<Self> {
        self.shear[0] = degrees.into().resolve("the shear of RandomAffine", 0.0, ANY)?;
        Ok(self)
    }

    /// Shears along y by an angle in degrees.
    pub fn shear_y(mut self, degrees: impl Into<Spread>) -> Result<Self> {
        self.shear[1] = degrees.into().resolve("the shear of RandomAffine", 0.0, ANY)?;
        Ok(self)
    }

    /// Nearest (the default) or bilinear.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Result<Self> {
        self.interpolation = two_kinds("RandomAffine", interpolation)?;
        Ok(self)
    }

    /// The colour of what has no pixel; 0 by default.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }

    /// About this point (x, y) and not the middle.
    pub fn center(mut self, x: f64, y: f64) -> Self {
        self.center = Some([x, y]);
        self
    }

    /// What an image of this height and width gets.
    pub fn params(&self, height: usize, width: usize, draws: &mut Draws) -> AffineParams {
        let [low, high] = self.degrees;
        let angle = draws.uniform(low, high);
        let translate = [self.translate[0] * width as f64, self.translate[1] * height as f64]
            .map(|far| draws.uniform(-far, far).round_ties_even());
        let scale = draws.uniform(self.scale[0], self.scale[1]);
        let shear = self.shear.map(|[low, high]| draws.uniform(low, high));
        AffineParams { angle, translate, scale, shear }
    }
}

impl Transform for RandomAffine {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let AffineParams { angle, translate, scale, shear } = self.params(image.height(), image.width(), draws);
        functional::affine(image, angle, translate, scale, shear, self.interpolation, self.fill, self.center)
    }
}

impl fmt::Debug for RandomAffine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RandomAffine(degrees={:?}, translate={:?}, ", self.degrees, self.translate)?;
        write!(f, "scale={:?}, shear={:?}, ", self.scale, self.shear)?;
        write!(f, "interpolation={}, fill={})", self.interpolation, self.fill)
    }
}
