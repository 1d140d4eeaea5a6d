//! An image in memory.

use super::values::{Pixels, Tables, UNIT, Values};
use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Bytes from the top left, row by row, the channels of a pixel side by side: what decoders give and screens show.
///
/// [`ToTensor`](super::transforms::ToTensor) and [`Normalize`](super::transforms::Normalize) are remembered and done
/// when the values are [written out](Image::write_to), in one pass; only what needs the numbers earlier, such as an
/// erasure after them, makes floats of the image.
///
/// ```
/// use neurona::data::Image;
/// let image = Image::new(2, 1, 3, vec![255, 0, 0, 0, 0, 255])?;
/// assert_eq!(image.pixel(1, 0), [0, 0, 255]);
/// let mut planes = [0.0; 6];
/// image.write_to(&mut planes)?;
/// assert_eq!(planes, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Image {
    width: usize,
    height: usize,
    channels: usize,
    bytes: Vec<u8>,
    floats: Vec<f32>,
    values: Values,
    /// Where the next result is made before the two change places.
    spare_bytes: Vec<u8>,
    spare_floats: Vec<f32>,
}

impl Image {
    /// An image of `height` rows of `width` pixels of `channels` bytes: 1 for grey, 3 for red, green and blue.
    pub fn new(width: usize, height: usize, channels: usize, bytes: Vec<u8>) -> Result<Self> {
        let need = width.checked_mul(height).and_then(|n| n.checked_mul(channels));
        if need != Some(bytes.len()) || !matches!(channels, 1 | 3) {
            let got = bytes.len();
            let problem =
                format!("an image of {width} x {height} pixels, {channels} channels, cannot have {got} bytes");
            return Err(Error::Argument(problem));
        }
        Ok(Image { width, height, channels, bytes, ..Image::default() })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Values of a pixel: 1 for grey, 3 for red, green and blue.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// All bytes, row by row, channels side by side. Empty once the image has become floats.
    pub fn bytes(&self) -> &[u8] {
        if matches!(self.values, Values::Floats) { &[] } else { &self.bytes }
    }

    /// The bytes of one pixel; it must be inside, and the image not yet floats.
    pub fn pixel(&self, x: usize, y: usize) -> &[u8] {
        &self.bytes()[(y * self.width + x) * self.channels..][..self.channels]
    }

    /// Whether these are still bytes: no `ToTensor` has been asked for.
    pub fn is_bytes(&self) -> bool {
        matches!(self.values, Values::Bytes)
    }

    /// Gives the image another size and the bytes that `fill` writes, in the memory it has: a loader reads one
    /// image after the other without allocating. What was there before is not cleared.
    pub fn refill<T>(
        &mut self,
        [width, height, channels]: [usize; 3],
        fill: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        self.bytes.resize(width * height * channels, 0);
        (self.width, self.height, self.channels) = (width, height, channels);
        self.values = Values::Bytes;
        fill(&mut self.bytes)
    }

    /// Writes the values as a network takes them: plane by plane `[c, h, w]`, from 0 to 1 unless the image was
    /// normalised.
    pub fn write_to(&self, out: &mut [f32]) -> Result<()> {
        let [width, height, channels] = self.size();
        if out.len() != width * height * channels {
            let problem = format!("{channels} x {height} x {width} values do not fit {} places", out.len());
            return Err(Error::Argument(problem));
        }
        match &self.values {
            Values::Bytes | Values::Unit => UNIT.write(&self.bytes, channels, out),
            Values::Normalised(tables) => tables.write(&self.bytes, channels, out),
            Values::Floats => {
                for (channel, plane) in out.chunks_exact_mut((width * height).max(1)).enumerate() {
                    let values = self.floats.iter().skip(channel).step_by(channels);
                    plane.iter_mut().zip(values).for_each(|(out, v)| *out = *v);
                }
            }
        }
        Ok(())
    }

    /// Writes the bytes plane by plane, `[c, h, w]`; they must not have become numbers from 0 to 1 yet.
    pub fn write_bytes_to(&self, out: &mut [u8]) -> Result<()> {
        let [width, height, channels] = self.size();
        if !self.is_bytes() {
            let problem = "the image is no bytes any more: leave ToTensor and what follows it out of the transforms";
            return Err(Error::Argument(problem.into()));
        }
        if out.len() != width * height * channels {
            let problem = format!("{channels} x {height} x {width} bytes do not fit {} places", out.len());
            return Err(Error::Argument(problem));
        }
        for (channel, plane) in out.chunks_exact_mut((width * height).max(1)).enumerate() {
            let values = self.bytes.iter().skip(channel).step_by(channels);
            plane.iter_mut().zip(values).for_each(|(out, v)| *out = *v);
        }
        Ok(())
    }

    /// The values as a network takes them, `[c, h, w]`.
    pub fn to_planes(&self) -> Vec<f32> {
        let mut planes = vec![0.0; self.width * self.height * self.channels];
        // The length is right by construction.
        let _ = self.write_to(&mut planes);
        planes
    }

    /// Width, height, channels.
    pub(crate) fn size(&self) -> [usize; 3] {
        [self.width, self.height, self.channels]
    }

    /// What the values mean.
    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// From here on the values go from 0 to 1.
    pub(crate) fn become_unit(&mut self) {
        if self.is_bytes() {
            self.values = Values::Unit;
        }
    }

    /// From here on the values are those of these tables.
    pub(crate) fn become_normalised(&mut self, tables: &Arc<Tables>) {
        self.values = Values::Normalised(tables.clone());
    }

    /// The values as floats that can be changed, channels side by side.
    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        let tables = match &self.values {
            Values::Bytes | Values::Unit => Some(&*UNIT),
            Values::Normalised(tables) => Some(&**tables),
            Values::Floats => None,
        };
        if let Some(tables) = tables {
            tables.spread(&self.bytes, self.channels, &mut self.floats);
            self.values = Values::Floats;
        }
        &mut self.floats
    }

    /// The memory, for what moves pixels and does not change them.
    pub(crate) fn pixels_mut(&mut self) -> Pixels<'_> {
        match self.values {
            Values::Floats => Pixels::Floats(&mut self.floats),
            _ => Pixels::Bytes(&mut self.bytes),
        }
    }

    /// The bytes of an image that is not normalised yet, for a transform of this name.
    pub(crate) fn bytes_mut(&mut self, transform: &str) -> Result<&mut [u8]> {
        match self.values {
            Values::Bytes => Ok(&mut self.bytes),
            _ => Err(Error::Argument(format!("{transform} works on bytes: put it before ToTensor"))),
        }
    }

    /// Replaces the bytes by those that `make` writes into a buffer of this size; what the values mean stays.
    pub(crate) fn remake(&mut self, [width, height, channels]: [usize; 3], make: impl FnOnce(&[u8], &mut [u8])) {
        self.spare_bytes.resize(width * height * channels, 0);
        make(&self.bytes, &mut self.spare_bytes);
        std::mem::swap(&mut self.bytes, &mut self.spare_bytes);
        (self.width, self.height, self.channels) = (width, height, channels);
    }

    /// The same for floats.
    pub(crate) fn remake_floats(&mut self, [width, height]: [usize; 2], make: impl FnOnce(&[f32], &mut [f32])) {
        self.floats_mut();
        self.spare_floats.resize(width * height * self.channels, 0.0);
        make(&self.floats, &mut self.spare_floats);
        std::mem::swap(&mut self.floats, &mut self.spare_floats);
        (self.width, self.height) = (width, height);
    }

    /// Memory of any length, to read a file into; given back with [`give`](Image::give).
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare_bytes)
    }

    /// Keeps memory for the next time.
    pub(crate) fn give(&mut self, memory: Vec<u8>) {
        self.spare_bytes = memory;
    }
}

/// Equal when they show the same: size and values, not memory.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.values, &other.values) {
            (Values::Bytes, Values::Bytes) | (Values::Unit, Values::Unit) => self.bytes == other.bytes,
            (Values::Bytes, _) | (_, Values::Bytes) => false,
            _ => self.to_planes() == other.to_planes(),
        };
        self.size() == other.size() && same
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_bytes() { "bytes" } else { "floats" };
        write!(f, "Image({} x {} x {}, {kind})", self.width, self.height, self.channels)
    }
}
