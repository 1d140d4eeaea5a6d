//! Blurring at random.

use super::arguments::positive;
use super::{Transform, functional};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

/// Blurs with Gaussian weights whose deviation comes from a range, by default from 0.1 to 2.
#[derive(Clone, Copy)]
pub struct GaussianBlur {
    kernel_size: usize,
    sigma: [f64; 2],
}

impl GaussianBlur {
    /// Over a square of this odd number of pixels.
    pub fn new(kernel_size: usize) -> Result<Self> {
        if kernel_size.is_multiple_of(2) || kernel_size > 1001 {
            return Err(Error::Argument(format!("the kernel of GaussianBlur is odd (1 to 1001), not {kernel_size}")));
        }
        Ok(GaussianBlur { kernel_size, sigma: [0.1, 2.0] })
    }

    /// From and to which deviation.
    pub fn sigma(mut self, low: f64, high: f64) -> Result<Self> {
        self.sigma = positive("the sigma of GaussianBlur", [low, high])?;
        Ok(self)
    }
}

impl Transform for GaussianBlur {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        functional::gaussian_blur(image, self.kernel_size, draws.uniform(self.sigma[0], self.sigma[1]))
    }
}

impl fmt::Debug for GaussianBlur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, [low, high]) = (self.kernel_size, self.sigma);
        write!(f, "GaussianBlur(kernel_size=({n}, {n}), sigma=({low}, {high}))")
    }
}
