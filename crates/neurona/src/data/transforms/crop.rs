//! Crops of a given size, and borders.

use super::functional::{self, Window};
use super::{Fill, Padding, PaddingMode, Size, Transform};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

/// The middle of an image; a smaller image gets a border of 0.
#[derive(Clone, Copy)]
pub struct CenterCrop {
    size: Size,
}

impl CenterCrop {
    /// Of this size.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        Ok(CenterCrop { size: size.into().checked("CenterCrop")? })
    }
}

impl Transform for CenterCrop {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        functional::center_crop(image, self.size)
    }
}

impl fmt::Debug for CenterCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.size.pair();
        write!(f, "CenterCrop(size=({height}, {width}))")
    }
}

/// A border.
#[derive(Clone, Copy)]
pub struct Pad {
    padding: Padding,
    fill: Fill,
    mode: PaddingMode,
}

impl Pad {
    /// Of this many pixels, filled with 0.
    pub fn new(padding: impl Into<Padding>) -> Self {
        Pad { padding: padding.into(), fill: Fill::default(), mode: PaddingMode::Constant }
    }

    /// Of another colour.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Made in another way.
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Transform for Pad {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        functional::pad(image, self.padding, self.fill, self.mode)
    }
}

impl fmt::Debug for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pad(padding={}, fill={}, padding_mode={})", self.padding, self.fill, self.mode)
    }
}

/// A part at a random place, after a border was added where asked.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{PaddingMode, RandomCrop, Transform}};
/// let crop = RandomCrop::new(32)?.padding(4).padding_mode(PaddingMode::Reflect);
/// let mut image = Image::new(32, 32, 3, vec![7; 3072])?;
/// crop.apply(&mut image, &mut Draws::new(1, 2, 3))?;
/// assert_eq!(image.bytes(), vec![7; 3072]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RandomCrop {
    size: Size,
    padding: Padding,
    pad_if_needed: bool,
    fill: Fill,
    mode: PaddingMode,
}

impl RandomCrop {
    /// Of this size, without a border.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        let size = size.into().checked("RandomCrop")?;
        let (padding, fill, mode) = (Padding::default(), Fill::default(), PaddingMode::Constant);
        Ok(RandomCrop { size, padding, pad_if_needed: false, fill, mode })
    }

    /// With a border first.
    pub fn padding(mut self, padding: impl Into<Padding>) -> Self {
        self.padding = padding.into();
        self
    }

    /// An image that is too small gets a border; else it is an error.
    pub fn pad_if_needed(mut self, pad: bool) -> Self {
        self.pad_if_needed = pad;
        self
    }

    /// The colour of the border; 0 by default.
    pub fn fill(mut self, fill: impl Into<Fill>) -> Self {
        self.fill = fill.into();
        self
    }

    /// How the border is made.
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Transform for RandomCrop {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let [height, width] = self.size.pair();
        let mut border = self.padding;
        let extent = |image: &Image, p: Padding| {
            let rows = image.height().saturating_add(p.top).saturating_add(p.bottom);
            [rows, image.width().saturating_add(p.left).saturating_add(p.right)]
        };
        let [mut rows, mut columns] = extent(image, border);
        if self.pad_if_needed && (rows < height || columns < width) {
            // A border of a border: the second mirrors the first, so the first must be there.
            functional::pad(image, border, self.fill, self.mode)?;
            let more = |have: usize, want: usize| want.saturating_sub(have);
            border = Padding::from((more(columns, width), more(rows, height)));
            [rows, columns] = extent(image, border);
        }
        if rows < height || columns < width {
            let problem = format!(
                "RandomCrop({height}, {width}) needs an image of that size at least, not {rows} x {columns}; \
                 pad_if_needed adds a border"
            );
            return Err(Error::Argument(problem));
        }
        let corner = |border: usize, room: usize, draws: &mut Draws| draws.below(room + 1) as isize - border as isize;
        let top = corner(border.top, rows - height, draws);
        let left = corner(border.left, columns - width, draws);
        // The border is never made: the window reads over the edge.
        functional::take(image, Window { left, top, width, height }, self.mode, self.fill)
    }
}

impl fmt::Debug for RandomCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.size.pair();
        write!(f, "RandomCrop(size=({height}, {width}), padding={})", self.padding)
    }
}
