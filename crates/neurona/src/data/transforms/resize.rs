//! Resizing.

use super::{Interpolation, Size, Transform, functional};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

/// To a size: one number for the shorter side (the other follows in proportion), or height and width. Bilinear with
/// antialias unless told otherwise.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{Resize, Transform}};
/// let mut image = Image::new(40, 20, 1, vec![9; 800])?;
/// Resize::new(10)?.apply(&mut image, &mut Draws::new(0, 0, 0))?;
/// assert_eq!((image.width(), image.height()), (20, 10));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Resize {
    size: Size,
    interpolation: Interpolation,
    max_size: Option<usize>,
}

impl Resize {
    /// To this size.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        let size = size.into().checked("Resize")?;
        Ok(Resize { size, interpolation: Interpolation::Bilinear, max_size: None })
    }

    /// With another way to find values between pixels.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The longer side gets no longer than this, though the shorter one be shorter for it.
    pub fn max_size(mut self, max_size: usize) -> Result<Self> {
        match self.size {
            Size::Side(side) if side < max_size => self.max_size = Some(max_size),
            size => {
                let problem = format!("max_size is for one number smaller than it, not for {size} and {max_size}");
                return Err(Error::Argument(problem));
            }
        }
        Ok(self)
    }

    /// Height and width that an image of this height and width gets.
    fn target(&self, height: usize, width: usize) -> [usize; 2] {
        let Size::Side(side) = self.size else { return self.size.pair() };
        let (short, long) = (height.min(width).max(1), height.max(width));
        let scaled = |side: usize| (side as f64 * long as f64 / short as f64) as usize;
        let (mut new_short, mut new_long) = (side, scaled(side));
        if let Some(most) = self.max_size.filter(|most| new_long > *most) {
            new_short = (most as f64 * new_short as f64 / new_long as f64) as usize;
            new_long = most;
        }
        let (new_short, new_long) = (new_short.max(1), new_long.max(1));
        if width <= height { [new_long, new_short] } else { [new_short, new_long] }
    }
}

impl Transform for Resize {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        let [height, width] = self.target(image.height(), image.width());
        if [height, width] == [image.height(), image.width()] {
            return Ok(());
        }
        functional::resize(image, height, width, self.interpolation)
    }
}

impl fmt::Debug for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_size = self.max_size.map_or("None".to_string(), |n| n.to_string());
        let (size, how) = (self.size, self.interpolation);
        write!(f, "Resize(size={size}, interpolation={how}, max_size={max_size}, antialias=True)")
    }
}
