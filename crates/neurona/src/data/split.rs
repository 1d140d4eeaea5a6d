//! Parts of a set, and how unequal its classes are.

use super::{Dataset, Draws, Image};
use crate::{Error, Result};
use std::sync::Arc;

/// Some images of a set.
///
/// ```
/// use neurona::data::{Dataset, Subset, embedded};
/// use std::sync::Arc;
/// let part = Subset::new(Arc::new(embedded::fashion_mnist()?.test), vec![7, 3])?;
/// assert_eq!((part.len(), part.labels().len()), (2, 2));
/// assert!(Subset::new(Arc::new(part), vec![2]).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone)]
pub struct Subset {
    of: Arc<dyn Dataset>,
    places: Vec<usize>,
    labels: Vec<i64>,
}

impl Subset {
    /// The images at these places, in this order.
    pub fn new(of: Arc<dyn Dataset>, places: Vec<usize>) -> Result<Self> {
        let label = |&place: &usize| {
            let label = of.labels().get(place).copied();
            label.ok_or_else(|| Error::Argument(format!("there is no image {place}; the set has {}", of.len())))
        };
        let labels = places.iter().map(label).collect::<Result<_>>()?;
        Ok(Subset { of, places, labels })
    }

    /// Where its images stand in the whole set.
    pub fn places(&self) -> &[usize] {
        &self.places
    }
}

impl std::fmt::Debug for Subset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subset({} of {} images)", self.places.len(), self.of.len())
    }
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.places.len()
    }
    fn classes(&self) -> &[String] {
        self.of.classes()
    }
    fn labels(&self) -> &[i64] {
        &self.labels
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        match self.places.get(index) {
            Some(&place) => self.of.read(place, image),
            None => Err(Error::Argument(format!("there is no image {index}; the part has {}", self.len()))),
        }
    }
    fn describe(&self, index: usize) -> String {
        self.places.get(index).map_or_else(|| format!("image {index}"), |&place| self.of.describe(place))
    }
}

/// Cuts a set into parts that hold these shares of every class. Which image goes where depends on the seed alone;
/// a class is in every part as soon as it has as many images as there are parts.
///
/// ```
/// use neurona::data::{Dataset, embedded, stratified_split};
/// use std::sync::Arc;
/// let parts = stratified_split(Arc::new(embedded::fashion_mnist()?.train), &[0.8, 0.2], 7)?;
/// assert_eq!((parts[0].len(), parts[1].len()), (4000, 1000));
/// assert_eq!(parts[1].labels().iter().filter(|l| **l == 3).count(), 100);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn stratified_split(of: Arc<dyn Dataset>, shares: &[f64], seed: u64) -> Result<Vec<Subset>> {
    if shares.is_empty() || shares.iter().any(|s| s.is_nan() || *s <= 0.0) || shares.iter().sum::<f64>() > 1.0 + 1e-9 {
        return Err(Error::Argument(format!("shares {shares:?} must be above 0 and add up to at most 1")));
    }
    let mut by_class = vec![Vec::new(); of.classes().len()];
    for (place, label) in of.labels().iter().enumerate() {
        let class = usize::try_from(*label).ok().and_then(|class| by_class.get_mut(class));
        class.ok_or_else(|| Error::Argument(format!("{}: there is no class {label}", of.describe(place))))?.push(place);
    }
    let mut parts = vec![Vec::new(); shares.len()];
    for (class, places) in by_class.iter_mut().enumerate() {
        shuffle(places, &mut Draws::new(seed, 0, class as u64));
        let mut rest = places.iter().copied();
        for (part, count) in parts.iter_mut().zip(counts(places.len(), shares)) {
            part.extend(rest.by_ref().take(count));
        }
    }
    let subset = |mut places: Vec<usize>| {
        places.sort_unstable();
        Subset::new(of.clone(), places)
    };
    parts.into_iter().map(subset).collect()
}

/// How many of `n` each part gets: its share rounded down, then one more by the size of what was cut off; and at
/// least one where there are enough.
fn counts(n: usize, shares: &[f64]) -> Vec<usize> {
    // Whole numbers come out of sums of shares that are not quite whole.
    let exact: Vec<f64> = shares.iter().map(|s| s * n as f64 + 1e-9).collect();
    let mut counts: Vec<usize> = exact.iter().map(|e| e.floor() as usize).collect();
    let total = (shares.iter().sum::<f64>() * n as f64).round().min(n as f64) as usize;
    let mut by_rest: Vec<usize> = (0..shares.len()).collect();
    by_rest.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = total.saturating_sub(counts.iter().sum());
    by_rest.into_iter().take(missing).for_each(|part| counts[part] += 1);
    while n >= shares.len()
        && let Some(empty) = counts.iter().position(|&c| c == 0)
    {
        let unused = n - counts.iter().sum::<usize>();
        counts[empty] = 1;
        if unused == 0 {
            // The largest has two or more: there are at least as many images as parts, and one part is empty.
            let largest = (0..counts.len()).max_by_key(|&part| counts[part]).unwrap_or(0);
            counts[largest] -= 1;
        }
    }
    counts
}

/// A random order (Fisher–Yates).
pub(super) fn shuffle(places: &mut [usize], draws: &mut Draws) {
    for i in (1..places.len()).rev() {
        places.swap(i, draws.below(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ImageSet;

    fn set(sizes: &[usize]) -> Arc<dyn Dataset> {
        let labels: Vec<i64> = sizes.iter().enumerate().flat_map(|(c, n)| vec![c as i64; *n]).collect();
        let classes = (0..sizes.len()).map(|c| c.to_string()).collect();
        Arc::new(ImageSet::new(vec![0; labels.len()], labels, classes, [1, 1, 1]).unwrap())
    }

    #[test]
    fn every_image_is_in_one_part_and_every_class_in_each() {
        let of = set(&[101, 7, 2, 50]);
        let parts = stratified_split(of, &[0.8, 0.2], 3).unwrap();
        let mut all: Vec<usize> = parts.iter().flat_map(|p| p.places().to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..160).collect::<Vec<_>>());
        for (class, want) in [(0, [81, 20]), (1, [6, 1]), (2, [1, 1]), (3, [40, 10])] {
            for (part, want) in parts.iter().zip(want) {
                assert_eq!(part.labels().iter().filter(|l| **l == class).count(), want, "class {class}");
            }
        }
    }

    #[test]
    fn the_seed_decides() {
        let places = |seed| stratified_split(set(&[40, 40]), &[0.5, 0.25], seed).unwrap()[1].places().to_vec();
        assert_eq!((places(1), places(1).len()), (places(1), 20));
        assert_ne!(places(1), places(2));
    }

    #[test]
    fn small_classes_go_as_far_as_they_can() {
        assert_eq!(counts(1, &[0.8, 0.2]), [1, 0]);
        assert_eq!(counts(3, &[0.9, 0.05, 0.05]), [1, 1, 1]);
        assert_eq!(counts(4, &[0.1, 0.1]), [1, 1]);
        assert_eq!(counts(0, &[0.5, 0.5]), [0, 0]);
        assert_eq!(counts(10, &[0.7, 0.2, 0.1]), [7, 2, 1]);
    }

    #[test]
    fn impossible_shares_are_refused() {
        for shares in [&[][..], &[0.0, 0.5], &[0.9, 0.2], &[f64::NAN], &[-0.5]] {
            assert!(stratified_split(set(&[4]), shares, 0).is_err(), "{shares:?}");
        }
    }
}
