//! From bytes to numbers.

use super::Transform;
use crate::data::values::{Tables, Values};
use crate::data::{Draws, Image};
use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Values from 0 to 1 in place of bytes.
#[derive(Clone, Copy, Default)]
pub struct ToTensor;

impl Transform for ToTensor {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        image.become_unit();
        Ok(())
    }
}

impl fmt::Debug for ToTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToTensor()")
    }
}

/// Takes a mean off each channel and divides by a deviation.
///
/// ```
/// use neurona::data::{Draws, Image, transforms::{Normalize, ToTensor, Transform}};
/// let mut image = Image::new(1, 1, 1, vec![255])?;
/// let draws = &mut Draws::new(0, 0, 0);
/// ToTensor.apply(&mut image, draws)?;
/// Normalize::new(&[0.5], &[0.25])?.apply(&mut image, draws)?;
/// assert_eq!(image.to_planes(), [2.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone)]
pub struct Normalize {
    mean: Vec<f32>,
    deviation: Vec<f32>,
    tables: Arc<Tables>,
}

impl Normalize {
    /// With a mean and a deviation for each channel, or one for all.
    pub fn new(mean: &[f32], std: &[f32]) -> Result<Self> {
        if mean.len() != std.len() || !matches!(mean.len(), 1 | 3) {
            let (means, deviations) = (mean.len(), std.len());
            let problem = format!("Normalize needs 1 or 3 means and deviations, not {means} and {deviations}");
            return Err(Error::Argument(problem));
        }
        if let Some(wrong) = std.iter().find(|d| !(d.is_finite() && **d != 0.0)) {
            return Err(Error::Argument(format!("Normalize cannot divide by a deviation of {wrong}")));
        }
        if let Some(wrong) = mean.iter().find(|m| !m.is_finite()) {
            return Err(Error::Argument(format!("Normalize cannot take off a mean of {wrong}")));
        }
        let each = |values: &[f32]| std::array::from_fn(|c| values[c % values.len()]);
        let tables = Arc::new(Tables::new(each(mean), each(std)));
        Ok(Normalize { mean: mean.to_vec(), deviation: std.to_vec(), tables })
    }
}

impl Transform for Normalize {
    fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
        let channels = image.channels();
        if self.mean.len() > channels {
            let problem = format!("Normalize has {} channels, the image {channels}", self.mean.len());
            return Err(Error::Argument(problem));
        }
        match image.values() {
            Values::Bytes => return Err(Error::Argument("Normalize goes after ToTensor".into())),
            Values::Unit => image.become_normalised(&self.tables),
            _ => {
                let constants = self.mean.iter().zip(&self.deviation).cycle();
                for (v, (mean, deviation)) in image.floats_mut().iter_mut().zip(constants) {
                    *v = (*v - mean) / deviation;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Normalize(mean={:?}, std={:?})", self.mean, self.deviation)
    }
}
