//! Images normalised and augmented where the network is: on the device, in the training step's plan.

use super::Draws;
use super::mix::{beta, checked};
use crate::ops::augment::{Augment as Op, Fixed, Flip, Jitter, Settings};
use crate::tensor::{DType, Meta, Number, Tensor, random};
use crate::{Error, Result};

/// Turns bytes into normalised floats and changes images at random on the way, in one pass over memory on the
/// device that holds them. A loader then only moves bytes.
///
/// The order is torchvision's: crop, flip, colours, normalise, cutout, MixUp. Random numbers come from the process's
/// generator ([`manual_seed`](crate::manual_seed)), are the same on every device, and go on where a checkpoint left
/// them.
///
/// ```
/// use neurona::{DType, Device, Tensor, data::Augment};
/// let augment = Augment::new()
///     .normalize(&[0.49, 0.48, 0.45], &[0.25, 0.24, 0.26])?
///     .random_crop(4)
///     .horizontal_flip(0.5)?
///     .cutout(8)
///     .color_jitter(0.2, 0.2, 0.2)?
///     .mixup(0.2, 10)?;
/// let device = Device::all().pop().unwrap_or_default();   // a GPU where there is one
/// let images = Tensor::full([8, 3, 32, 32], 200, DType::U8)?.to(device)?;
/// let labels = Tensor::from([0i64, 1, 2, 3, 4, 5, 6, 7]).to(device)?;
/// let (x, targets) = augment.apply(&images, &labels)?;
/// assert_eq!((x.dtype(), x.shape().to_string().as_str()), (DType::F32, "[8, 3, 32, 32]"));
/// assert_eq!(targets.shape().to_string(), "[8, 10]");     // probabilities, for cross_entropy_with
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Augment {
    settings: Settings,
    mean: Vec<f32>,
    deviation: Vec<f32>,
    mixup: Option<MixUp>,
    dtype: DType,
}

#[derive(Clone, Copy, Debug)]
struct MixUp {
    alpha: f64,
    classes: usize,
}

impl Default for Augment {
    fn default() -> Self {
        Augment { settings: Settings::NONE, mean: vec![0.0], deviation: vec![1.0], mixup: None, dtype: DType::F32 }
    }
}

impl Augment {
    /// That makes values from 0 to 1 of bytes, and nothing else yet.
    ///
    /// ```
    /// use neurona::{Tensor, data::Augment};
    /// let image = Tensor::from([0u8, 51, 255, 0]).reshape([1, 1, 2, 2])?;
    /// let (x, _) = Augment::new().apply(&image, &Tensor::from([7i64]))?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.2, 1.0, 0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a mean off each channel and divides by a deviation: one for each channel, or one for all.
    pub fn normalize(mut self, mean: &[f32], std: &[f32]) -> Result<Self> {
        if mean.len() != std.len() || mean.is_empty() {
            let (means, deviations) = (mean.len(), std.len());
            return Err(Error::Argument(format!(
                "normalize needs as many means as deviations, not {means} and {deviations}"
            )));
        }
        if let Some(wrong) = std.iter().find(|d| !(d.is_finite() && **d != 0.0)) {
            return Err(Error::Argument(format!("normalize cannot divide by a deviation of {wrong}")));
        }
        if let Some(wrong) = mean.iter().find(|m| !m.is_finite()) {
            return Err(Error::Argument(format!("normalize cannot take off a mean of {wrong}")));
        }
        (self.mean, self.deviation) = (mean.to_vec(), std.to_vec());
        Ok(self)
    }

    /// Moves each image by up to this many pixels up or down and left or right; what comes in from outside is black.
    pub fn random_crop(mut self, padding: usize) -> Self {
        (self.settings.padding, self.settings.reflect) = (padding, false);
        self
    }

    /// The same, but the image goes on outside as in a mirror.
    pub fn random_crop_reflect(mut self, padding: usize) -> Self {
        (self.settings.padding, self.settings.reflect) = (padding, true);
        self
    }

    /// Mirrors each image left to right with this probability.
    pub fn horizontal_flip(mut self, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::Argument(format!("a probability is from 0 to 1, not {p}")));
        }
        self.settings.flip = Flip::Random(Fixed::new(p as f32));
        Ok(self)
    }

    /// Mirrors a random half of the set in even epochs and the other half in odd ones, so that two epochs show every
    /// image both ways. It needs to know the images: use [`apply_in_epoch`](Augment::apply_in_epoch).
    pub fn alternating_flip(mut self) -> Self {
        self.settings.flip = Flip::Given;
        self
    }

    /// Zeroes a square of this side about a random point, after normalising; what reaches over the edge is cut off.
    pub fn cutout(mut self, side: usize) -> Self {
        self.settings.cutout = side;
        self
    }

    /// Changes brightness, contrast and saturation in a random order, each by a factor from `1 - x` (but not below 0)
    /// to `1 + x`.
    pub fn color_jitter(mut self, brightness: f64, contrast: f64, saturation: f64) -> Result<Self> {
        let strengths = [brightness, contrast, saturation];
        if let Some(wrong) = strengths.iter().find(|x| !(0.0..=1e6).contains(*x)) {
            return Err(Error::Argument(format!("color_jitter takes numbers of 0 or more, not {wrong}")));
        }
        let low = strengths.map(|x| (1.0 - x).max(0.0));
        let span = std::array::from_fn(|i| Fixed::new((1.0 + strengths[i] - low[i]) as f32));
        let jitter = Jitter { low: low.map(|x| Fixed::new(x as f32)), span };
        self.settings.jitter = strengths.iter().any(|x| *x > 0.0).then_some(jitter);
        Ok(self)
    }

    /// Makes each image a blend of itself and another of the batch. Its own share, the same for the whole batch, is
    /// drawn from Beta(alpha, alpha). Labels become probabilities of so many classes.
    pub fn mixup(mut self, alpha: f64, classes: usize) -> Result<Self> {
        // GPUs count them in 32 bits.
        if classes == 0 || i32::try_from(classes).is_err() {
            return Err(Error::Argument(format!("MixUp needs the number of classes, not {classes}")));
        }
        self.mixup = Some(MixUp { alpha: checked(alpha)?, classes });
        Ok(self)
    }

    /// The element type of the result; f32 unless set.
    pub fn dtype(mut self, dtype: DType) -> Result<Self> {
        if !dtype.is_float() {
            return Err(Error::Argument(format!("images become floating-point numbers, not {dtype}")));
        }
        self.dtype = dtype;
        Ok(self)
    }

    /// The same without anything random: what images are given to in evaluation.
    ///
    /// ```
    /// use neurona::{DType, Tensor, data::Augment};
    /// let training = Augment::new().normalize(&[0.5], &[0.25])?.random_crop(2).horizontal_flip(0.5)?;
    /// let images = Tensor::full([1, 1, 4, 4], 255, DType::U8)?;
    /// let (x, _) = training.evaluation().apply(&images, &Tensor::from([0i64]))?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0; 16]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn evaluation(&self) -> Augment {
        Augment { settings: Settings::NONE, mixup: None, ..self.clone() }
    }

    /// Images u8 `[n, c, h, w]` and labels i64 `[n]` as a network takes them: floats of the same shape, and the labels
    /// as they are or, mixed, as probabilities `[n, classes]`. Nothing is computed until it is needed.
    #[track_caller]
    pub fn apply(&self, images: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor)> {
        if self.settings.flip == Flip::Given {
            return Err(images.error("augment", "alternating flips need the epoch and the images' places in the set"));
        }
        self.augmented(images, labels, None)
    }

    /// The same for images of which it is known where in the set they stand ([`Batch::indices`](super::Batch)), in an
    /// epoch (the first is 0).
    ///
    /// ```
    /// use neurona::{Tensor, data::Augment};
    /// let images = Tensor::from([10u8, 20, 30, 40]).reshape([2, 1, 1, 2])?;
    /// let (augment, labels) = (Augment::new().alternating_flip(), Tensor::from([0i64, 0]));
    /// let in_epoch = |epoch| augment.apply_in_epoch(&images, &labels, epoch, &[5, 6])?.0.to_vec::<f32>();
    /// let (even, odd) = (in_epoch(0)?, in_epoch(1)?);
    /// assert_eq!(even[..2], [odd[1], odd[0]]);
    /// assert_eq!(even, in_epoch(2)?);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn apply_in_epoch(
        &self,
        images: &Tensor,
        labels: &Tensor,
        epoch: u64,
        indices: &[usize],
    ) -> Result<(Tensor, Tensor)> {
        if self.settings.flip != Flip::Given {
            return self.augmented(images, labels, None);
        }
        // Its own stream of the seed's numbers, which must be the same in every epoch.
        let key = random::mix(random::generator().seed ^ 0xA17E);
        let flipped = |index: &usize| (random::at(key, *index as u64) ^ epoch) as u8 & 1;
        let flips: Vec<u8> = indices.iter().map(flipped).collect();
        let flips = Tensor::from_vec(flips, [indices.len()])?.to(images.device())?;
        self.augmented(images, labels, Some(&flips))
    }

    #[track_caller]
    fn augmented(&self, images: &Tensor, labels: &Tensor, flips: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let channels = images.shape().get(1).copied().unwrap_or(0);
        if self.mean.len() > 1 && self.mean.len() != channels {
            return Err(images.error("augment", format!("there are {} means for its channels", self.mean.len())));
        }
        let each = |values: &[f32]| -> Vec<Number> {
            (0..channels).map(|c| Number::Float(f64::from(values[c % values.len()]))).collect()
        };
        let statistics = each(&self.mean).into_iter().chain(each(&self.deviation));
        let statistics = Tensor::numbers(statistics, Meta::new([2, channels], DType::F32));
        let key = random::next_key();
        let number = |value: Number, dtype: DType| Tensor::numbers([value], Meta::new((), dtype));
        let keys = number(Number::Int(key as i64), DType::I64);
        let mut operands = vec![images, &keys, &statistics];
        operands.extend(flips);
        let own = self.mixup.map(|mixup| {
            let own = beta(mixup.alpha, &mut Draws::new(key, 0, 0)) as f32;
            number(Number::Float(f64::from(own)), DType::F32)
        });
        if let Some(own) = &own {
            operands.extend([own, labels]);
        }
        let op = Op { settings: self.settings, mix: self.mixup.map(|mixup| mixup.classes), to: self.dtype };
        let mut results = Tensor::apply_all(op, &operands)?.into_iter();
        let images = results.next().ok_or_else(|| Error::op("augment", "gave no images"))?;
        Ok((images, results.next().unwrap_or_else(|| labels.clone())))
    }
}

#[cfg(test)]
mod tests;
