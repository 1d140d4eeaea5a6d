//! Whether a network is right as often as it says.

/// Expected calibration error: how far the confidence of the guesses is from the share of them that is right. Guesses
/// are put in bins by their confidence; the error is the mean distance, weighted by the bins' images.
///
/// ```
/// use neurona::metrics::Calibration;
/// let mut calibration = Calibration::new(10);
/// for right in [true, true, true, false] {
///     calibration.add(0.95, right); // says 95 %, is right in 75 %
/// }
/// assert!((calibration.error() - 0.2).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Images, sum of confidences, images that are right.
    bins: Vec<(u64, f64, u64)>,
}

/// The guesses of about one confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// From this confidence (excluded) …
    pub low: f64,
    /// … to this one (included).
    pub high: f64,
    /// Images.
    pub count: u64,
    /// Their mean confidence; 0 when there are none.
    pub confidence: f64,
    /// The share of them that is right; 0 when there are none.
    pub accuracy: f64,
}

impl Calibration {
    /// With this many bins of the same width (at least one).
    pub fn new(bins: usize) -> Self {
        Calibration { bins: vec![(0, 0.0, 0); bins.max(1)] }
    }

    /// Takes a guess into account: how sure it was, from 0 to 1, and whether it was right.
    pub fn add(&mut self, confidence: f64, right: bool) {
        let count = self.bins.len();
        // Whatever is beyond the ends (a NaN becomes 0) goes in the first or the last bin.
        let place = ((confidence * count as f64).ceil() as usize).clamp(1, count) - 1;
        let bin = &mut self.bins[place];
        *bin = (bin.0 + 1, bin.1 + confidence, bin.2 + u64::from(right));
    }

    /// The expected calibration error; 0 when nothing was seen.
    pub fn error(&self) -> f64 {
        let total: u64 = self.bins.iter().map(|(n, ..)| n).sum();
        self.bins.iter().map(|(_, sure, right)| (sure - *right as f64).abs()).sum::<f64>() / total.max(1) as f64
    }

    /// The bins from low to high confidence: what a reliability diagram draws.
    pub fn bins(&self) -> Vec<Bin> {
        let width = 1.0 / self.bins.len() as f64;
        let bin = |(i, (count, sure, right)): (usize, &(u64, f64, u64))| Bin {
            low: i as f64 * width,
            high: (i + 1) as f64 * width,
            count: *count,
            confidence: sure / (*count).max(1) as f64,
            accuracy: *right as f64 / (*count).max(1) as f64,
        };
        self.bins.iter().enumerate().map(bin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_torchmetrics() {
        // torchmetrics.functional.classification.multiclass_calibration_error(n_bins=15, norm="l1")
        let guesses =
            [(0.25, true), (0.25, false), (0.35, true), (0.65, false), (0.75, true), (0.9, true), (1.0, false)];
        let mut calibration = Calibration::new(15);
        guesses.iter().for_each(|(sure, right)| calibration.add(*sure, *right));
        assert!((calibration.error() - 0.4500000476837158).abs() < 1e-6, "{}", calibration.error());
    }

    #[test]
    fn ends_and_bins() {
        let mut calibration = Calibration::new(2);
        for sure in [0.0, 0.5, 0.6, 1.0, 7.0, -1.0, f64::NAN] {
            calibration.add(sure, true);
        }
        let bins = calibration.bins();
        assert_eq!((bins[0].count, bins[1].count, bins[1].low, bins[1].high), (4, 3, 0.5, 1.0));
        let empty = Calibration::new(0);
        assert_eq!((empty.error(), empty.bins().len(), empty.bins()[0].accuracy), (0.0, 1, 0.0));
    }
}
