//! Brightness, contrast, saturation, hue and grey, as Pillow computes them.

use crate::data::Image;
use crate::data::values::Values;
use crate::{Error, Result};

/// From black (0) over the image (1) to brighter.
///
/// ```
/// use neurona::data::{Image, transforms::functional::adjust_brightness};
/// let mut image = Image::new(2, 1, 1, vec![100, 200])?;
/// adjust_brightness(&mut image, 1.5)?;
/// assert_eq!(image.bytes(), [150, 255]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn adjust_brightness(image: &mut Image, factor: f64) -> Result<()> {
    let factor = check(factor)?;
    let table = table(|v| blend(0, v, factor));
    image.bytes_mut("adjust_brightness")?.iter_mut().for_each(|v| *v = table[*v as usize]);
    Ok(())
}

/// From the image's mean grey (0) over the image (1) to more contrast.
pub fn adjust_contrast(image: &mut Image, factor: f64) -> Result<()> {
    let factor = check(factor)?;
    let channels = image.channels();
    let bytes = image.bytes_mut("adjust_contrast")?;
    let sum: u64 = match channels {
        3 => bytes.as_chunks().0.iter().map(|pixel| u64::from(luminance(pixel))).sum(),
        _ => bytes.iter().map(|v| u64::from(*v)).sum(),
    };
    let pixels = (bytes.len() / channels.max(1)).max(1);
    let mean = (sum as f64 / pixels as f64 + 0.5) as u8;
    let table = table(|v| blend(mean, v, factor));
    bytes.iter_mut().for_each(|v| *v = table[*v as usize]);
    Ok(())
}

/// From grey (0) over the image (1) to more colour.
pub fn adjust_saturation(image: &mut Image, factor: f64) -> Result<()> {
    let factor = check(factor)?;
    let channels = image.channels();
    let bytes = image.bytes_mut("adjust_saturation")?;
    if channels == 3 {
        for pixel in bytes.as_chunks_mut::<3>().0 {
            let grey = luminance(pixel);
            *pixel = pixel.map(|v| blend(grey, v, factor));
        }
    }
    Ok(())
}

/// Turns the circle of colours by a part of it, from -0.5 to 0.5.
pub fn adjust_hue(image: &mut Image, part: f64) -> Result<()> {
    if !(-0.5..=0.5).contains(&part) {
        return Err(Error::Argument(format!("a hue is turned by -0.5 to 0.5, not by {part}")));
    }
    let channels = image.channels();
    let bytes = image.bytes_mut("adjust_hue")?;
    let turn = (part * 255.0) as i32 as u8;
    if channels == 3 {
        for pixel in bytes.as_chunks_mut::<3>().0 {
            let [hue, saturation, value] = to_hsv(*pixel);
            *pixel = to_rgb([hue.wrapping_add(turn), saturation, value]);
        }
    }
    Ok(())
}

/// Without colour, in one channel or three.
pub fn grayscale(image: &mut Image, channels: usize) -> Result<()> {
    if !matches!(channels, 1 | 3) {
        return Err(Error::Argument(format!("grey images have 1 or 3 channels, not {channels}")));
    }
    if matches!(image.values(), Values::Floats | Values::Normalised(_)) {
        return Err(Error::Argument("Grayscale goes before Normalize".into()));
    }
    let [width, height, before] = image.size();
    image.remake([width, height, channels], |from, to| {
        let grey = |pixel: &[u8]| pixel.as_array::<3>().map_or(pixel[0], luminance);
        for (out, pixel) in to.chunks_exact_mut(channels).zip(from.chunks_exact(before.max(1))) {
            out.fill(grey(pixel));
        }
    });
    Ok(())
}

/// Pillow's grey of a colour: ITU-R 601 with 16 bits after the point.
#[inline]
fn luminance(&[r, g, b]: &[u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn check(factor: f64) -> Result<f32> {
    if factor.is_finite() && factor >= 0.0 {
        return Ok(factor as f32);
    }
    Err(Error::Argument(format!("a factor of colour is 0 or more, not {factor}")))
}

/// What each byte becomes.
pub(super) fn table(f: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|v| f(v as u8))
}

/// From `a` (at 0) to `b` (at 1) and beyond, cut off to a byte.
#[inline]
pub(super) fn blend(a: u8, b: u8, part: f32) -> u8 {
    (f32::from(a) + part * (f32::from(b) - f32::from(a))) as u8
}

fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let spread = f32::from(most - least);
    let [rc, gc, bc] = [r, g, b].map(|v| f32::from(most - v) / spread);
    // Where Pillow's C mixes floats and doubles, so does this.
    let hue = if r == most {
        bc - gc
    } else if g == most {
        (2.0 + f64::from(rc) - f64::from(bc)) as f32
    } else {
        (4.0 + f64::from(gc) - f64::from(rc)) as f32
    };
    let hue = ((f64::from(hue) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = spread / f32::from(most);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let at = f64::from(hue) * 6.0 / 255.0;
    let sector = at.floor();
    let part = f64::from((at - sector) as f32);
    let saturation = f64::from((f64::from(saturation) / 255.0) as f32);
    let level = |share: f64| (f64::from(value) * (1.0 - share)).round() as u8;
    let (low, falling, rising) = (level(saturation), level(saturation * part), level(saturation * (1.0 - part)));
    match sector as u8 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}
