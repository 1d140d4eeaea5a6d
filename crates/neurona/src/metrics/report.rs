//! Precision, recall and F1.

use super::Confusion;
use super::confusion::share;

/// How well a class is found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Of the images taken for the class, the share that is of it.
    pub precision: f64,
    /// Of the images of the class, the share that is taken for it.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// Images of the class.
    pub count: u64,
}

/// The scores of every class, and averages over all classes: the numbers of scikit-learn's
/// `precision_recall_fscore_support(…, labels=range(classes), zero_division=0)`. What would be divided by zero is 0.
///
/// ```
/// use neurona::metrics::Confusion;
/// let mut confusion = Confusion::new(2);
/// confusion.add(&[0, 0, 1, 1], &[0, 1, 1, 1])?;
/// let report = confusion.report();
/// assert_eq!((report.class[0].precision, report.class[0].recall), (1.0, 0.5));
/// assert_eq!(report.class[1].f1, 0.8);
/// assert_eq!(report.micro.f1, confusion.accuracy());
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// By class.
    pub class: Vec<Scores>,
    /// All classes count alike.
    pub macro_average: Scores,
    /// All images count alike: precision, recall and F1 are then the accuracy.
    pub micro: Scores,
    /// Classes count by their images.
    pub weighted: Scores,
}

impl Report {
    pub(super) fn new(confusion: &Confusion) -> Self {
        let class: Vec<Scores> = (0..confusion.classes())
            .map(|class| {
                let (right, count, taken) =
                    (confusion.right_of(class), confusion.of_class(class), confusion.taken_for(class));
                let (precision, recall) = (share(right, taken), share(right, count));
                Scores { precision, recall, f1: share(2 * right, count + taken), count }
            })
            .collect();
        let total = confusion.total();
        let all = confusion.accuracy();
        let micro = Scores { precision: all, recall: all, f1: all, count: total };
        let alike = class.iter().map(|c| (c, 1.0));
        let by_images = class.iter().map(|c| (c, c.count as f64));
        let (macro_average, weighted) = (average(alike, total), average(by_images, total));
        Report { class, macro_average, micro, weighted }
    }
}

fn average<'a>(scores: impl Iterator<Item = (&'a Scores, f64)> + Clone, count: u64) -> Scores {
    let whole: f64 = scores.clone().map(|(_, weight)| weight).sum();
    let of = |value: fn(&Scores) -> f64| {
        let sum: f64 = scores.clone().map(|(score, weight)| value(score) * weight).sum();
        if whole == 0.0 { 0.0 } else { sum / whole }
    };
    Scores { precision: of(|s| s.precision), recall: of(|s| s.recall), f1: of(|s| s.f1), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class that is never guessed, one that never occurs, and one that neither occurs nor is guessed.
    const LABELS: [usize; 12] = [0, 0, 0, 0, 1, 1, 1, 2, 2, 4, 4, 4];
    const GUESSES: [usize; 12] = [0, 0, 1, 3, 1, 1, 0, 0, 1, 4, 4, 1];

    #[test]
    fn the_numbers_of_scikit_learn() {
        let mut confusion = Confusion::new(6);
        confusion.add(&LABELS, &GUESSES).unwrap();
        let report = confusion.report();
        let near = |got: Scores, want: [f64; 3], count: u64| {
            let all = [got.precision, got.recall, got.f1];
            assert!(all.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-12), "{got:?} is not {want:?}");
            assert_eq!(got.count, count);
        };
        near(report.class[0], [0.5, 0.5, 0.5], 4);
        near(report.class[1], [0.4, 0.6666666666666666, 0.5], 3);
        near(report.class[2], [0.0, 0.0, 0.0], 2);
        near(report.class[3], [0.0, 0.0, 0.0], 0);
        near(report.class[4], [1.0, 0.6666666666666666, 0.8], 3);
        near(report.class[5], [0.0, 0.0, 0.0], 0);
        near(report.macro_average, [0.31666666666666665, 0.3055555555555555, 0.3], 12);
        near(report.micro, [0.5, 0.5, 0.5], 12);
        near(report.weighted, [0.5166666666666667, 0.5, 0.4916666666666667], 12);
    }

    #[test]
    fn nothing_seen_is_zero() {
        let report = Confusion::new(2).report();
        assert_eq!(report.macro_average, Scores::default());
        assert_eq!(report.weighted, Scores::default());
        assert_eq!(Confusion::new(0).report().macro_average, Scores::default());
    }
}
