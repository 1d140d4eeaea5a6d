//! A mean that is gathered bit by bit.

/// The mean of values that stand for different numbers of images, such as the losses of batches.
///
/// ```
/// use neurona::metrics::Mean;
/// let mut loss = Mean::default();
/// loss.add(1.0, 30.0);
/// loss.add(4.0, 10.0);
/// assert_eq!(loss.value(), 1.75);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// Takes a value of this weight into account.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// The mean so far; 0 when nothing was seen.
    pub fn value(&self) -> f64 {
        if self.weight == 0.0 { 0.0 } else { self.sum / self.weight }
    }
}
