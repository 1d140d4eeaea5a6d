//! Moving pixels without changing them: crops, borders, mirrors.

use crate::data::Image;
use crate::data::decode::MAX_PIXELS;
use crate::data::transforms::{Fill, Padding, PaddingMode, Size};
use crate::data::values::{Pixels, Values};
use crate::{Error, Result};

/// A part of the plane that an image lies in; it may reach over the image's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data::transforms) struct Window {
    pub(in crate::data::transforms) left: isize,
    pub(in crate::data::transforms) top: isize,
    pub(in crate::data::transforms) width: usize,
    pub(in crate::data::transforms) height: usize,
}

/// The part of this height and width from this corner on; what is outside of the image becomes 0.
///
/// ```
/// use neurona::data::{Image, transforms::functional::crop};
/// let mut image = Image::new(3, 1, 1, vec![1, 2, 3])?;
/// crop(&mut image, 0, 1, 1, 3)?;
/// assert_eq!(image.bytes(), [2, 3, 0]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn crop(image: &mut Image, top: isize, left: isize, height: usize, width: usize) -> Result<()> {
    take(image, Window { left, top, width, height }, PaddingMode::Constant, Fill::default())
}

/// With a border.
///
/// ```
/// use neurona::data::{Image, transforms::{PaddingMode, functional::pad}};
/// let mut image = Image::new(3, 1, 1, vec![1, 2, 3])?;
/// pad(&mut image, [2, 0, 1, 0], 0u8, PaddingMode::Reflect)?;
/// assert_eq!(image.bytes(), [3, 2, 1, 2, 3, 2]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn pad(image: &mut Image, padding: impl Into<Padding>, fill: impl Into<Fill>, mode: PaddingMode) -> Result<()> {
    let Padding { left, top, right, bottom } = padding.into();
    let width = image.width().saturating_add(left).saturating_add(right);
    let height = image.height().saturating_add(top).saturating_add(bottom);
    let corner = |n: usize| -isize::try_from(n).unwrap_or(isize::MAX);
    take(image, Window { left: corner(left), top: corner(top), width, height }, mode, fill.into())
}

/// The middle; an image that is smaller gets a border of 0.
pub fn center_crop(image: &mut Image, size: impl Into<Size>) -> Result<()> {
    let [height, width] = size.into().pair();
    // A border is split with the odd pixel at the end, a crop with Python's rounding to even.
    let corner = |have: usize, want: usize| match have.cmp(&want) {
        std::cmp::Ordering::Less => -(((want - have) / 2) as isize),
        _ => ((have - want) as f64 / 2.0).round_ties_even() as isize,
    };
    crop(image, corner(image.height(), height), corner(image.width(), width), height, width)
}

/// The window's pixels; what is outside of the image comes from the mode and the fill.
pub(in crate::data::transforms) fn take(
    image: &mut Image,
    window: Window,
    mode: PaddingMode,
    fill: Fill,
) -> Result<()> {
    let Window { left, top, width, height } = window;
    if width == 0 || height == 0 || width.saturating_mul(height) > MAX_PIXELS {
        return Err(Error::Argument(format!("there are no images of {height} x {width} pixels to crop or pad to")));
    }
    let size @ [old_width, old_height, channels] = image.size();
    let inside = left >= 0
        && top >= 0
        && width.checked_add_signed(left).is_some_and(|right| right <= old_width)
        && height.checked_add_signed(top).is_some_and(|bottom| bottom <= old_height);
    // The fill is in the image's units; only bytes that stand for themselves can take it as a byte.
    let filled = !inside && mode == PaddingMode::Constant;
    if matches!(image.values(), Values::Floats) || (filled && !image.is_bytes()) {
        image.remake_floats([width, height], |from, to| copy(from, size, to, window, mode, fill.0));
    } else {
        image.remake([width, height, channels], |from, to| copy(from, size, to, window, mode, fill.bytes()));
    }
    Ok(())
}

fn copy<T: Copy>(from: &[T], size: [usize; 3], to: &mut [T], window: Window, mode: PaddingMode, fill: [T; 3]) {
    let [old_width, old_height, channels] = size;
    let Window { left, top, width, .. } = window;
    let fill = &fill[..channels];
    let column = |x: isize| x.saturating_sub(left).clamp(0, width as isize) as usize;
    let inside = column(0)..column(old_width as isize).max(column(0));
    for (y, row) in to.chunks_exact_mut(width * channels).enumerate() {
        let Some(source) = mode.place(top.saturating_add(y as isize), old_height) else {
            row.chunks_exact_mut(channels).for_each(|pixel| pixel.copy_from_slice(fill));
            continue;
        };
        let source = &from[source * old_width * channels..][..old_width * channels];
        if !inside.is_empty() {
            let start = (inside.start as isize + left) as usize * channels;
            let values = inside.len() * channels;
            row[inside.start * channels..][..values].copy_from_slice(&source[start..][..values]);
        }
        for x in (0..inside.start).chain(inside.end..width) {
            let pixel = match mode.place(left.saturating_add(x as isize), old_width) {
                Some(x) => &source[x * channels..][..channels],
                None => fill,
            };
            row[x * channels..][..channels].copy_from_slice(pixel);
        }
    }
}

/// Left becomes right.
pub fn hflip(image: &mut Image) {
    fn mirror<T>(values: &mut [T], width: usize, channels: usize) {
        match channels {
            3 => values.as_chunks_mut::<3>().0.chunks_exact_mut(width).for_each(<[_]>::reverse),
            _ => values.chunks_exact_mut(width).for_each(<[_]>::reverse),
        }
    }
    let [width, _, channels] = image.size();
    if width == 0 {
        return;
    }
    match image.pixels_mut() {
        Pixels::Bytes(bytes) => mirror(bytes, width, channels),
        Pixels::Floats(floats) => mirror(floats, width, channels),
    }
}

/// Top becomes bottom.
pub fn vflip(image: &mut Image) {
    fn mirror<T>(values: &mut [T], row: usize) {
        let half = values.len() / row / 2 * row;
        let (upper, lower) = values.split_at_mut(half);
        upper.chunks_exact_mut(row).zip(lower.rchunks_exact_mut(row)).for_each(|(a, b)| a.swap_with_slice(b));
    }
    let [width, _, channels] = image.size();
    if width == 0 {
        return;
    }
    match image.pixels_mut() {
        Pixels::Bytes(bytes) => mirror(bytes, width * channels),
        Pixels::Floats(floats) => mirror(floats, width * channels),
    }
}

/// Rows become columns.
pub fn transpose(image: &mut Image) {
    fn swap<T: Copy>(from: &[T], [width, height, channels]: [usize; 3], to: &mut [T]) {
        for (x, column) in to.chunks_exact_mut((height * channels).max(1)).enumerate() {
            for (y, pixel) in column.chunks_exact_mut(channels).enumerate() {
                pixel.copy_from_slice(&from[(y * width + x) * channels..][..channels]);
            }
        }
    }
    let size @ [width, height, channels] = image.size();
    match image.values() {
        Values::Floats => image.remake_floats([height, width], |from, to| swap(from, size, to)),
        _ => image.remake([height, width, channels], |from, to| swap(from, size, to)),
    }
}
