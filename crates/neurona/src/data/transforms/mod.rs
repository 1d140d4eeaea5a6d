//! What is done to an image before a network sees it, with torchvision's names, arguments and results.

use super::{Draws, Image};
use crate::Result;
use std::fmt::Debug;

/// A change to an image. Random ones take all their chance from `draws`.
pub trait Transform: Send + Sync + Debug {
    /// Changes the image.
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()>;
}

/// Transforms one after the other.
#[derive(Debug, Default)]
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
