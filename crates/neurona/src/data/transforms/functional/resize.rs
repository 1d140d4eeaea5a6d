//! Resizing as Pillow does it: shrinking averages over all that a pixel covers (antialias).

use super::resample::{BICUBIC, BILINEAR, resample};
use super::window::{self, Window};
use crate::data::Image;
use crate::data::decode::MAX_PIXELS;
use crate::data::transforms::Interpolation;
use crate::data::values::Values;
use crate::{Error, Result};

/// To this height and width.
///
/// ```
/// use neurona::data::{Image, transforms::{Interpolation, functional::resize}};
/// let mut image = Image::new(4, 1, 1, vec![0, 100, 200, 100])?;
/// resize(&mut image, 1, 2, Interpolation::Nearest)?;
/// assert_eq!(image.bytes(), [100, 100]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn resize(image: &mut Image, height: usize, width: usize, interpolation: Interpolation) -> Result<()> {
    let whole = Window { left: 0, top: 0, width: image.width(), height: image.height() };
    resize_window(image, whole, [height, width], interpolation)
}

/// A part of the image (from `top` and `left`, with a height and width), resized to a height and width.
pub fn resized_crop(
    image: &mut Image,
    [top, left, height, width]: [usize; 4],
    size: [usize; 2],
    interpolation: Interpolation,
) -> Result<()> {
    let fits = |from: usize, n: usize, all: usize| from.checked_add(n).is_some_and(|end| end <= all);
    if !fits(top, height, image.height()) || !fits(left, width, image.width()) {
        let (rows, columns) = (image.height(), image.width());
        let problem = format!("{height} x {width} from ({top}, {left}) on is not inside of {rows} x {columns} pixels");
        return Err(Error::Argument(problem));
    }
    resize_window(image, Window { left: left as isize, top: top as isize, width, height }, size, interpolation)
}

/// Resizes a window that lies inside of the image.
fn resize_window(image: &mut Image, from: Window, [height, width]: [usize; 2], how: Interpolation) -> Result<()> {
    let too_many = height.saturating_mul(width) > MAX_PIXELS;
    if height == 0 || width == 0 || too_many || from.width == 0 || from.height == 0 {
        let (rows, columns) = (from.height, from.width);
        return Err(Error::Argument(format!("cannot resize {rows} x {columns} pixels to {height} x {width}")));
    }
    if [from.height, from.width] == [height, width] {
        return window::take(image, from, Default::default(), Default::default());
    }
    if matches!(image.values(), Values::Floats) {
        let problem = "resizing works on bytes: put it before what changes values after ToTensor (such as erasing)";
        return Err(Error::Argument(problem.into()));
    }
    let old @ [_, _, channels] = image.size();
    image.remake([width, height, channels], |bytes, out| match how {
        Interpolation::Nearest => nearest(bytes, old, from, out, [width, height]),
        Interpolation::Bilinear => resample(bytes, old, from, out, [width, height], &BILINEAR),
        Interpolation::Bicubic => resample(bytes, old, from, out, [width, height], &BICUBIC),
    });
    Ok(())
}

fn nearest(
    bytes: &[u8],
    [old_width, _, channels]: [usize; 3],
    from: Window,
    out: &mut [u8],
    [width, height]: [usize; 2],
) {
    // Added up step by step as Pillow does: where a centre lies on an edge, rounding decides.
    let places = |old: usize, new: usize| {
        let step = old as f64 / new as f64;
        let next = move |at: &f64| Some(at + step);
        std::iter::successors(Some(step * 0.5), next).map(move |at| (at as usize).min(old - 1))
    };
    for (row, y) in out.chunks_exact_mut(width * channels).zip(places(from.height, height)) {
        let source = &bytes[((from.top as usize + y) * old_width + from.left as usize) * channels..];
        for (pixel, x) in row.chunks_exact_mut(channels).zip(places(from.width, width)) {
            pixel.copy_from_slice(&source[x * channels..][..channels]);
        }
    }
}
