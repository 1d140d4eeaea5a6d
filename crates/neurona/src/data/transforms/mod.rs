//! What is done to an image before a network sees it, with torchvision's names, arguments and results.

mod affine;
mod arguments;
mod augment;
mod blur;
mod color_jitter;
mod compose;
mod crop;
mod erasing;
mod flip;
pub mod functional;
mod grayscale;
mod resize;
mod resized_crop;
mod tensor;

pub use affine::{AffineParams, RandomAffine, RandomRotation};
pub use arguments::{Fill, Interpolation, Padding, PaddingMode, Size, Spread};
pub use augment::{Op as AugmentOp, RandAugment, TrivialAugmentWide};
pub use blur::GaussianBlur;
pub use color_jitter::ColorJitter;
pub use compose::{Compose, Transform};
pub use crop::{CenterCrop, Pad, RandomCrop};
pub use erasing::{Cutout, RandomErasing};
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use grayscale::{Grayscale, RandomGrayscale};
pub use resize::Resize;
pub use resized_crop::RandomResizedCrop;
pub use tensor::{Normalize, ToTensor};
