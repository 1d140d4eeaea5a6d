//! Rotating and shearing, in Pillow's arithmetic.

use super::window::{hflip, transpose, vflip};
use crate::data::Image;
use crate::data::decode::MAX_PIXELS;
use crate::data::transforms::{Fill, Interpolation};
use crate::{Error, Result};

/// Where an output pixel comes from: `x = m[0] * x' + m[1] * y' + m[2]`, `y = m[3] * x' + m[4] * y' + m[5]`.
type Matrix = [f64; 6];

/// Turns counter-clockwise by an angle in degrees, about `center` (x, y) or the middle. With `expand` the result is
/// large enough for all of the image.
///
/// ```
/// use neurona::data::{Image, transforms::{Interpolation, functional::rotate}};
/// let mut image = Image::new(2, 2, 1, vec![1, 2, 3, 4])?;
/// rotate(&mut image, 90.0, Interpolation::Nearest, false, None, 0u8)?;
/// assert_eq!(image.bytes(), [2, 4, 1, 3]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn rotate(
    image: &mut Image,
    angle: f64,
    interpolation: Interpolation,
    expand: bool,
    center: Option<[f64; 2]>,
    fill: impl Into<Fill>,
) -> Result<()> {
    image.bytes_mut("rotation")?;
    let [width, height, _] = image.size();
    let angle = angle.rem_euclid(360.0);
    if center.is_none() {
        // Quarter turns move pixels and compute nothing.
        let quarter = expand || width == height;
        match angle {
            0.0 => return Ok(()),
            180.0 => {
                hflip(image);
                vflip(image);
                return Ok(());
            }
            90.0 | 270.0 if quarter => {
                transpose(image);
                if angle == 90.0 {
                    vflip(image)
                } else {
                    hflip(image)
                }
                return Ok(());
            }
            _ => {}
        }
    }
    let [cx, cy] = center.unwrap_or([width as f64 / 2.0, height as f64 / 2.0]);
    let (sin, cos) = (-angle.to_radians()).sin_cos();
    let (sin, cos) = (round_15(sin), round_15(cos));
    let mut matrix = [cos, sin, 0.0, -sin, cos, 0.0];
    let [x, y] = at(&matrix, -cx, -cy);
    (matrix[2], matrix[5]) = (x + cx, y + cy);
    let mut size = [width, height];
    if expand {
        let (w, h) = (width as f64, height as f64);
        let corners = [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(x, y)| at(&matrix, x, y));
        let extent = |axis: usize| {
            let values = corners.map(|corner| corner[axis]);
            values.into_iter().fold(f64::MIN, f64::max).ceil() - values.into_iter().fold(f64::MAX, f64::min).floor()
        };
        let (new_width, new_height) = (extent(0), extent(1));
        let [x, y] = at(&matrix, -(new_width - w) / 2.0, -(new_height - h) / 2.0);
        (matrix[2], matrix[5]) = (x, y);
        size = [new_width as usize, new_height as usize];
    }
    warp(image, size, &matrix, interpolation, fill.into())
}

/// Turns by an angle (clockwise, in degrees), moves by pixels (x, y), scales and shears (x, y, in degrees) about
/// `center` (x, y) or the middle.
pub fn affine(
    image: &mut Image,
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    interpolation: Interpolation,
    fill: impl Into<Fill>,
    center: Option<[f64; 2]>,
) -> Result<()> {
    let [width, height, _] = image.size();
    let center = center.unwrap_or([width as f64 * 0.5, height as f64 * 0.5]);
    let matrix = inverse_matrix(center, angle, translate, scale, shear);
    warp(image, [width, height], &matrix, interpolation, fill.into())
}

/// torchvision's `_get_inverse_affine_matrix`, whose derivation is in its comment.
fn inverse_matrix([cx, cy]: [f64; 2], angle: f64, [tx, ty]: [f64; 2], scale: f64, shear: [f64; 2]) -> Matrix {
    let rotation = angle.to_radians();
    let [sx, sy] = shear.map(f64::to_radians);
    let a = (rotation - sy).cos() / sy.cos();
    let b = -(rotation - sy).cos() * sx.tan() / sy.cos() - rotation.sin();
    let c = (rotation - sy).sin() / sy.cos();
    let d = -(rotation - sy).sin() * sx.tan() / sy.cos() + rotation.cos();
    let mut m = [d, -b, 0.0, -c, a, 0.0].map(|v| v / scale);
    let [x, y] = at(&m, -cx - tx, -cy - ty);
    (m[2], m[5]) = (x + cx, y + cy);
    m
}

fn at(m: &Matrix, x: f64, y: f64) -> [f64; 2] {
    [m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]]
}

/// Pillow rounds sines and cosines so that right angles are exact.
fn round_15(v: f64) -> f64 {
    (v * 1e15).round_ties_even() / 1e15
}

fn warp(image: &mut Image, [width, height]: [usize; 2], m: &Matrix, how: Interpolation, fill: Fill) -> Result<()> {
    image.bytes_mut("an affine change")?;
    if m.iter().any(|v| !v.is_finite()) || width.saturating_mul(height) > MAX_PIXELS {
        return Err(Error::Argument("an affine change needs finite numbers and a scale above 0".into()));
    }
    let size = image.size();
    match (size[2], how) {
        (_, Interpolation::Bicubic) => {
            return Err(Error::Argument("rotation and affine changes are nearest or bilinear, not bicubic".into()));
        }
        (3, how) => fill_with::<3>(image, [width, height], fill, |from, to, fill| {
            warp_pixels(from, size, to, width, m, how, fill);
        }),
        (_, how) => fill_with::<1>(image, [width, height], fill, |from, to, fill| {
            warp_pixels(from, size, to, width, m, how, fill);
        }),
    }
    Ok(())
}

/// Lends the bytes as pixels of `C` channels.
fn fill_with<const C: usize>(
    image: &mut Image,
    [width, height]: [usize; 2],
    fill: Fill,
    make: impl FnOnce(&[[u8; C]], &mut [[u8; C]], [u8; C]),
) {
    let mut colour = [0; C];
    colour.copy_from_slice(&fill.bytes()[..C]);
    image.remake([width, height, C], |from, to| make(from.as_chunks().0, to.as_chunks_mut().0, colour));
}

fn warp_pixels<const C: usize>(
    from: &[[u8; C]],
    size: [usize; 3],
    to: &mut [[u8; C]],
    width: usize,
    m: &Matrix,
    how: Interpolation,
    fill: [u8; C],
) {
    if width == 0 {
        return;
    }
    match how {
        Interpolation::Bilinear => {
            for (y, row) in to.chunks_exact_mut(width).enumerate() {
                for (x, pixel) in row.iter_mut().enumerate() {
                    let place = at(m, x as f64 + 0.5, y as f64 + 0.5);
                    *pixel = bilinear(from, size, place).unwrap_or(fill);
                }
            }
        }
        _ => nearest(from, size, to, width, m, fill),
    }
}

/// Nearest pixels with 16 bits after the point, as Pillow counts them, unless the image is only scaled and moved.
fn nearest<const C: usize>(
    from: &[[u8; C]],
    [old_width, old_height, _]: [usize; 3],
    to: &mut [[u8; C]],
    width: usize,
    m: &Matrix,
    fill: [u8; C],
) {
    let pixel = |x: i64, y: i64| {
        let inside = (0..old_width as i64).contains(&x) && (0..old_height as i64).contains(&y);
        if inside { from[y as usize * old_width + x as usize] } else { fill }
    };
    if m[1] == 0.0 && m[3] == 0.0 {
        let whole = |v: f64| if v < 0.0 { -1 } else { v as i64 };
        let mut y = m[5] + m[4] * 0.5;
        for row in to.chunks_exact_mut(width) {
            let mut x = m[2] + m[0] * 0.5;
            for out in row {
                *out = pixel(whole(x), whole(y));
                x += m[0];
            }
            y += m[4];
        }
        return;
    }
    let fixed = |v: f64| (v * 65536.0 + 0.5).floor() as i64;
    let [dx, dy] = [[fixed(m[0]), fixed(m[3])], [fixed(m[1]), fixed(m[4])]];
    let mut start = [fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), fixed(m[5] + m[3] * 0.5 + m[4] * 0.5)];
    for row in to.chunks_exact_mut(width) {
        let [mut x, mut y] = start;
        for out in row {
            *out = pixel(x >> 16, y >> 16);
            (x, y) = (x.wrapping_add(dx[0]), y.wrapping_add(dx[1]));
        }
        start = [start[0].wrapping_add(dy[0]), start[1].wrapping_add(dy[1])];
    }
}

/// The value at a place, cut off to a byte; none outside.
fn bilinear<const C: usize>(from: &[[u8; C]], [width, height, _]: [usize; 3], [x, y]: [f64; 2]) -> Option<[u8; C]> {
    if !(0.0..width as f64).contains(&x) || !(0.0..height as f64).contains(&y) {
        return None;
    }
    let (x, y) = (x - 0.5, y - 0.5);
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let clip = |at: f64, n: usize| (at.max(0.0) as usize).min(n - 1);
    let (x0, x1) = (clip(left, width), clip(left + 1.0, width));
    let (upper, lower) = (&from[clip(top, height) * width..], &from[clip(top + 1.0, height) * width..]);
    let between = |a: f64, b: f64, part: f64| a + (b - a) * part;
    Some(std::array::from_fn(|c| {
        let row = |row: &[[u8; C]]| between(f64::from(row[x0][c]), f64::from(row[x1][c]), dx);
        between(row(upper), row(lower), dy) as u8
    }))
}
