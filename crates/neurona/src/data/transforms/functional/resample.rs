//! Pillow's resampling: a weighted mean over all source pixels that a result covers, first along rows and then along
//! columns, in whole numbers and therefore the same on every machine.

use super::window::Window;
use crate::cpu::simd::vectorized;
use std::cell::RefCell;

/// Bits after the point: a byte times a weight of at most 2 leaves 22 of 32.
const BITS: u32 = 22;

/// Values that are summed side by side.
const LANES: usize = 16;

/// How much a pixel at a distance counts, and how far it reaches.
pub(super) struct Filter {
    reach: f64,
    weight: fn(f64) -> f64,
}

pub(super) const BILINEAR: Filter = Filter { reach: 1.0, weight: |x| (1.0 - x.abs()).max(0.0) };

pub(super) const BICUBIC: Filter = Filter { reach: 2.0, weight: cubic };

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    match x.abs() {
        x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
        _ => 0.0,
    }
}

/// For every result along one side: the first source pixel and the weights from there on.
#[derive(Default)]
struct Weights {
    /// First source pixel, and where its weights begin and end.
    spans: Vec<[usize; 3]>,
    values: Vec<i32>,
    exact: Vec<f64>,
}

impl Weights {
    fn fill(&mut self, old: usize, new: usize, filter: &Filter) {
        let scale = old as f64 / new as f64;
        // Shrinking widens the filter: this is the antialias.
        let wide = scale.max(1.0);
        let reach = filter.reach * wide;
        self.spans.clear();
        self.values.clear();
        for at in 0..new {
            let center = (at as f64 + 0.5) * scale;
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).min(old);
            let weight = |x: usize| (filter.weight)((x as f64 - center + 0.5) * (1.0 / wide));
            self.exact.clear();
            self.exact.extend((first..end).map(weight));
            let sum: f64 = self.exact.iter().sum();
            let start = self.values.len();
            let fixed = |w: &f64| {
                let w = if sum == 0.0 { *w } else { w / sum };
                (w * f64::from(1 << BITS) + 0.5f64.copysign(w)) as i32
            };
            self.values.extend(self.exact.iter().map(fixed));
            self.spans.push([first, start, self.values.len()]);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.spans.iter().map(|&[first, start, end]| (first, &self.values[start..end]))
    }
}

/// Memory of one pass.
#[derive(Default)]
struct Scratch {
    weights: Weights,
    /// Rows side by side: what stands in one column, before and after.
    columns: Vec<[u8; LANES]>,
    results: Vec<[u8; LANES]>,
}

thread_local! {
    /// Kept from one image to the next, with the rows between the two passes.
    static SCRATCH: RefCell<(Scratch, Vec<u8>)> = RefCell::default();
}

/// Rows of bytes at a distance from each other.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    stride: usize,
    start: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn at(&self, y: usize, length: usize) -> &'a [u8] {
        &self.bytes[self.start + y * self.stride..][..length]
    }
}

/// Resizes a window of an image of `[width, height, channels]` to `[width, height]`.
pub(super) fn resample(
    from: &[u8],
    [old_width, old_height, channels]: [usize; 3],
    window: Window,
    out: &mut [u8],
    [width, height]: [usize; 2],
    filter: &Filter,
) {
    let (left, top) = (window.left as usize, window.top as usize);
    let part = Rows { bytes: from, stride: old_width * channels, start: (top * old_width + left) * channels };
    debug_assert!(top + window.height <= old_height && left + window.width <= old_width);
    let horizontal = |rows: Rows<'_>, count: usize, out: &mut [u8], scratch: &mut Scratch| {
        scratch.weights.fill(window.width, width, filter);
        match channels {
            3 => along_rows::<3, 4>(rows, [window.width, count], out, width, scratch),
            _ => along_rows::<1, 1>(rows, [window.width, count], out, width, scratch),
        }
    };
    let vertical = |rows: Rows<'_>, row: usize, out: &mut [u8], scratch: &mut Scratch| {
        scratch.weights.fill(window.height, height, filter);
        along_columns(rows, out, row, &scratch.weights);
    };
    SCRATCH.with_borrow_mut(|(scratch, between)| {
        if width == window.width {
            return vertical(part, width * channels, out, scratch);
        }
        if height == window.height {
            return horizontal(part, height, out, scratch);
        }
        // Rounding between the passes makes the order visible; this is Pillow's choice (from version 13 on).
        let lost = |old: usize, new: usize| old as isize - new as isize;
        let (rows_lost, columns_lost) = (lost(window.height, height), lost(window.width, width));
        if rows_lost > 0 && rows_lost > 2 * columns_lost {
            let row = window.width * channels;
            between.resize(row * height, 0);
            vertical(part, row, between, scratch);
            horizontal(Rows { bytes: between, stride: row, start: 0 }, height, out, scratch);
        } else {
            let row = width * channels;
            between.resize(row * window.height, 0);
            horizontal(part, window.height, between, scratch);
            vertical(Rows { bytes: between, stride: row, start: 0 }, row, out, scratch);
        }
    });
}

/// The pass along rows, for pixels of `C` values that take `P` lanes. A few rows are laid side by side, so that one
/// weight meets all lanes at once.
fn along_rows<const C: usize, const P: usize>(
    rows: Rows<'_>,
    [old_width, count]: [usize; 2],
    out: &mut [u8],
    width: usize,
    Scratch { weights, columns, results }: &mut Scratch,
) {
    columns.resize(old_width, [0; LANES]);
    results.resize(width, [0; LANES]);
    for (first_row, out) in (0..count).step_by(LANES / P).zip(out.chunks_mut(LANES / P * width * C)) {
        for lane in 0..(LANES / P).min(count - first_row) {
            let pixels = rows.at(first_row + lane, old_width * C).as_chunks::<C>().0;
            for (column, pixel) in columns.iter_mut().zip(pixels) {
                column[lane * P..][..C].copy_from_slice(pixel);
            }
        }
        vectorized(
            #[inline(always)]
            || {
                for (result, (first, weights)) in results.iter_mut().zip(weights.iter()) {
                    let mut sums = [1 << (BITS - 1); LANES];
                    for (column, weight) in columns[first..].iter().zip(weights) {
                        sums.iter_mut().zip(column).for_each(|(sum, v)| *sum += i32::from(*v) * weight);
                    }
                    *result = sums.map(|sum| (sum >> BITS).clamp(0, 255) as u8);
                }
            },
        );
        for (lane, out) in out.chunks_exact_mut(width * C).enumerate() {
            for (pixel, result) in out.as_chunks_mut::<C>().0.iter_mut().zip(&*results) {
                pixel.copy_from_slice(&result[lane * P..][..C]);
            }
        }
    }
}

/// The pass along columns: whole rows are added.
fn along_columns(rows: Rows<'_>, out: &mut [u8], row: usize, weights: &Weights) {
    const BLOCK: usize = 4 * LANES;
    vectorized(
        #[inline(always)]
        || {
            for (out, (first, weights)) in out.chunks_exact_mut(row).zip(weights.iter()) {
                let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
                let done = blocks.len() * BLOCK;
                for (n, block) in blocks.iter_mut().enumerate() {
                    let mut sums = [1 << (BITS - 1); BLOCK];
                    for (y, weight) in (first..).zip(weights) {
                        let source = &rows.at(y, row)[n * BLOCK..][..BLOCK];
                        sums.iter_mut().zip(source).for_each(|(sum, v)| *sum += i32::from(*v) * weight);
                    }
                    *block = sums.map(|sum| (sum >> BITS).clamp(0, 255) as u8);
                }
                for (x, out) in rest.iter_mut().enumerate() {
                    let value = |(y, weight): (usize, &i32)| i32::from(rows.at(y, row)[done + x]) * weight;
                    let sum: i32 = (first..).zip(weights).map(value).sum();
                    *out = ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8;
                }
            }
        },
    );
}
