//! An image in memory.

use crate::{Error, Result};

/// Bytes from the top left, row by row, the channels of a pixel side by side: what decoders give and screens show.
///
/// ```
/// use neurona::data::Image;
/// let image = Image::new(2, 1, 3, vec![255, 0, 0, 0, 0, 255])?;
/// assert_eq!(image.pixel(1, 0), [0, 0, 255]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    channels: usize,
    bytes: Vec<u8>,
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
        Ok(Image { width, height, channels, bytes })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes of a pixel: 1 for grey, 3 for red, green and blue.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// All bytes, row by row, channels side by side.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of one pixel; it must be inside.
    pub fn pixel(&self, x: usize, y: usize) -> &[u8] {
        &self.bytes[(y * self.width + x) * self.channels..][..self.channels]
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
        fill(&mut self.bytes)
    }
}

impl Image {
    /// To be replaced.
    pub fn write_to(&self, out: &mut [f32]) -> Result<()> {
        let plane = self.width * self.height;
        for (c, out) in out.chunks_exact_mut(plane.max(1)).enumerate() {
            for (o, p) in out.iter_mut().zip(self.bytes.chunks_exact(self.channels)) {
                *o = p[c] as f32 / 255.0;
            }
        }
        Ok(())
    }

    /// To be replaced.
    pub fn open_into(path: impl AsRef<std::path::Path>, _image: &mut Image) -> Result<()> {
        Err(Error::Format { path: path.as_ref().into(), problem: "not read yet".to_string() })
    }
}
