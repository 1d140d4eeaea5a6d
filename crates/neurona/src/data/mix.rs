//! MixUp and CutMix: images of a batch mixed with each other, and their labels in the same measure.

use super::Draws;
use crate::{Error, Result};
use std::ops::Range;

/// Each image becomes a blend of itself and the image before it, as in `torchvision.transforms.v2.MixUp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixUp {
    alpha: f64,
}

/// A rectangle of each image is replaced by the same rectangle of the image before it, as in
/// `torchvision.transforms.v2.CutMix`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CutMix {
    alpha: f64,
}

pub(super) fn checked(alpha: f64) -> Result<f64> {
    match alpha.is_finite() && alpha > 0.0 {
        true => Ok(alpha),
        false => Err(Error::Argument(format!("alpha of MixUp and CutMix must be above 0, not {alpha}"))),
    }
}

impl MixUp {
    /// The share of an image itself is drawn from Beta(alpha, alpha): 0.2 leaves most nearly as they were, 1 makes
    /// every share as likely.
    pub fn new(alpha: f64) -> Result<Self> {
        Ok(MixUp { alpha: checked(alpha)? })
    }
}

impl CutMix {
    /// The share of an image that stays is drawn from Beta(alpha, alpha).
    pub fn new(alpha: f64) -> Result<Self> {
        Ok(CutMix { alpha: checked(alpha)? })
    }
}

/// What a loader does to whole batches: MixUp, CutMix, or one of several; always, or with some probability.
///
/// ```
/// use neurona::data::{CutMix, DataLoader, Mix, MixUp, embedded};
/// let mix = Mix::from(MixUp::new(0.2)?).or(CutMix::new(1.0)?).probability(0.5)?;
/// let loader = DataLoader::new(embedded::fashion_mnist()?.test, 50)?.mix(mix);
/// let batch = loader.into_iter().next().unwrap()?;
/// assert_eq!(batch.labels.shape().to_string(), "[50, 10]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    kinds: Vec<Kind>,
    probability: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Up(MixUp),
    Cut(CutMix),
}

impl From<MixUp> for Mix {
    fn from(mix: MixUp) -> Self {
        Mix { kinds: vec![Kind::Up(mix)], probability: 1.0 }
    }
}

impl From<CutMix> for Mix {
    fn from(mix: CutMix) -> Self {
        Mix { kinds: vec![Kind::Cut(mix)], probability: 1.0 }
    }
}

impl Mix {
    /// One of these for each batch, all as likely.
    pub fn or(mut self, other: impl Into<Mix>) -> Self {
        self.kinds.extend(other.into().kinds);
        self
    }

    /// The probability that a batch is mixed at all; 1 unless set.
    pub fn probability(mut self, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::Argument(format!("a probability is from 0 to 1, not {p}")));
        }
        self.probability = p;
        Ok(self)
    }

    /// Mixes `[n, c, h, w]` pixels and writes `[n, classes]` probabilities; every label is a class.
    pub(super) fn apply(
        &self,
        pixels: &mut [f32],
        [height, width]: [usize; 2],
        labels: &[i64],
        probabilities: &mut [f32],
        draws: &mut Draws,
    ) {
        let n = labels.len();
        if n == 0 {
            return;
        }
        let own = if draws.chance(self.probability) {
            match self.kinds[draws.below(self.kinds.len())] {
                Kind::Up(MixUp { alpha }) => {
                    let own = beta(alpha, draws);
                    blend(pixels, n, own as f32);
                    own
                }
                Kind::Cut(CutMix { alpha }) => {
                    let (rows, columns) = rectangle(beta(alpha, draws), height, width, draws);
                    replace(pixels, n, width, height, rows.clone(), columns.clone());
                    1.0 - (rows.len() * columns.len()) as f64 / (height * width).max(1) as f64
                }
            }
        } else {
            1.0
        };
        let classes = probabilities.len() / n;
        probabilities.fill(0.0);
        for (i, row) in probabilities.chunks_exact_mut(classes).enumerate() {
            row[labels[i] as usize] += own as f32;
            row[labels[(i + n - 1) % n] as usize] += (1.0 - own) as f32;
        }
    }
}

/// Each image keeps `own` of itself and takes the rest from the one before it; the first takes from the last.
fn blend(pixels: &mut [f32], n: usize, own: f32) {
    let len = pixels.len() / n;
    let other = 1.0 - own;
    let last = pixels[(n - 1) * len..].to_vec();
    // From the end, so that the image before is still whole.
    for i in (1..n).rev() {
        let (before, from_i) = pixels.split_at_mut(i * len);
        let before = &before[(i - 1) * len..];
        from_i[..len].iter_mut().zip(before).for_each(|(p, b)| *p = b * other + *p * own);
    }
    pixels[..len].iter_mut().zip(&last).for_each(|(p, b)| *p = b * other + *p * own);
}

/// The rectangle of each image becomes that of the one before it.
fn replace(pixels: &mut [f32], n: usize, width: usize, height: usize, rows: Range<usize>, columns: Range<usize>) {
    let len = pixels.len() / n;
    if columns.is_empty() {
        return;
    }
    let lines: Vec<usize> =
        (0..len / (width * height)).flat_map(|c| rows.clone().map(move |y| (c * height + y) * width)).collect();
    let mut held = vec![0.0; columns.len()];
    for line in lines {
        let line = line + columns.start;
        held.copy_from_slice(&pixels[(n - 1) * len + line..][..columns.len()]);
        for i in (1..n).rev() {
            let from = (i - 1) * len + line;
            pixels.copy_within(from..from + columns.len(), i * len + line);
        }
        pixels[line..][..columns.len()].copy_from_slice(&held);
    }
}

/// A rectangle around a random point whose sides are √(1 − own) of the image's, cut off at the edges.
fn rectangle(own: f64, height: usize, width: usize, draws: &mut Draws) -> (Range<usize>, Range<usize>) {
    let (x, y) = (draws.below(width), draws.below(height));
    let r = 0.5 * (1.0 - own).sqrt();
    let side = |centre: usize, size: usize| {
        let half = (r * size as f64) as usize;
        centre.saturating_sub(half)..(centre + half).min(size)
    };
    (side(y, height), side(x, width))
}

/// A number from Beta(alpha, alpha). By logarithms: for a small alpha both gammas may be too small for an f64.
pub(super) fn beta(alpha: f64, draws: &mut Draws) -> f64 {
    let (a, b) = (ln_gamma_draw(alpha, draws), ln_gamma_draw(alpha, draws));
    1.0 / (1.0 + (b - a).exp())
}

/// The logarithm of a number from Gamma(shape, 1), after Marsaglia and Tsang (2000).
fn ln_gamma_draw(shape: f64, draws: &mut Draws) -> f64 {
    // From 0 (excluded) to 1, whose logarithm is finite.
    let unit = |draws: &mut Draws| 1.0 - draws.unit();
    let boost = if shape < 1.0 { unit(draws).ln() / shape } else { 0.0 };
    let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let radius = (-2.0 * unit(draws).ln()).sqrt();
        let x = radius * (std::f64::consts::TAU * draws.unit()).cos();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && unit(draws).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d.ln() + v.ln() + boost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(alpha: f64) -> (f64, f64) {
        let draw = |i| beta(alpha, &mut Draws::new(1, 0, i));
        let values: Vec<f64> = (0..20_000).map(draw).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn beta_has_its_mean_and_variance() {
        for alpha in [0.05, 0.2, 1.0, 3.0] {
            let (mean, variance) = moments(alpha);
            let want = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.015, "{alpha}: {mean}");
            assert!((variance / want - 1.0).abs() < 0.04, "{alpha}: {variance} for {want}");
        }
        let tiny = beta(1e-6, &mut Draws::new(0, 0, 0));
        assert!((0.0..=1.0).contains(&tiny), "{tiny}");
    }

    #[test]
    fn blending_takes_from_the_image_before() {
        let mut pixels = [1.0, 10.0, 2.0, 20.0, 4.0, 40.0];
        blend(&mut pixels, 3, 0.75);
        assert_eq!(pixels, [1.75, 17.5, 1.75, 17.5, 3.5, 35.0]);
        let mut alone = [3.0, 5.0];
        blend(&mut alone, 1, 0.25);
        assert_eq!(alone, [3.0, 5.0]);
    }

    #[test]
    fn a_rectangle_comes_from_the_image_before() {
        // Two channels of 2 x 3; image i is filled with i.
        let mut pixels: Vec<f32> = (0..3).flat_map(|i| [i as f32; 12]).collect();
        replace(&mut pixels, 3, 3, 2, 1..2, 0..2);
        let image = |own, other| [own, own, own, other, other, own].repeat(2);
        assert_eq!(pixels, [image(0.0, 2.0), image(1.0, 0.0), image(2.0, 1.0)].concat());
    }

    #[test]
    fn labels_follow_the_pixels() {
        // Images of one class each, so a pixel's mean over an image says what share came from where.
        let (n, size) = (4, 8 * 8);
        for mix in [Mix::from(MixUp::new(1.0).unwrap()), CutMix::new(1.0).unwrap().into()] {
            for seed in 0..50 {
                let mut pixels: Vec<f32> = (0..n).flat_map(|i| vec![f32::from(i == 0); size]).collect();
                let mut p = vec![9.0; n * n];
                mix.apply(&mut pixels, [8, 8], &[0, 1, 2, 3], &mut p, &mut Draws::new(seed, 0, 0));
                for i in 0..n {
                    let of_zero = pixels[i * size..(i + 1) * size].iter().sum::<f32>() / size as f32;
                    assert!((of_zero - p[i * n]).abs() < 1e-5, "{mix:?} {seed} {i}: {of_zero} {p:?}");
                    assert!((p[i * n..(i + 1) * n].iter().sum::<f32>() - 1.0).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn never_means_one_class_each() {
        let mix = Mix::from(MixUp::new(1.0).unwrap()).probability(0.0).unwrap();
        let (mut pixels, mut p) = (vec![1.0, 2.0], vec![0.5; 6]);
        mix.apply(&mut pixels, [1, 1], &[2, 0], &mut p, &mut Draws::new(0, 0, 0));
        assert_eq!((pixels, p), (vec![1.0, 2.0], vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0]));
    }

    #[test]
    fn impossible_settings_are_refused() {
        assert!(MixUp::new(0.0).is_err() && CutMix::new(f64::NAN).is_err());
        assert!(Mix::from(MixUp::new(1.0).unwrap()).probability(1.5).is_err());
    }
}
