//! Networks by name.

use super::{Lab, ResNet18Cifar, SmallCnn, course_cnn};
use crate::nn::Forward;
use crate::{Error, Result};

/// A network by its name and the sizes it is made for: enough to build it again.
///
/// ```
/// use neurona::models::Spec;
/// let spec = Spec { name: "small_cnn".into(), classes: 10, channels: 1, height: 28, width: 28 };
/// let net = spec.build()?;
/// assert_eq!(net.num_parameters(), 50_186);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// One of [`Spec::NAMES`].
    pub name: String,
    /// What it tells apart.
    pub classes: usize,
    /// Channels of its images.
    pub channels: usize,
    /// Rows of its images.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
}

impl Spec {
    /// The names that [`Spec::build`] knows.
    pub const NAMES: &[&str] = &["small_cnn", "lab", "course_cnn", "resnet18_cifar"];

    /// The network, with fresh parameters.
    pub fn build(&self) -> Result<Box<dyn Forward>> {
        let size = [self.channels, self.height, self.width];
        let only = |wanted: [usize; 3]| match size == wanted {
            true => Ok(()),
            false => Err(Error::Argument(format!("{} takes images of {wanted:?}, not of {size:?}", self.name))),
        };
        Ok(match self.name.as_str() {
            "small_cnn" => Box::new(SmallCnn::new(size, self.classes)?),
            "lab" => only([3, 32, 32]).and_then(|()| Ok(Box::new(Lab::new()?)))?,
            "course_cnn" => only([3, 32, 32]).and_then(|()| Ok(Box::new(course_cnn()?)))?,
            "resnet18_cifar" => Box::new(ResNet18Cifar::new(self.classes)?),
            other => {
                let known = Self::NAMES.join(", ");
                return Err(Error::Argument(format!("there is no network called '{other}'; known are {known}")));
            }
        })
    }
}
