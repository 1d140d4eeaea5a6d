//! JPEG.

use super::{Decoded, Image, check_size};
use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Every block of 64 pixels takes at least one bit.
const PIXELS_A_BYTE: usize = 8 * 64;

/// Decodes to red, green and blue; CMYK is taken as Adobe writes it (inverted), as Pillow does.
pub(super) fn decode(file: &[u8], image: &mut Image) -> Decoded<Orientation> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let damaged = |e| format!("the jpeg image is damaged: {e:?}");
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or("the jpeg image has no size")?;
    check_size(width, height, file, PIXELS_A_BYTE)?;
    if !ends(file) {
        return Err("the jpeg image is truncated: its end is missing".into());
    }
    if decoder.output_buffer_size() != Some(width * height * 3) {
        return Err("the jpeg image has colours that are not read".into());
    }
    let decoded = image.refill([width, height, 3], |bytes| Ok(decoder.decode_into(bytes)));
    decoded.map_err(|e| e.to_string())?.map_err(damaged)?;
    Ok(decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif)).unwrap_or(Orientation::NoTransforms))
}

/// Whether the image has its end marker: the decoder would paint what is missing grey. An EXIF thumbnail has an
/// end of its own, so only what follows the first scan's header counts.
fn ends(file: &[u8]) -> bool {
    const SCAN: u8 = 0xDA;
    let mut at = 2;
    // Segments: FF, kind, length of two bytes (which counts itself).
    while let Some(&[mark, kind, high, low]) = file.get(at..at + 4) {
        if mark != 0xFF {
            // Stray bytes between segments: decoders skip them.
            at += 1;
        } else if kind == 0xFF || kind == 0 || (0xD0..=0xD8).contains(&kind) {
            at += if kind == 0xFF { 1 } else { 2 };
        } else {
            at += 2 + usize::from(u16::from_be_bytes([high, low]));
            if kind == SCAN {
                break;
            }
        }
    }
    file.get(at..).is_some_and(|scan| scan.windows(2).rev().any(|pair| pair == [0xFF, 0xD9]))
}
