//! The changes themselves, with given parameters: what torchvision's `functional` does to a PIL image.

mod affine;
mod blur;
mod colour;
mod resample;
mod resize;
mod tone;
mod window;

pub use affine::{affine, rotate};
pub use blur::gaussian_blur;
pub use colour::{adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation, grayscale};
pub use resize::{resize, resized_crop};
pub use tone::{adjust_sharpness, autocontrast, equalize, invert, posterize, solarize};
pub use window::{center_crop, crop, hflip, pad, transpose, vflip};

pub(super) use window::{Window, take};
