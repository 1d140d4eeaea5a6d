//! What transforms are told: sizes, borders, fills, ranges; each said as torchvision lets one say it.

use crate::data::decode::MAX_PIXELS;
use crate::{Error, Result};
use std::fmt;

/// A size: one number, or height and width.
///
/// ```
/// use neurona::data::transforms::Size;
/// assert_eq!(Size::from(32).to_string(), "32");
/// assert_eq!(Size::from((24, 32)).to_string(), "(24, 32)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A square's side; for [`Resize`](super::Resize) the shorter side.
    Side(usize),
    /// Height and width.
    Exact(usize, usize),
}

impl Size {
    /// The same, where no side is 0 and the whole is not more than is ever read.
    pub(super) fn checked(self, name: &str) -> Result<Self> {
        let [height, width] = self.pair();
        if height == 0 || width == 0 || height.saturating_mul(width) > MAX_PIXELS {
            return Err(Error::Argument(format!("{name} cannot make images of size {self}")));
        }
        Ok(self)
    }

    /// Height and width, a square from one number.
    pub(super) fn pair(self) -> [usize; 2] {
        match self {
            Size::Side(side) => [side, side],
            Size::Exact(height, width) => [height, width],
        }
    }
}

impl From<usize> for Size {
    fn from(side: usize) -> Self {
        Size::Side(side)
    }
}

impl From<(usize, usize)> for Size {
    fn from((height, width): (usize, usize)) -> Self {
        Size::Exact(height, width)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Side(side) => write!(f, "{side}"),
            Size::Exact(height, width) => write!(f, "({height}, {width})"),
        }
    }
}

/// How many pixels to add at each side: from one number, from a pair (left and right, top and bottom), or from four
/// (left, top, right, bottom).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) right: usize,
    pub(super) bottom: usize,
}

impl From<usize> for Padding {
    fn from(all: usize) -> Self {
        Padding { left: all, top: all, right: all, bottom: all }
    }
}

impl From<(usize, usize)> for Padding {
    fn from((x, y): (usize, usize)) -> Self {
        Padding { left: x, top: y, right: x, bottom: y }
    }
}

impl From<[usize; 4]> for Padding {
    fn from([left, top, right, bottom]: [usize; 4]) -> Self {
        Padding { left, top, right, bottom }
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {}, {})", self.left, self.top, self.right, self.bottom)
    }
}

/// What stands outside an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// A fill value.
    #[default]
    Constant,
    /// The pixel at the edge.
    Edge,
    /// The image mirrored, without the edge again.
    Reflect,
    /// The image mirrored, with the edge again.
    Symmetric,
}

impl PaddingMode {
    /// Which of `n` pixels stands at a place that may be outside; none where the fill does.
    #[inline]
    pub(super) fn place(self, at: isize, n: usize) -> Option<usize> {
        let n = n as isize;
        if n == 0 || (0..n).contains(&at) {
            return (n != 0).then_some(at as usize);
        }
        let at = match self {
            PaddingMode::Constant => return None,
            PaddingMode::Edge => at.clamp(0, n - 1),
            PaddingMode::Reflect => {
                let period = (2 * (n - 1)).max(1);
                let at = at.rem_euclid(period);
                at.min(period - at).min(n - 1)
            }
            PaddingMode::Symmetric => {
                let at = at.rem_euclid(2 * n);
                at.min(2 * n - 1 - at)
            }
        };
        Some(at as usize)
    }
}

impl fmt::Display for PaddingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PaddingMode::Constant => "constant",
            PaddingMode::Edge => "edge",
            PaddingMode::Reflect => "reflect",
            PaddingMode::Symmetric => "symmetric",
        })
    }
}

/// How a value between pixels is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// Straight lines.
    Bilinear,
    /// Cubic curves; for resizing only.
    Bicubic,
}

impl fmt::Display for Interpolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interpolation::Nearest => "nearest",
            Interpolation::Bilinear => "bilinear",
            Interpolation::Bicubic => "bicubic",
        })
    }
}

/// The colour of what has no pixel: one value, or one for each channel. For bytes from 0 to 255; after `ToTensor` in
/// the units of the image then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fill(pub(super) [f32; 3]);

impl Fill {
    pub(super) fn bytes(self) -> [u8; 3] {
        self.0.map(|v| v as u8)
    }
}

impl From<f32> for Fill {
    fn from(value: f32) -> Self {
        Fill([value; 3])
    }
}

impl From<u8> for Fill {
    fn from(value: u8) -> Self {
        Fill([f32::from(value); 3])
    }
}

impl From<[f32; 3]> for Fill {
    fn from(values: [f32; 3]) -> Self {
        Fill(values)
    }
}

impl From<[u8; 3]> for Fill {
    fn from(values: [u8; 3]) -> Self {
        Fill(values.map(f32::from))
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [r, g, b] = self.0;
        if r == g && g == b { write!(f, "{r}") } else { write!(f, "({r}, {g}, {b})") }
    }
}

/// A range: one number for as far below as above, or low and high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// This far to either side of the value that changes nothing.
    Around(f64),
    /// From low to high.
    Between(f64, f64),
}

impl Spread {
    /// A factor about 1: what 1 ± 1.5 would have below 0 is cut off, as in torchvision.
    pub(super) fn factor(self, what: &str) -> Result<[f64; 2]> {
        let spread = match self {
            Spread::Around(far) if far > 1.0 => Spread::Between(0.0, 1.0 + far),
            other => other,
        };
        spread.resolve(what, 1.0, [0.0, f64::INFINITY])
    }

    /// Low and high about a middle and within bounds.
    pub(super) fn resolve(self, what: &str, middle: f64, bounds: [f64; 2]) -> Result<[f64; 2]> {
        match self {
            Spread::Around(far) if !(far >= 0.0 && far.is_finite()) => {
                Err(Error::Argument(format!("{what} is 0 or more, not {far}")))
            }
            Spread::Around(far) => range(what, [middle - far, middle + far], bounds),
            Spread::Between(low, high) => range(what, [low, high], bounds),
        }
    }
}

impl From<f64> for Spread {
    fn from(far: f64) -> Self {
        Spread::Around(far)
    }
}

impl From<(f64, f64)> for Spread {
    fn from((low, high): (f64, f64)) -> Self {
        Spread::Between(low, high)
    }
}

/// A probability.
pub(super) fn probability(name: &str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(Error::Argument(format!("the probability of {name} is between 0 and 1, not {p}")))
}

/// From low to high, both within these bounds.
pub(super) fn range(what: &str, [low, high]: [f64; 2], [least, most]: [f64; 2]) -> Result<[f64; 2]> {
    if least <= low && low <= high && high <= most && (high - low).is_finite() {
        return Ok([low, high]);
    }
    let bounds = match (least.is_finite(), most.is_finite()) {
        (true, true) => format!(" between {least} and {most}"),
        (true, false) => format!(" of {least} or more"),
        _ => String::new(),
    };
    Err(Error::Argument(format!("{what} is a range from low to high{bounds}, not {low} to {high}")))
}

/// A range that must be above 0, for ratios and scales.
pub(super) fn positive(what: &str, range @ [low, high]: [f64; 2]) -> Result<[f64; 2]> {
    if 0.0 < low && low <= high && high.is_finite() {
        return Ok(range);
    }
    Err(Error::Argument(format!("{what} is a range from low to high above 0, not {low} to {high}")))
}
