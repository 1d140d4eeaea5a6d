//! Smoothing.

use crate::data::Image;
use crate::data::transforms::PaddingMode;
use crate::{Error, Result};

/// Averages over a square of an odd number of pixels with Gaussian weights of deviation `sigma`; the image is
/// mirrored at its edges.
pub fn gaussian_blur(image: &mut Image, kernel_size: usize, sigma: f64) -> Result<()> {
    if kernel_size.is_multiple_of(2) || kernel_size > 1001 || !(sigma.is_finite() && sigma > 0.0) {
        let problem = format!("a blur needs an odd kernel size and a sigma above 0, not {kernel_size} and {sigma}");
        return Err(Error::Argument(problem));
    }
    image.bytes_mut("GaussianBlur")?;
    let half = (kernel_size / 2) as isize;
    let weights: Vec<f32> = (-half..=half).map(|x| (-0.5 * (x as f64 / sigma).powi(2)).exp() as f32).collect();
    let sum: f32 = weights.iter().sum();
    let weights: Vec<f32> = weights.iter().map(|w| w / sum).collect();
    let size @ [width, height, channels] = image.size();
    let place = |at: isize, n: usize| PaddingMode::Reflect.place(at, n).unwrap_or(0);
    let row = width * channels;
    let mut smoothed = vec![0.0; row * height];
    image.remake(size, |from, to| {
        // Along columns first: whole rows are added, which the compiler makes vectors of.
        for (y, out) in smoothed.chunks_exact_mut(row.max(1)).enumerate() {
            for (offset, weight) in (-half..=half).zip(&weights) {
                let source = &from[place(y as isize + offset, height) * row..][..row];
                out.iter_mut().zip(source).for_each(|(sum, v)| *sum += weight * f32::from(*v));
            }
        }
        for (out, source) in to.chunks_exact_mut(row.max(1)).zip(smoothed.chunks_exact(row.max(1))) {
            for x in 0..width {
                for c in 0..channels {
                    let taps = (-half..=half).zip(&weights);
                    let value = |(o, w): (isize, &f32)| w * source[place(x as isize + o, width) * channels + c];
                    out[x * channels + c] = taps.map(value).sum::<f32>().round_ties_even() as u8;
                }
            }
        }
    });
    Ok(())
}
