//! Image files: jpg, png, webp, bmp and gif, known by their content and not by their name.

mod jpeg;
mod others;

use super::Image;
use super::transforms::functional::{grayscale, hflip, transpose, vflip};
use crate::{Error, Result};
use image::metadata::Orientation;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most pixels an image may have: where Pillow, too, stops reading. As red, green and blue they are 512 MiB.
pub const MAX_PIXELS: usize = 178_956_970;

/// The most bytes an image file may have.
const MAX_FILE: u64 = 1 << 30;

/// A decoder's answer; the text says what is wrong with the file.
type Decoded<T> = Result<T, String>;

impl Image {
    /// Reads an image file as red, green and blue: what `ImageFolder` of torchvision gives, and turned as its EXIF
    /// says. Grey is spread to three channels, alpha is left out, of 16 bits the upper 8 are kept.
    ///
    /// ```no_run
    /// let image = neurona::data::Image::open("cat.jpg")?;
    /// println!("{} x {}", image.width(), image.height());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let mut image = Image::default();
        Image::open_into(path, &mut image)?;
        Ok(image)
    }

    /// The same with one channel, by the weights of ITU-R 601.
    pub fn open_grey(path: impl AsRef<Path>) -> Result<Self> {
        let mut image = Image::open(path)?;
        grayscale(&mut image, 1)?;
        Ok(image)
    }

    /// The same as [`open`](Image::open), into memory that is used again. After an error the image has some size
    /// and some bytes.
    pub fn open_into(path: impl AsRef<Path>, image: &mut Image) -> Result<()> {
        let path = path.as_ref();
        let mut file = image.take();
        let read = read(path, &mut file).and_then(|()| decode(&file, image).map_err(|problem| format(path, problem)));
        image.give(file);
        read
    }

    /// Decodes an image file that is in memory; `name` is what messages call it.
    ///
    /// ```
    /// let error = neurona::data::Image::decode(b"not an image", "cat.jpg").unwrap_err();
    /// assert!(error.to_string().starts_with("cat.jpg: not a jpg, png, webp, bmp or gif image"));
    /// ```
    pub fn decode(bytes: &[u8], name: impl Into<PathBuf>) -> Result<Self> {
        let mut image = Image::default();
        decode(bytes, &mut image).map_err(|problem| format(&name.into(), problem))?;
        Ok(image)
    }
}

fn format(path: &Path, problem: String) -> Error {
    Error::Format { path: path.into(), problem }
}

/// Reads a whole file, if it is not too long for an image.
fn read(path: &Path, into: &mut Vec<u8>) -> Result<()> {
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    into.clear();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(into)).map_err(failed)?;
    if into.len() as u64 > MAX_FILE {
        return Err(format(path, format!("is longer than the {} MiB an image file may have", MAX_FILE >> 20)));
    }
    Ok(())
}

fn decode(file: &[u8], image: &mut Image) -> Decoded<()> {
    if file.is_empty() {
        return Err("the file is empty".into());
    }
    let orientation = match image::guess_format(file) {
        Ok(image::ImageFormat::Jpeg) => jpeg::decode(file, image)?,
        Ok(kind) if others::KINDS.contains(&kind) => others::decode(file, kind, image)?,
        _ => {
            let head = String::from_utf8_lossy(&file[..file.len().min(16)]).escape_debug().to_string();
            return Err(format!("not a jpg, png, webp, bmp or gif image (it begins with \"{head}\")"));
        }
    };
    turn(image, orientation);
    Ok(())
}

/// Refuses sizes before memory is asked for: too many pixels, or more than a file of this length can hold when a
/// byte of it stands for at most `per_byte` pixels.
fn check_size(width: usize, height: usize, file: &[u8], per_byte: usize) -> Decoded<()> {
    let pixels = width.saturating_mul(height);
    if pixels == 0 {
        return Err(format!("an image of {width} x {height} pixels"));
    }
    if pixels > MAX_PIXELS {
        return Err(format!("an image of {width} x {height} pixels; at most {MAX_PIXELS} pixels are read"));
    }
    if pixels / per_byte > file.len() {
        let bytes = file.len();
        return Err(format!("claims {width} x {height} pixels, more than a file of {bytes} bytes can hold"));
    }
    Ok(())
}

/// Turns an image from how it is stored to how it is to be seen.
fn turn(image: &mut Image, orientation: Orientation) {
    use Orientation::*;
    if matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH) {
        transpose(image);
    }
    if matches!(orientation, Rotate90 | Rotate180 | FlipHorizontal | Rotate270FlipH) {
        hflip(image);
    }
    if matches!(orientation, Rotate270 | Rotate180 | FlipVertical | Rotate270FlipH) {
        vflip(image);
    }
}
