//! Convolution, relu and max pooling of 2 by 2 in one, on CPU cores, over images `[n, h, w, c]`.
//!
//! Forward, a few rows are convolved and pooled while they are in the first cache: with filters side by side in registers
//! as every convolution, or, when these are too few to fill them, with neighbouring windows. Backward, each window's
//! gradient belongs to one pixel: that one's window of the input takes part, and three others do not.

mod backward;
mod copies;
mod direct;
mod micro;
mod product;
#[cfg(test)]
mod tests;
mod winograd;

pub(crate) use crate::ops::conv2d::cpu::Geometry;
pub(crate) use backward::{Backward, ByRows, lays_anew_once};

use crate::cpu::gemm::Activation;
use crate::cpu::kernel::Kernel;
use crate::ops::conv2d::cpu::forward_pooled;
use direct::Direct;
use product::Product;

/// The place of a window that lets nothing through: none of its elements is above 0.
const NOWHERE: u8 = 4;
/// Bytes that stay in the first cache beside what else is needed.
const NEAR: usize = 20 << 10;

/// What a forward kernel is asked for, beside sizes.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub bias: bool,
    /// Each filter is multiplied by its scale.
    pub scaled: bool,
    /// Where the largest stood is a second result.
    pub places: bool,
    /// Images are `[n, c, h, w]`.
    pub from_rows: bool,
    /// Pooled images are `[n, k, h, w]`.
    pub to_rows: bool,
}

impl Options {
    /// The results, by position.
    fn outputs(&self) -> Vec<usize> {
        (0..1 + usize::from(self.places)).collect()
    }
}

/// Inputs: images, weight `[k, c, r, s]`; when asked, a bias of `k` and then a scale of `k`.
/// Outputs: pooled images, `[n, h, w, k]` unless told otherwise; when asked, places: `[n, k, h·w]` if [`windows_abreast`], else `[n, h·w, k]`.
/// Nothing where the ops one by one are faster.
pub(crate) fn forward(g: Geometry, options: Options) -> Option<Box<dyn Kernel>> {
    if g.groups != 1 || pooled(&g).contains(&0) || [g.n, g.c, g.k].contains(&0) {
        return None;
    }
    forward_by(g, options, winograd::faster(&g))
}

/// The same, in Winograd's way if that is `fast`er.
fn forward_by(g: Geometry, options: Options, fast: bool) -> Option<Box<dyn Kernel>> {
    if windows_abreast(&g) {
        return Some(Box::new(Direct::new(g, options, fast)));
    }
    if options.from_rows {
        return None;
    }
    if let Some(product) = Product::new(g, options, fast) {
        return Some(Box::new(product));
    }
    // Nothing else finds places, or knows another order.
    if options.places || options.to_rows { None } else { forward_pooled(g, options.bias, options.scaled) }
}

/// Whether the gradient in one is faster than one by one: it reads windows of the input at any place, which must come from
/// a near cache.
pub(crate) fn gradient_pays(g: &Geometry) -> bool {
    g.h * g.w * g.c <= 32 << 10
}

/// Whether registers hold the same filter's sums for neighbouring windows, because filters would not fill them.
pub(crate) fn windows_abreast(g: &Geometry) -> bool {
    let lanes = micro::lanes();
    let filled = |n: usize, of: usize| n as f64 / n.next_multiple_of(of) as f64;
    // Half a register of filters still runs at full speed where there are instructions for it.
    let filters = filled(g.k, lanes.min(8));
    g.k < 16 && filters < filled(pooled(g)[1], lanes)
}

/// Rows and columns of windows.
fn pooled(g: &Geometry) -> [usize; 2] {
    [g.oh() / 2, g.ow() / 2]
}

/// Windows or filters that are pooled at once: a whole number of the widest registers, on every machine.
const LANES: usize = 16;

/// The first of the greatest of four, with bias and relu, and its number; NaN wins over numbers. Before a bias the same ones
/// are greatest as after it. Without `PLACES` numbers mean nothing.
#[inline(always)]
fn greatest<const PLACES: bool>(cells: &[[f32; LANES]; 4], bias: &[f32; LANES]) -> ([f32; LANES], [u8; LANES]) {
    let (mut value, mut place) = (cells[0], [0f32; LANES]);
    for (i, cell) in cells.iter().enumerate().skip(1) {
        // Arrays of their own: what is changed in place would be written to memory under a mask.
        let mut next = (value, place);
        for j in 0..LANES {
            let v = cell[j];
            let wins = (v > value[j]) | v.is_nan();
            next.0[j] = if wins { v } else { value[j] };
            if PLACES {
                next.1[j] = if wins { i as f32 } else { place[j] };
            }
        }
        (value, place) = next;
    }
    let mut code = [0; LANES];
    for j in 0..LANES {
        value[j] += bias[j];
        if PLACES {
            let place = if value[j] > 0.0 { place[j] } else { f32::from(NOWHERE) };
            // SAFETY: one of the numbers 0 to 4.
            code[j] = unsafe { place.to_int_unchecked::<i32>() } as u8;
        }
        value[j] = Activation::Relu.apply(value[j]);
    }
    (value, code)
}
