//! Mirroring at random.

use super::arguments::probability;
use super::{Transform, functional};
use crate::Result;
use crate::data::{Draws, Image};
use std::fmt;

/// Mirrors left to right, by default every second time.
#[derive(Clone, Copy)]
pub struct RandomHorizontalFlip {
    p: f64,
}

impl RandomHorizontalFlip {
    /// With this probability.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomHorizontalFlip { p: probability("RandomHorizontalFlip", p)? })
    }
}

impl Default for RandomHorizontalFlip {
    fn default() -> Self {
        RandomHorizontalFlip { p: 0.5 }
    }
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        if draws.chance(self.p) {
            functional::hflip(image);
        }
        Ok(())
    }
}

impl fmt::Debug for RandomHorizontalFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RandomHorizontalFlip(p={})", self.p)
    }
}

/// Mirrors top to bottom, by default every second time.
#[derive(Clone, Copy)]
pub struct RandomVerticalFlip {
    p: f64,
}

impl RandomVerticalFlip {
    /// With this probability.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomVerticalFlip { p: probability("RandomVerticalFlip", p)? })
    }
}

impl Default for RandomVerticalFlip {
    fn default() -> Self {
        RandomVerticalFlip { p: 0.5 }
    }
}

impl Transform for RandomVerticalFlip {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        if draws.chance(self.p) {
            functional::vflip(image);
        }
        Ok(())
    }
}

impl fmt::Debug for RandomVerticalFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RandomVerticalFlip(p={})", self.p)
    }
}
