//! The learning rate over a run.

use std::f64::consts::PI;

/// One cycle: from a twenty-fifth up to `peak` during the first quarter of the steps, then down to nothing
/// along a cosine.
pub fn one_cycle(step: usize, steps: usize, peak: f64) -> f64 {
    let part = step as f64 / steps.max(1) as f64;
    if part < 0.25 {
        peak * (0.04 + 0.96 * part / 0.25)
    } else {
        peak * 0.5 * (1.0 + (PI * (part - 0.25) / 0.75).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_to_the_peak_and_falls_to_nothing() {
        assert!((one_cycle(0, 100, 1.0) - 0.04).abs() < 1e-12);
        assert!((one_cycle(25, 100, 1.0) - 1.0).abs() < 1e-12);
        assert!(one_cycle(99, 100, 1.0) < 0.001);
        assert!((0..100).all(|s| one_cycle(s, 100, 1.0) <= 1.0 + 1e-12));
        assert!(one_cycle(0, 1, 1.0) > 0.0);
    }
}
