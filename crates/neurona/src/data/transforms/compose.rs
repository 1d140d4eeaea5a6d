//! One transform, and several.

use crate::Result;
use crate::data::{Draws, Image};
use std::fmt::{self, Debug};

/// A change to an image. Random ones take all their chance from `draws`. Printed, a transform looks as in
/// torchvision.
pub trait Transform: Send + Sync + Debug {
    /// Changes the image.
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()>;
}

impl<T: Transform + ?Sized> Transform for Box<T> {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        (**self).apply(image, draws)
    }
}

/// Transforms one after the other.
///
/// ```
/// use neurona::data::transforms::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor, Transform};
/// use neurona::data::{Draws, Image};
/// let transform = Compose::new()
///     .add(RandomCrop::new(32)?.padding(4))
///     .add(RandomHorizontalFlip::default())
///     .add(ToTensor)
///     .add(Normalize::new(&[0.5, 0.5, 0.5], &[0.5, 0.5, 0.5])?);
/// let mut image = Image::new(32, 32, 3, vec![255; 32 * 32 * 3])?;
/// transform.apply(&mut image, &mut Draws::new(7, 0, 0))?;
/// assert_eq!(image.to_planes()[16 * 32 + 16], 1.0);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Default)]
pub struct Compose {
    steps: Vec<Box<dyn Transform>>,
}

impl Compose {
    /// None yet: the image stays as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more at the end.
    #[expect(clippy::should_implement_trait)]
    pub fn add(mut self, step: impl Transform + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }
}

impl Transform for Compose {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        self.steps.iter().try_for_each(|step| step.apply(image, draws))
    }
}

impl Debug for Compose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compose(")?;
        self.steps.iter().try_for_each(|step| write!(f, "\n    {step:?}"))?;
        f.write_str("\n)")
    }
}
