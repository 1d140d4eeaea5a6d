//! The formats that are read through the `image` crate.

use super::{Decoded, Image, MAX_PIXELS, check_size};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

pub(super) const KINDS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Gif];

/// Decodes to red, green and blue; of an animation the first picture.
pub(super) fn decode(file: &[u8], kind: ImageFormat, image: &mut Image) -> Decoded<Orientation> {
    let name = kind.extensions_str().first().copied().unwrap_or("image");
    let damaged = |e| format!("the {name} image is damaged: {e}");
    let mut reader = ImageReader::with_format(Cursor::new(file), kind);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(8 * MAX_PIXELS as u64);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height, file, pixels_a_byte(kind))?;
    // Orientation is advice: a picture with a broken note is still a picture.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let colour = decoder.color_type();
    if colour == ColorType::Rgb8 {
        let read = image.refill([width, height, 3], |bytes| Ok(decoder.read_image(bytes)));
        read.map_err(|e| e.to_string())?.map_err(damaged)?;
        return Ok(orientation);
    }
    let mut raw = vec![0; width * height * usize::from(colour.bytes_per_pixel())];
    decoder.read_image(&mut raw).map_err(damaged)?;
    let spread = image.refill([width, height, 3], |rgb| Ok(to_rgb(&raw, colour, rgb)));
    spread.map_err(|e| e.to_string())??;
    Ok(orientation)
}

/// How many pixels a byte of the file can stand for at most.
fn pixels_a_byte(kind: ImageFormat) -> usize {
    match kind {
        // Deflate shrinks to a 1032nd at most; a byte then holds eight pixels of one bit.
        ImageFormat::Png => 8 * 1032,
        // A code of twelve bits stands for at most 4096 pixels.
        ImageFormat::Gif => 4096,
        // Runs of 255 take two bytes; jumps over what stays black, which may be longer, are hardly ever written.
        ImageFormat::Bmp => 4096,
        // WebP's codes may have no bits at all.
        _ => usize::MAX,
    }
}

/// Grey is spread, alpha is left out (as Pillow's `convert("RGB")` does), of 16 bits the upper 8 are kept.
fn to_rgb(raw: &[u8], colour: ColorType, rgb: &mut [u8]) -> Decoded<()> {
    let sample = match colour {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => 1,
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => 2,
        other => return Err(format!("pixels of kind {other:?} are not read")),
    };
    let upper = if cfg!(target_endian = "little") { sample - 1 } else { 0 };
    let (green, blue) = if colour.has_color() { (sample, 2 * sample) } else { (0, 0) };
    let pixels = raw.chunks_exact(usize::from(colour.bytes_per_pixel()));
    for (out, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *out = [pixel[upper], pixel[green + upper], pixel[blue + upper]];
    }
    Ok(())
}
