//! Augmentation one value at a time, in f64 and in the order of its description; results are `[n, h, w, c]`.

use super::draw::{Change, Draw, partner};
use super::{Augment, Settings};

/// What the operands hold.
pub struct Operands<'a> {
    pub images: &'a [u8],
    pub shape: [usize; 4],
    pub key: u64,
    pub mean: &'a [f32],
    pub deviation: &'a [f32],
    pub flips: Option<&'a [u8]>,
    pub own: f32,
    pub labels: &'a [i64],
}

/// Images, and probabilities where they are mixed.
pub fn augment(op: &Augment, of: &Operands<'_>) -> (Vec<f64>, Vec<f64>) {
    let [n, c, h, w] = of.shape;
    let single: Vec<Vec<f64>> = (0..n).map(|i| image(&op.settings, of, i)).collect();
    let Some(classes) = op.mix else { return (single.concat(), vec![]) };
    let (own, step) = (f64::from(of.own), partner(of.key, n));
    let (mut images, mut probabilities) = (vec![], vec![]);
    for i in 0..n {
        let j = (i + step) % n;
        images.extend((0..c * h * w).map(|at| own * single[i][at] + (1.0 - own) * single[j][at]));
        let is = |i: usize, class: usize| f64::from(u8::from(of.labels[i] == class as i64));
        probabilities.extend((0..classes).map(|class| own * is(i, class) + (1.0 - own) * is(j, class)));
    }
    (images, probabilities)
}

fn image(settings: &Settings, of: &Operands<'_>, i: usize) -> Vec<f64> {
    let [_, c, h, w] = of.shape;
    let draw = Draw::new(settings, of.key, i, [h, w], of.flips);
    let bytes = &of.images[i * c * h * w..][..c * h * w];

    // The padded image, the window in it, the window mirrored.
    let p = settings.padding as isize;
    let padded = |channel: usize, y: isize, x: isize| {
        let mirrored = |at: isize, size: usize| {
            let last = size as isize - 1;
            if at < 0 {
                -at
            } else if at > last {
                2 * last - at
            } else {
                at
            }
        };
        let (inner_y, inner_x) = (mirrored(y, h), mirrored(x, w));
        match (inner_y, inner_x) == (y, x) || settings.reflect {
            true => f64::from(bytes[(channel * h + inner_y as usize) * w + inner_x as usize]) / 255.0,
            false => 0.0,
        }
    };
    let mut pixels: Vec<Vec<f64>> = vec![];
    for y in 0..h {
        for x in 0..w {
            let x = if draw.flipped { w - 1 - x } else { x };
            let at = (y as isize + draw.top as isize - p, x as isize + draw.left as isize - p);
            pixels.push((0..c).map(|channel| padded(channel, at.0, at.1)).collect());
        }
    }

    let grey =
        |pixel: &Vec<f64>| if c == 3 { 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2] } else { pixel[0] };
    if settings.jitter.is_some() {
        for &(change, factor) in &draw.changes {
            let mean = pixels.iter().map(grey).sum::<f64>() / (h * w) as f64;
            for pixel in &mut pixels {
                let from = match change {
                    Change::Brightness => 0.0,
                    Change::Contrast => mean,
                    Change::Saturation if c == 1 => continue,
                    Change::Saturation => grey(pixel),
                };
                let factor = f64::from(factor);
                pixel.iter_mut().for_each(|v| *v = (factor * *v + (1.0 - factor) * from).clamp(0.0, 1.0));
            }
        }
    }

    let mut result = vec![];
    for (at, pixel) in pixels.iter().enumerate() {
        let hole = draw.hole[0].contains(&(at / w)) && draw.hole[1].contains(&(at % w));
        for (channel, v) in pixel.iter().enumerate() {
            let (mean, deviation) = (f64::from(of.mean[channel]), f64::from(of.deviation[channel]));
            result.push(if hole { 0.0 } else { (v - mean) / deviation });
        }
    }
    result
}
