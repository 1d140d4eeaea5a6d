//! What may be done to an image, and what its random numbers decide.

use crate::tensor::random;
use std::ops::Range;

/// Random numbers that each image has to itself; the kernel for GPUs has the same number.
const DRAWS: u64 = 16;

/// A float that is part of a plan's key: equal when its bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fixed(u32);

impl Fixed {
    pub fn new(value: f32) -> Self {
        Fixed(value.to_bits())
    }

    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// Which images are mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Flip {
    /// With this probability.
    Random(Fixed),
    /// Those that an operand names.
    Given,
}

/// A change of colour, by its place in [`Jitter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Brightness,
    Contrast,
    Saturation,
}

use Change::{Brightness, Contrast, Saturation};

/// The orders in which an image's colours can be changed, all as likely; the kernel for GPUs has the same table.
const ORDERS: [[Change; 3]; 6] = [
    [Brightness, Contrast, Saturation],
    [Brightness, Saturation, Contrast],
    [Contrast, Brightness, Saturation],
    [Contrast, Saturation, Brightness],
    [Saturation, Brightness, Contrast],
    [Saturation, Contrast, Brightness],
];

/// From which factor, and over how wide a range, brightness, contrast and saturation are drawn. (1, 0) changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Jitter {
    pub low: [Fixed; 3],
    pub span: [Fixed; 3],
}

impl Jitter {
    /// Whether contrast is changed, which needs a look at the whole image first.
    pub fn contrast(&self) -> bool {
        (self.low[1].get(), self.span[1].get()) != (1.0, 0.0)
    }
}

/// What may be done to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// Pixels that an image is moved at most, in each direction.
    pub padding: usize,
    /// What is moved in from outside: the image mirrored at its edge, or black.
    pub reflect: bool,
    pub flip: Flip,
    pub jitter: Option<Jitter>,
    /// The side of the square that is zeroed.
    pub cutout: usize,
}

impl Settings {
    /// Nothing at all.
    pub const NONE: Settings =
        Settings { padding: 0, reflect: false, flip: Flip::Random(Fixed(0)), jitter: None, cutout: 0 };
}

/// What is done to one image.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draw {
    /// The window's first row and column in the padded image.
    pub top: usize,
    pub left: usize,
    pub flipped: bool,
    /// Rows and columns that are zeroed.
    pub hole: [Range<usize>; 2],
    pub changes: [(Change, f32); 3],
}

impl Draw {
    /// Of image number `image` of a batch, of this height and width.
    pub fn new(settings: &Settings, key: u64, image: usize, [h, w]: [usize; 2], given: Option<&[u8]>) -> Self {
        let bits = |j: u64| random::at(key, image as u64 * DRAWS + j);
        let moves = 2 * settings.padding + 1;
        let hole = |j: u64, size: usize| {
            let (centre, side) = (below(bits(j), size), settings.cutout);
            let start = centre.saturating_sub(side / 2);
            start..(centre + side - side / 2).min(size).max(start)
        };
        let order = ORDERS[below(bits(5), ORDERS.len())];
        let factor = |change: Change| match settings.jitter {
            Some(Jitter { low, span }) => {
                let k = change as usize;
                low[k].get() + span[k].get() * random::unit(bits(6 + k as u64))
            }
            None => 1.0,
        };
        Draw {
            top: below(bits(0), moves),
            left: below(bits(1), moves),
            flipped: match (settings.flip, given) {
                (Flip::Random(p), _) => random::unit(bits(2)) < p.get(),
                (Flip::Given, flips) => flips.is_some_and(|flips| flips[image] != 0),
            },
            hole: [hole(3, h), hole(4, w)],
            changes: order.map(|change| (change, factor(change))),
        }
    }

    /// The changes that come before that of contrast.
    pub fn before_contrast(&self) -> &[(Change, f32)] {
        let place = self.changes.iter().position(|(change, _)| *change == Contrast).unwrap_or(0);
        &self.changes[..place]
    }
}

/// How far on in the batch, and then round to its start, an image's partner for MixUp stands. Never 0, so that an image
/// is not mixed with itself, unless it is alone.
pub(super) fn partner(key: u64, images: usize) -> usize {
    if images < 2 { 0 } else { 1 + below(random::at(!key, 0), images - 1) }
}

/// The row or column that the padded image shows at `place`, if it is not black.
#[inline(always)]
pub(super) fn source(place: usize, padding: usize, size: usize, reflect: bool) -> Option<usize> {
    match place.checked_sub(padding) {
        Some(inside) if inside < size => Some(inside),
        Some(after) => reflect.then(|| 2 * (size - 1) - after),
        None => reflect.then(|| padding - place),
    }
}

/// From 0 up to but without `n`, which fits 32 bits: so GPUs need no 128-bit product for the same number.
fn below(bits: u64, n: usize) -> usize {
    (((bits >> 32) * n as u64) >> 32) as usize
}
