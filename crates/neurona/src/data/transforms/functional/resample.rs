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

/// Memory that is kept from one image to the next.
#[derive(Default)]
struct Scratch {
    weights: Weights,
    /// The rows after the first pass.
    rows: Vec<u8>,
    /// Rows side by side: what stands in one column.
    columns: Vec<[u8; LANES]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Resizes a window of an image of `[width, height, channels]` to `[width, height]`.
pub(super) fn resample(
    from: &[u8],
    [old_width, _, channels]: [usize; 3],
    window: Window,
    out: &mut [u8],
    [width, height]: [usize; 2],
    filter: &Filter,
) {
    let row = |y: usize| {
        let start = ((window.top as usize + y) * old_width + window.left as usize) * channels;
        &from[start..][..window.width * channels]
    };
    SCRATCH.with_borrow_mut(|Scratch { weights, rows, columns }| {
        rows.resize(window.height * width * channels, 0);
        if width == window.width {
            rows.chunks_exact_mut(width * channels).enumerate().for_each(|(y, out)| out.copy_from_slice(row(y)));
        } else {
            weights.fill(window.width, width, filter);
            match channels {
                3 => along_rows::<3, 4>(row, window, rows, width, weights, columns),
                _ => along_rows::<1, 1>(row, window, rows, width, weights, columns),
            }
        }
        if height == window.height {
            out.copy_from_slice(rows);
        } else {
            weights.fill(window.height, height, filter);
            along_columns(rows, out, width * channels, weights);
        }
    });
}

/// The first pass, for pixels of `C` values that take `P` lanes. A few rows are laid side by side, so that one
/// weight meets all lanes at once.
fn along_rows<'a, const C: usize, const P: usize>(
    row: impl Fn(usize) -> &'a [u8],
    window: Window,
    out: &mut [u8],
    width: usize,
    weights: &Weights,
    columns: &mut Vec<[u8; LANES]>,
) {
    columns.resize(window.width, [0; LANES]);
    for (group, out) in out.chunks_mut(LANES / P * width * C).enumerate() {
        let count = out.len() / (width * C);
        for lane in 0..count {
            let pixels = row(group * (LANES / P) + lane).as_chunks::<C>().0;
            for (column, pixel) in columns.iter_mut().zip(pixels) {
                column[lane * P..][..C].copy_from_slice(pixel);
            }
        }
        vectorized(
            #[inline(always)]
            || {
                for (x, (first, weights)) in weights.iter().enumerate() {
                    let mut sums = [1 << (BITS - 1); LANES];
                    for (column, weight) in columns[first..].iter().zip(weights) {
                        sums.iter_mut().zip(column).for_each(|(sum, v)| *sum += i32::from(*v) * weight);
                    }
                    let done = sums.map(|sum| (sum >> BITS).clamp(0, 255) as u8);
                    for lane in 0..count {
                        out[(lane * width + x) * C..][..C].copy_from_slice(&done[lane * P..][..C]);
                    }
                }
            },
        );
    }
}

/// The second pass: whole rows are added.
fn along_columns(rows: &[u8], out: &mut [u8], row: usize, weights: &Weights) {
    const BLOCK: usize = 4 * LANES;
    vectorized(
        #[inline(always)]
        || {
            for (out, (first, weights)) in out.chunks_exact_mut(row).zip(weights.iter()) {
                let sources = &rows[first * row..];
                let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
                let rest_at = blocks.len() * BLOCK;
                for (n, block) in blocks.iter_mut().enumerate() {
                    let mut sums = [1 << (BITS - 1); BLOCK];
                    for (source, weight) in sources.chunks_exact(row).zip(weights) {
                        let source = &source[n * BLOCK..][..BLOCK];
                        sums.iter_mut().zip(source).for_each(|(sum, v)| *sum += i32::from(*v) * weight);
                    }
                    *block = sums.map(|sum| (sum >> BITS).clamp(0, 255) as u8);
                }
                for (x, out) in rest.iter_mut().enumerate() {
                    let column = sources.iter().skip(rest_at + x).step_by(row);
                    let sum: i32 = column.zip(weights).map(|(v, weight)| i32::from(*v) * weight).sum();
                    *out = ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8;
                }
            }
        },
    );
}
