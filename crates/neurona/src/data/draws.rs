//! Random numbers for one image.

use crate::tensor::random;

/// The random numbers that one image gets in one epoch. They depend on nothing else, so that the same seed gives
/// the same pixels whichever worker makes them, and in whatever order.
///
/// ```
/// use neurona::data::Draws;
/// let (mut a, mut b) = (Draws::new(7, 0, 12), Draws::new(7, 0, 12));
/// assert_eq!(a.unit(), b.unit());
/// assert!(a.below(3) < 3);
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    key: u64,
    position: u64,
}

impl Draws {
    /// Those of an image in an epoch.
    pub fn new(seed: u64, epoch: u64, index: u64) -> Self {
        Draws { key: random::mix(random::mix(seed ^ random::mix(epoch)) ^ index), position: 0 }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.position += 1;
        random::at(self.key, self.position)
    }

    /// From 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number from 0 up to but without `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}
