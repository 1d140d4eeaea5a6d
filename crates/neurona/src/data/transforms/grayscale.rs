//! Without colour, always or at random.

use super::arguments::probability;
use super::{Transform, functional};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;

/// Grey, in one channel or three alike.
#[derive(Clone, Copy)]
pub struct Grayscale {
    channels: usize,
}

impl Grayscale {
    /// In 1 channel or 3.
    pub fn new(num_output_channels: usize) -> Result<Self> {
        if !matches!(num_output_channels, 1 | 3) {
            return Err(Error::Argument(format!("Grayscale gives 1 or 3 channels, not {num_output_channels}")));
        }
        Ok(Grayscale { channels: num_output_channels })
    }
}

/// In one channel.
impl Default for Grayscale {
    fn default() -> Self {
        Grayscale { channels: 1 }
    }
}

impl Transform for Grayscale {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        functional::grayscale(image, self.channels)
    }
}

impl fmt::Debug for Grayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grayscale(num_output_channels={})", self.channels)
    }
}

/// Grey now and then (by default every tenth time), with as many channels as before.
#[derive(Clone, Copy)]
pub struct RandomGrayscale {
    p: f64,
}

impl RandomGrayscale {
    /// With this probability.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomGrayscale { p: probability("RandomGrayscale", p)? })
    }
}

impl Default for RandomGrayscale {
    fn default() -> Self {
        RandomGrayscale { p: 0.1 }
    }
}

impl Transform for RandomGrayscale {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        if draws.chance(self.p) && image.channels() == 3 {
            functional::grayscale(image, 3)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RandomGrayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RandomGrayscale(p={})", self.p)
    }
}
