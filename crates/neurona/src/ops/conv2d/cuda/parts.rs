//! A convolution as parts whose taps lie at even distances, for the kernels of `conv2d_hopper.cu`.

use crate::ops::conv2d::cpu::Geometry;

/// Output pixels that form a grid, and the taps they see. Forward and the input gradient of stride 1 are one part; the
/// input gradient of stride s falls into one part for each remainder of a pixel's position, which see disjoint taps.
/// Pairs are down, across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Output pixels of an image.
    pub count: [usize; 2],
    /// Where in the input the first pixel's first tap lies.
    pub low: [i32; 2],
    /// From one pixel to the next, in the input.
    pub step: [usize; 2],
    /// The first pixel's place in the output, and from there to the next.
    pub out: [usize; 2],
    pub out_step: [usize; 2],
    /// None where no tap sees the pixels: they are zero.
    pub taps: [usize; 2],
    /// From one tap to the next, in the input.
    pub offset: [usize; 2],
    /// Which filter tap is the first, and the next ones' distance from it, down and across.
    pub filter: [i64; 3],
}

/// The forward pass.
pub(super) fn forward(g: &Geometry) -> Part {
    Part {
        count: [g.oh(), g.ow()],
        low: g.padding.map(|p| -(p as i32)),
        step: g.stride,
        out: [0, 0],
        out_step: [1, 1],
        taps: [g.r, g.s],
        offset: g.dilation,
        filter: [0, g.s as i64, 1],
    }
}

/// One axis of a part of the input gradient: the pixels first, first + stride, ...
struct Line {
    count: usize,
    taps: usize,
    low: i32,
    offset: usize,
    last: usize,
    step: usize,
}

fn line(size: usize, taps: usize, [stride, padding, dilation]: [usize; 3], first: usize) -> Line {
    // Output pixel p sees input pixel h by tap t when h = p stride - padding + t dilation.
    let place = |tap: usize| (first + padding) as i64 - (tap * dilation) as i64;
    let seen: Vec<usize> = (0..taps).filter(|t| place(*t).rem_euclid(stride as i64) == 0).collect();
    let count = (size - first).div_ceil(stride);
    let common = gcd(stride, dilation);
    match seen.last() {
        None => Line { count, taps: 0, low: 0, offset: 0, last: 0, step: 0 },
        Some(&last) => Line {
            count,
            taps: seen.len(),
            low: place(last).div_euclid(stride as i64) as i32,
            offset: dilation / common,
            last,
            step: stride / common,
        },
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The input gradient, the parts with most taps first: those with few fill the end of a launch.
pub(super) fn input_gradient(g: &Geometry) -> Vec<Part> {
    let mut parts = Vec::new();
    for first_h in 0..g.stride[0].min(g.h) {
        for first_w in 0..g.stride[1].min(g.w) {
            let h = line(g.h, g.r, [g.stride[0], g.padding[0], g.dilation[0]], first_h);
            let w = line(g.w, g.s, [g.stride[1], g.padding[1], g.dilation[1]], first_w);
            let seen = h.taps > 0 && w.taps > 0;
            parts.push(Part {
                count: [h.count, w.count],
                low: if seen { [h.low, w.low] } else { [0, 0] },
                step: [1, 1],
                out: [first_h, first_w],
                out_step: g.stride,
                taps: if seen { [h.taps, w.taps] } else { [0, 0] },
                offset: [h.offset, w.offset],
                filter: [(h.last * g.s + w.last) as i64, -((h.step * g.s) as i64), -(w.step as i64)],
            });
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.taps[0] * part.taps[1]));
    parts
}

/// The same part counted through the padded image, for the kernels that bring slabs; `size` is the input's. None where
/// pixels are not next to each other or padding would not overlap.
pub(super) fn padded(part: &Part, size: [usize; 2]) -> Option<Part> {
    let axis = |i: usize| {
        let padding = usize::try_from(-part.low[i]).ok()?;
        let reach = part.taps[i].checked_sub(1)? * part.offset[i];
        (part.step[i] == 1 && part.out_step[i] == 1 && padding <= reach).then_some(size[i] + padding)
    };
    Some(Part { count: [axis(0)?, axis(1)?], ..*part })
}

/// Pixels that all taps of `pixels` consecutive ones see, in whole patterns of the swizzle.
pub(super) fn slab(pixels: usize, part: &Part, chunk: usize) -> usize {
    let reach = (part.taps[0] - 1) * part.offset[0] * part.count[1] + (part.taps[1] - 1) * part.offset[1];
    (pixels + reach).next_multiple_of(512 / chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which (input pixel, tap) pairs a part sums for the output pixel at `out`, along one axis.
    fn sums(part: &Part, axis: usize, taps_w: i64, index: usize) -> Vec<(i64, i64)> {
        let (start, step) = if axis == 0 {
            (part.filter[0] / taps_w, part.filter[1] / taps_w)
        } else {
            (part.filter[0] % taps_w, part.filter[2])
        };
        (0..part.taps[axis])
            .map(|t| {
                let place = i64::from(part.low[axis]) + (index * part.step[axis] + t * part.offset[axis]) as i64;
                (place, start + t as i64 * step)
            })
            .collect()
    }

    #[test]
    fn the_gradient_reaches_every_pixel_by_every_tap_that_saw_it_and_no_other() {
        for (size, taps, stride, padding, dilation) in [
            (7, 3, 1, 1, 1),
            (8, 3, 2, 1, 1),
            (9, 5, 2, 3, 1),
            (12, 3, 2, 1, 2),
            (10, 1, 2, 0, 1),
            (11, 3, 3, 1, 2),
            (6, 2, 4, 0, 3),
        ] {
            let (two, pair) = (|x| [x, x], taps as i64);
            let g = Geometry {
                n: 1,
                c: 8,
                h: size,
                w: size,
                k: 8,
                r: taps,
                s: taps,
                stride: two(stride),
                padding: two(padding),
                dilation: two(dilation),
                groups: 1,
            };
            let mut found = vec![Vec::new(); size];
            for part in input_gradient(&g).iter().filter(|part| part.out[1] == (stride - padding % stride) % stride) {
                for i in 0..part.count[0] {
                    found[part.out[0] + i * stride].extend(sums(part, 0, pair, i));
                }
            }
            for (pixel, found) in found.iter_mut().enumerate() {
                found.retain(|(place, _)| (0..g.oh() as i64).contains(place));
                found.sort();
                let mut expected: Vec<(i64, i64)> = Vec::new();
                for out in 0..g.oh() {
                    for tap in 0..taps {
                        if (out * stride + tap * dilation) as i64 - padding as i64 == pixel as i64 {
                            expected.push((out as i64, tap as i64));
                        }
                    }
                }
                expected.sort();
                assert_eq!(*found, expected, "{size} {taps} {stride} {padding} {dilation}: pixel {pixel}");
            }
        }
    }

    #[test]
    fn padded_images_overlap_their_padding() {
        let g = Geometry {
            n: 2,
            c: 8,
            h: 5,
            w: 7,
            k: 8,
            r: 3,
            s: 3,
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        let part = padded(&forward(&g), [g.h, g.w]).unwrap();
        assert_eq!(part.count, [6, 8]);
        // Two rows of 8 pixels and two pixels more than the tile has.
        assert_eq!(slab(128, &part, 64), 152);
        assert!(padded(&forward(&Geometry { stride: [2, 1], ..g }), [g.h, g.w]).is_none());
        assert!(padded(&forward(&Geometry { padding: [3, 1], ..g }), [g.h, g.w]).is_none());
    }
}
