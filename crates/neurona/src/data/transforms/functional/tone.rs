//! What RandAugment does to the values of pixels.

use super::colour::{blend, table};
use crate::data::Image;
use crate::{Error, Result};

/// Keeps the upper bits of every byte, from 0 to 8.
pub fn posterize(image: &mut Image, bits: u32) -> Result<()> {
    if bits > 8 {
        return Err(Error::Argument(format!("posterize keeps 0 to 8 bits, not {bits}")));
    }
    let mask = (0xFF00u32 >> bits) as u8;
    image.bytes_mut("posterize")?.iter_mut().for_each(|v| *v &= mask);
    Ok(())
}

/// Inverts what is not below the threshold.
///
/// ```
/// use neurona::data::{Image, transforms::functional::solarize};
/// let mut image = Image::new(2, 1, 1, vec![100, 200])?;
/// solarize(&mut image, 128.0)?;
/// assert_eq!(image.bytes(), [100, 55]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn solarize(image: &mut Image, threshold: f64) -> Result<()> {
    let table = table(|v| if f64::from(v) < threshold { v } else { 255 - v });
    image.bytes_mut("solarize")?.iter_mut().for_each(|v| *v = table[*v as usize]);
    Ok(())
}

/// Light becomes dark.
pub fn invert(image: &mut Image) -> Result<()> {
    image.bytes_mut("invert")?.iter_mut().for_each(|v| *v = 255 - *v);
    Ok(())
}

/// Stretches each channel from 0 to 255.
pub fn autocontrast(image: &mut Image) -> Result<()> {
    by_histogram(image, "autocontrast", |histogram| {
        let low = histogram.iter().position(|n| *n > 0)?;
        let high = histogram.iter().rposition(|n| *n > 0)?;
        let scale = 255.0 / (high.checked_sub(low).filter(|n| *n > 0)? as f64);
        let offset = -(low as f64) * scale;
        Some(table(|v| (f64::from(v) * scale + offset) as u8))
    })
}

/// Spreads each channel so that all levels are used alike.
pub fn equalize(image: &mut Image) -> Result<()> {
    by_histogram(image, "equalize", |histogram| {
        let last = histogram.iter().rfind(|n| **n > 0)?;
        let step = (histogram.iter().sum::<usize>() - last) / 255;
        if step == 0 {
            return None;
        }
        let mut below = step / 2;
        Some(histogram.map(|n| {
            let level = (below / step).min(255) as u8;
            below += n;
            level
        }))
    })
}

/// Puts each channel through the table that its histogram gives, if any.
fn by_histogram(image: &mut Image, name: &str, lookup: impl Fn([usize; 256]) -> Option<[u8; 256]>) -> Result<()> {
    let channels = image.channels();
    let bytes = image.bytes_mut(name)?;
    for channel in 0..channels {
        let mut histogram = [0; 256];
        bytes.iter().skip(channel).step_by(channels).for_each(|v| histogram[*v as usize] += 1);
        if let Some(table) = lookup(histogram) {
            bytes.iter_mut().skip(channel).step_by(channels).for_each(|v| *v = table[*v as usize]);
        }
    }
    Ok(())
}

/// From smoothed (0) over the image (1) to sharper.
pub fn adjust_sharpness(image: &mut Image, factor: f64) -> Result<()> {
    if !(factor.is_finite() && factor >= 0.0) {
        return Err(Error::Argument(format!("a factor of sharpness is 0 or more, not {factor}")));
    }
    image.bytes_mut("adjust_sharpness")?;
    let size @ [width, height, channels] = image.size();
    image.remake(size, |from, to| {
        to.copy_from_slice(from);
        // Pillow leaves the edge as it is.
        let row = width * channels;
        for y in 1..height.saturating_sub(1) {
            let [above, here, below] = [y - 1, y, y + 1].map(|y| &from[y * row..][..row]);
            let out = &mut to[y * row..][..row];
            for x in channels..row.saturating_sub(channels) {
                let around = |r: &[u8]| u32::from(r[x - channels]) + u32::from(r[x]) + u32::from(r[x + channels]);
                let sum = around(above) + around(here) + around(below) + 4 * u32::from(here[x]);
                let smooth = ((2 * sum + 13) / 26) as u8;
                out[x] = blend(smooth, here[x], factor as f32);
            }
        }
    });
    Ok(())
}
