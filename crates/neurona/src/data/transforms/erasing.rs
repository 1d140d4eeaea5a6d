//! Rectangles wiped out at random.

use super::arguments::{positive, probability, range};
use super::{Fill, Transform};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::f64::consts::TAU;
use std::fmt;
use std::ops::Range;

/// What an erased pixel becomes.
#[derive(Clone, Copy)]
enum Value {
    Fill(Fill),
    Random,
}

/// Erases a rectangle of random area, shape and place. It goes after `ToTensor`, and usually after `Normalize`.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{RandomErasing, ToTensor, Transform}};
/// let mut image = Image::new(8, 8, 1, vec![255; 64])?;
/// let draws = &mut Draws::new(1, 2, 3);
/// ToTensor.apply(&mut image, draws)?;
/// RandomErasing::new(1.0)?.scale(0.2, 0.3)?.apply(&mut image, draws)?;
/// assert!(image.to_planes().contains(&0.0));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RandomErasing {
    p: f64,
    scale: [f64; 2],
    ratio: [f64; 2],
    value: Value,
}

impl RandomErasing {
    /// With this probability: from 2 % to 33 % of the area, from 3:10 to 33:10, with 0.
    pub fn new(p: f64) -> Result<Self> {
        let p = probability("RandomErasing", p)?;
        Ok(RandomErasing { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Value::Fill(Fill::default()) })
    }

    /// From and to which share of the area.
    pub fn scale(mut self, low: f64, high: f64) -> Result<Self> {
        self.scale = range("the scale of RandomErasing", [low, high], [0.0, 1.0])?;
        Ok(self)
    }

    /// From and to which height for a width of 1.
    pub fn ratio(mut self, low: f64, high: f64) -> Result<Self> {
        self.ratio = positive("the ratio of RandomErasing", [low, high])?;
        Ok(self)
    }

    /// With this value, or one for each channel.
    pub fn value(mut self, value: impl Into<Fill>) -> Self {
        self.value = Value::Fill(value.into());
        self
    }

    /// With a normally distributed value for each pixel and channel.
    pub fn random_values(mut self) -> Self {
        self.value = Value::Random;
        self
    }

    /// Top, left, height and width of the rectangle in an image of this height and width, if one fits.
    pub fn params(&self, height: usize, width: usize, draws: &mut Draws) -> Option<[usize; 4]> {
        let area = height as f64 * width as f64;
        let logs = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let target = area * draws.uniform(self.scale[0], self.scale[1]);
            let ratio = draws.uniform(logs[0], logs[1]).exp();
            let h = (target * ratio).sqrt().round_ties_even() as usize;
            let w = (target / ratio).sqrt().round_ties_even() as usize;
            if h < height && w < width {
                let top = draws.below(height - h + 1);
                return Some([top, draws.below(width - w + 1), h, w]);
            }
        }
        None
    }
}

impl Default for RandomErasing {
    fn default() -> Self {
        let value = Value::Fill(Fill::default());
        RandomErasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value }
    }
}

impl Transform for RandomErasing {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        if image.is_bytes() {
            return Err(Error::Argument("RandomErasing goes after ToTensor".into()));
        }
        if !draws.chance(self.p) {
            return Ok(());
        }
        if let Some([top, left, h, w]) = self.params(image.height(), image.width(), draws) {
            let random = |_: usize| normal(draws) as f32;
            match self.value {
                Value::Random => erase(image, top..top + h, left..left + w, random),
                Value::Fill(Fill(values)) => erase(image, top..top + h, left..left + w, |c| values[c]),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RandomErasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p, [s0, s1], [r0, r1]) = (self.p, self.scale, self.ratio);
        let value = match self.value {
            Value::Fill(fill) => fill.to_string(),
            Value::Random => "random".into(),
        };
        write!(f, "RandomErasing(p={p}, scale=({s0}, {s1}), ratio=({r0}, {r1}), value={value}, inplace=True)")
    }
}

/// Sets squares about random points to 0; what reaches over the edge is cut off (DeVries and Taylor, 2017).
#[derive(Clone, Copy)]
pub struct Cutout {
    length: usize,
    holes: usize,
}

impl Cutout {
    /// One square of this side.
    pub fn new(length: usize) -> Result<Self> {
        if length == 0 {
            return Err(Error::Argument("Cutout needs a side of 1 or more".into()));
        }
        Ok(Cutout { length, holes: 1 })
    }

    /// Several squares.
    pub fn holes(mut self, holes: usize) -> Self {
        self.holes = holes;
        self
    }
}

impl Transform for Cutout {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        for _ in 0..self.holes {
            let mut side = |n: usize| {
                let centre = draws.below(n);
                let start = centre.saturating_sub(self.length / 2);
                start..(centre + self.length - self.length / 2).min(n).max(start)
            };
            let rows = side(image.height());
            let columns = side(image.width());
            if image.is_bytes() {
                let (width, channels) = (image.width(), image.channels());
                let bytes = image.bytes_mut("Cutout")?;
                for y in rows {
                    bytes[(y * width + columns.start) * channels..(y * width + columns.end) * channels].fill(0);
                }
            } else {
                erase(image, rows, columns, |_| 0.0);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Cutout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cutout(length={}, holes={})", self.length, self.holes)
    }
}

/// Gives the pixels of a rectangle new values, by channel.
fn erase(image: &mut Image, rows: Range<usize>, columns: Range<usize>, mut value: impl FnMut(usize) -> f32) {
    let [width, _, channels] = image.size();
    let floats = image.floats_mut();
    for y in rows {
        let row = &mut floats[(y * width + columns.start) * channels..(y * width + columns.end) * channels];
        row.iter_mut().enumerate().for_each(|(i, v)| *v = value(i % channels));
    }
}

/// A normally distributed number, after Box and Muller.
fn normal(draws: &mut Draws) -> f64 {
    // 1 - unit() is never 0.
    let radius = (-2.0 * (1.0 - draws.unit()).ln()).sqrt();
    radius * (TAU * draws.unit()).cos()
}
