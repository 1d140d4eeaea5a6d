//! What the kernels for few channels share: a pass as a convolution of windows.

use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

/// The size of equal parts of at most `most`.
pub(super) fn balanced(size: usize, most: usize) -> usize {
    size.div_ceil(size.div_ceil(most).max(1))
}

/// Elements of which whole pieces of 16 bytes, or the longest shorter ones, fit all of these lengths and distances.
pub(super) fn unit(dtype: DType, lengths: &[i64]) -> usize {
    let longest = 16 / dtype.size();
    let fits = |unit: &usize| lengths.iter().all(|length| length % *unit as i64 == 0);
    [8, 4, 2, 1].into_iter().filter(|unit| *unit <= longest).find(fits).unwrap_or(1)
}

/// One pass as a convolution of windows: the gradient by the input has a window for each group of pixels that the
/// stride puts on the same outputs, with all their channels.
pub(super) struct Windows {
    pub n: usize,
    pub channels: usize,
    pub wanted: usize,
    pub taps: [usize; 2],
    pub stride: [usize; 2],
    /// Pixels of a window's result, down and right.
    pub shuffle: [usize; 2],
    /// The input, the windows, the result.
    pub input: [usize; 2],
    pub count: [usize; 2],
    pub result: [usize; 2],
    /// Where the first window begins.
    pub before: [i64; 2],
}

impl Windows {
    pub fn forward(g: &Geometry) -> Windows {
        Windows {
            n: g.n,
            channels: g.c,
            wanted: g.k,
            taps: [g.r, g.s],
            stride: g.stride,
            shuffle: [1, 1],
            input: [g.h, g.w],
            count: [g.oh(), g.ow()],
            result: [g.oh(), g.ow()],
            before: g.padding.map(|p| p as i64),
        }
    }

    pub fn input_grad(g: &Geometry) -> Windows {
        // A pixel of remainder `a` meets tap `r` at the output `(a + padding - r) / stride` from its window.
        let span = |size: usize, axis: usize| {
            let (padding, stride) = (g.padding[axis] as i64, g.stride[axis] as i64);
            let first = (padding - size as i64 + 1).div_euclid(stride)
                + i64::from((padding - size as i64 + 1).rem_euclid(stride) != 0);
            let last = (stride - 1 + padding).div_euclid(stride);
            (first, (last - first + 1).max(1) as usize)
        };
        let ((top, rows), (left, columns)) = (span(g.r, 0), span(g.s, 1));
        Windows {
            n: g.n,
            channels: g.k,
            wanted: g.c * g.stride[0] * g.stride[1],
            taps: [rows, columns],
            stride: [1, 1],
            shuffle: g.stride,
            input: [g.oh(), g.ow()],
            count: [g.h.div_ceil(g.stride[0]), g.w.div_ceil(g.stride[1])],
            result: [g.h, g.w],
            before: [-top, -left],
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Some square images by square filters.
    pub fn geometry(n: usize, c: usize, size: usize, k: usize, r: usize, stride: usize, padding: usize) -> Geometry {
        let (stride, padding) = ([stride; 2], [padding; 2]);
        Geometry { n, c, h: size, w: size, k, r, s: r, stride, padding, dilation: [1, 1], groups: 1 }
    }

    #[test]
    fn windows_of_the_gradient_reach_every_tap() {
        for (r, stride, padding) in [(3, 1, 1), (5, 1, 0), (7, 2, 3), (3, 2, 1), (1, 3, 0), (4, 4, 0)] {
            let g = geometry(8, 3, 32, 8, r, stride, padding);
            let windows = Windows::input_grad(&g);
            let reached = |tap: usize| {
                (0..stride).any(|a| {
                    let at = a as i64 + padding as i64 - tap as i64;
                    let row = at.div_euclid(stride as i64) + windows.before[0];
                    at.rem_euclid(stride as i64) == 0 && (0..windows.taps[0] as i64).contains(&row)
                })
            };
            assert!((0..r).all(reached), "{r} {stride} {padding}");
        }
    }
}
