//! Colours changed at random.

use super::functional::{adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation};
use super::{Spread, Transform};
use crate::Result;
use crate::data::{Draws, Image};
use std::fmt;

/// Changes brightness, contrast, saturation and hue, in a random order.
///
/// ```
/// use neurona::data::transforms::ColorJitter;
/// let jitter = ColorJitter::new().brightness(0.4)?.contrast(0.4)?.saturation((0.5, 1.5))?.hue(0.1)?;
/// assert!(jitter.hue(0.6).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy, Default)]
pub struct ColorJitter {
    brightness: Option<[f64; 2]>,
    contrast: Option<[f64; 2]>,
    saturation: Option<[f64; 2]>,
    hue: Option<[f64; 2]>,
}

impl ColorJitter {
    /// That changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A factor from `1 - b` to `1 + b`, or from low to high.
    pub fn brightness(mut self, factor: impl Into<Spread>) -> Result<Self> {
        self.brightness = Some(factor.into().factor("the brightness of ColorJitter")?);
        Ok(self)
    }

    /// A factor from `1 - c` to `1 + c`, or from low to high.
    pub fn contrast(mut self, factor: impl Into<Spread>) -> Result<Self> {
        self.contrast = Some(factor.into().factor("the contrast of ColorJitter")?);
        Ok(self)
    }

    /// A factor from `1 - s` to `1 + s`, or from low to high.
    pub fn saturation(mut self, factor: impl Into<Spread>) -> Result<Self> {
        self.saturation = Some(factor.into().factor("the saturation of ColorJitter")?);
        Ok(self)
    }

    /// A part of the circle from `-h` to `h`, or from low to high, within -0.5 and 0.5.
    pub fn hue(mut self, part: impl Into<Spread>) -> Result<Self> {
        self.hue = Some(part.into().resolve("the hue of ColorJitter", 0.0, [-0.5, 0.5])?);
        Ok(self)
    }
}

impl Transform for ColorJitter {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        type Change = fn(&mut Image, f64) -> Result<()>;
        let mut changes: [(Option<[f64; 2]>, Change); 4] = [
            (self.brightness, adjust_brightness),
            (self.contrast, adjust_contrast),
            (self.saturation, adjust_saturation),
            (self.hue, adjust_hue),
        ];
        for last in (1..changes.len()).rev() {
            changes.swap(last, draws.below(last + 1));
        }
        for (range, change) in changes {
            if let Some([low, high]) = range {
                change(image, draws.uniform(low, high))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ColorJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |range: Option<[f64; 2]>| range.map_or("None".into(), |[low, high]| format!("({low}, {high})"));
        let [b, c, s, h] = [self.brightness, self.contrast, self.saturation, self.hue].map(text);
        write!(f, "ColorJitter(brightness={b}, contrast={c}, saturation={s}, hue={h})")
    }
}
