//! The gradient of a first convolution, batch normalisation, relu and max pooling of 2 by 2, on CPU cores, without a look at
//! what was convolved.
//!
//! Where `p` is what a filter `w` sees at a pixel, with `y = w·p + b` there, the gradient by `y` is
//! `scale · (slope - average - tilt · (y - mean))`, and the one by `w` is the sum of that times `p`. Only winners have a slope;
//! the sums of `p` and of `p` times `p` are the same for all filters, and give the mean. So per pixel there are products of the
//! window's values with each other, and a window's worth for each winner; `average` and `tilt`, the mean of slopes and of
//! slopes times the distance of `y` from its mean, follow from these, too.
//!
//! The gradient by `y` adds up to 0. So it is all the same what is taken off `p` before: something like the channel's mean,
//! that nothing cancels which is large beside the images' own deviations. And the gradient by `b` is 0.

mod micro;
#[cfg(test)]
mod tests;

use crate::cpu::gemm::task_count;
use crate::cpu::kernel::{Buf, Io, Kernel, share};
use crate::cpu::simd::vectorized;
use crate::cpu::storage::GAP;
use crate::cpu::stream::{OWN, prefetch_part};
use crate::ops::conv2d::cpu::{Bands, DEPTH, Geometry, pad_image};
use micro::{Gather, Lay, Products, gatherer, lanes, layer, products};
use std::ops::Range;

/// What a gradient is asked for, beside sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Options {
    /// The images come by rows.
    pub from_rows: bool,
    /// The gradient by the convolution's bias is a result.
    pub bias: bool,
    /// The normalisation has a weight and a bias.
    pub affine: bool,
}

/// Tasks at most, each with sums of its own.
const TASKS: usize = 16;
/// Bytes of windows that stay in the first cache beside the sums.
const NEAR: usize = 16 << 10;
/// Filters of a task that makes gradients of the sums, and channels that are looked at together.
const LANES: usize = 16;
/// Pixels whose mean stands for all.
const SAMPLE: usize = 16;
/// What lies behind the values of a window, from the middle of this on.
static BEHIND: [f32; 2 * LANES] = {
    let mut behind = [0.0; 2 * LANES];
    behind[LANES] = 1.0;
    behind
};

/// Inputs: the gradient by the pooled images, these, places, inverse deviation, images, filters; if affine weight of the
/// normalisation.
/// Outputs: if affine dweight, dbias; the gradient by filters; if asked by the convolution's bias.
pub(crate) struct Backward {
    g: Geometry,
    options: Options,
    /// Where filters look in a row of windows.
    pixels: Vec<usize>,
    /// Of what each register of a window is put together.
    pieces: Vec<Vec<(usize, isize)>>,
    /// Values of a window, and floats with the 1 behind them and what fills registers.
    depth: usize,
    wide: usize,
    /// Where each value of a filter `[c][r][s]` lies in a window.
    order: Vec<usize>,
    /// Rows of windows that are laid side by side together.
    rows: usize,
    tasks: usize,
}

// Inputs by position.
const SLOPES: usize = 0;
const POOLED: usize = 1;
const PLACES: usize = 2;
const DEVIATION: usize = 3;
const IMAGES: usize = 4;
const FILTERS: usize = 5;
const SCALES: usize = 6;

impl Backward {
    /// The gradient of a convolution that goes by [`Bands`], and of what follows.
    pub fn new(g: Geometry, options: Options) -> Option<Self> {
        Bands::new(g, false, None)?;
        let [down, across] = windows(&g);
        let line = g.padded_w() * g.c;
        let cell = |i: usize| i % 4 / 2 * g.stride[0] * line + (i / 4 * 2 + i % 2) * g.stride[1] * g.c;
        // Runs of neighbouring values: a filter row, or a filter value where rows have gaps.
        let (of_row, run) = if g.dilation[1] == 1 { (1, g.s * g.c) } else { (g.s, g.c) };
        let begin = |i: usize| i / of_row * g.dilation[0] * line + i % of_row * g.dilation[1] * g.c;
        let pieces = |first: usize| -> Vec<(usize, isize)> {
            let all = (0..g.r * of_row).filter(|i| i * run < first + lanes() && (i + 1) * run > first);
            let piece =
                |i: usize| ((i * run).saturating_sub(first), begin(i) as isize - (i * run) as isize + first as isize);
            let pieces: Vec<_> = all.map(piece).collect();
            if pieces.is_empty() { vec![(0, 0)] } else { pieces }
        };
        let taps = g.r * g.s;
        let depth = taps * g.c;
        let wide = (depth + 1).next_multiple_of(LANES);
        Some(Backward {
            g,
            options,
            pixels: (0..4 * across).map(cell).collect(),
            pieces: (0..wide).step_by(lanes()).map(pieces).collect(),
            depth,
            wide,
            order: (0..depth).map(|i| i % taps * g.c + i / taps).collect(),
            rows: (NEAR / (4 * across * wide * size_of::<f32>())).clamp(1, down),
            tasks: task_count(g.flops() as usize).min(g.n).min(TASKS),
        })
    }

    /// Rows of the products of a window's values with each other: all of these and the 1, by twos.
    fn square(&self) -> usize {
        (self.depth + 1).next_multiple_of(2)
    }

    /// Numbers of a task's sums: products, and what winners saw times their gradients.
    fn numbers(&self) -> [usize; 2] {
        [self.square() * self.wide, self.g.k * self.wide]
    }

    /// Numbers from one task's sums to the next one's.
    fn apart(&self) -> usize {
        (self.numbers().iter().sum::<usize>() + GAP / size_of::<f64>()).next_multiple_of(8)
    }

    /// A task's sums.
    fn sums(&self, task: usize, io: &Io<'_>) -> Buf {
        io.workspace.part::<f64>(task * self.apart(), self.numbers().iter().sum())
    }

    /// Floats of an image with its padding, and of what a register reaches behind it; of windows laid side by side; of their
    /// gradients as far as relu lets them pass, and as many numbers that say who has won; and of what is taken off.
    fn floats(&self) -> [usize; 5] {
        let g = &self.g;
        let image = (g.h + 2 * g.padding[0]) * g.padded_w() * g.c;
        let windows = self.rows * windows(g)[1];
        let values = windows * g.k;
        [(image + LANES).next_multiple_of(LANES), 4 * windows * self.wide, values, values, self.wide]
    }

    /// Something like the mean of each channel. All tasks find the same.
    fn middle(&self, io: &Io<'_>) -> [f32; DEPTH] {
        let g = &self.g;
        // SAFETY: nobody writes an input.
        let x = unsafe { io.inputs[IMAGES].slice::<f32>() };
        let mut middle = [0.0; DEPTH];
        for (channel, middle) in middle.iter_mut().enumerate().take(g.c) {
            for i in 0..SAMPLE {
                let pixel = g.h / 2 * g.w + i * g.w / SAMPLE;
                *middle += x[if self.options.from_rows { channel * g.h * g.w + pixel } else { pixel * g.c + channel }];
            }
            *middle /= SAMPLE as f32;
        }
        middle
    }

    /// The sums over some images.
    fn add_up(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let [down, across] = windows(g);
        let [products, seen] = self.numbers();
        let totals = self.sums(task, io);
        // SAFETY: these sums belong to this task.
        let totals = unsafe { totals.slice_mut::<f64>(0..products + seen) };
        totals.fill(0.0);
        let [image, laid, passed, won, wide] = self.floats();
        let (at, end) = (image + laid + passed, image + laid + passed + won);
        // SAFETY: scratch belongs to this thread, and the parts do not overlap.
        let (before, won, behind) = unsafe {
            (
                io.scratch.slice_mut::<f32>(0..at),
                io.scratch.slice_mut::<u32>(at..end),
                io.scratch.slice_mut::<f32>(end..end + wide + products + seen),
            )
        };
        let (padded, before) = before.split_at_mut(image);
        let (laid, passed) = before.split_at_mut(laid);
        let (middle, sums) = behind.split_at_mut(wide);
        let of_channel = self.middle(io);
        middle.fill(0.0);
        (0..self.depth).for_each(|i| middle[i] = of_channel[i % g.c]);
        // SAFETY: nobody writes an input.
        let x = unsafe { io.inputs[IMAGES].slice::<f32>() };
        let size = g.h * g.w * g.c;
        let far = g.n * size * size_of::<f32>() > 4 * OWN;
        let images = share(g.n, self.tasks, task);
        for image in images.clone() {
            let from = &x[image * size..][..size];
            let all = 0..g.h + 2 * g.padding[0];
            let inside = &mut padded[..all.len() * g.padded_w() * g.c];
            pad_image(inside, from, g, all, self.options.from_rows);
            let next = if far && image + 1 < images.end { &x[(image + 1) * size..][..size] } else { &[] };
            sums.fill(0.0);
            for first in (0..down).step_by(self.rows) {
                prefetch_part(next, down.div_ceil(self.rows), first / self.rows);
                let rows = first..down.min(first + self.rows);
                let windows = (image * down + rows.start) * across..(image * down + rows.end) * across;
                self.lay(rows, padded, middle, laid);
                vectorized(
                    #[inline(always)]
                    || self.pass(windows.clone(), passed, won, io),
                );
                self.multiply(4 * windows.len(), laid, &mut sums[..products]);
                self.gather(windows, laid, (passed, won), &mut sums[products..], io);
            }
            // Short sums lose nothing; they are added up in double precision.
            vectorized(
                #[inline(always)]
                || totals.iter_mut().zip(&*sums).for_each(|(total, sum)| *total += f64::from(*sum)),
            );
        }
    }

    /// Lays what filters see in some rows of windows side by side.
    fn lay(&self, rows: Range<usize>, padded: &[f32], middle: &[f32], laid: &mut [f32]) {
        let g = &self.g;
        let row = 2 * g.stride[0] * g.padded_w() * g.c;
        let of_row = self.pixels.len() * self.wide;
        assert!(padded.len() >= self.floats()[0] && laid.len() >= rows.len() * of_row && middle.len() == self.wide);
        for (i, y) in rows.enumerate() {
            for (first, pieces) in (0..self.wide).step_by(lanes()).zip(&self.pieces) {
                let values = self.depth.saturating_sub(first).min(lanes());
                let behind = if first > self.depth { 0 } else { LANES - values };
                let lay = Lay {
                    image: padded[y * row..].as_ptr(),
                    pixels: &self.pixels,
                    pieces,
                    middle: middle[first..].as_ptr(),
                    values,
                    behind: BEHIND[behind..].as_ptr(),
                    wide: self.wide,
                    to: laid[i * of_row + first..].as_mut_ptr(),
                };
                // SAFETY: windows end inside the image with its padding, and registers in the room behind it; what is laid
                // has room by the check above.
                unsafe { layer(pieces.len())(&lay) };
            }
        }
    }

    /// The gradients of some windows as far as relu lets them pass, and how far from its first element on each one's winner
    /// lies.
    #[inline(always)]
    fn pass(&self, windows: Range<usize>, passed: &mut [f32], won: &mut [u32], io: &Io<'_>) {
        let values = windows.start * self.g.k..windows.end * self.g.k;
        // SAFETY: nobody writes an input.
        let input = |i: usize| unsafe { &io.inputs[i].slice::<f32>()[values.clone()] };
        for (passed, (slope, pooled)) in passed.iter_mut().zip(input(SLOPES).iter().zip(input(POOLED))) {
            *passed = if *pooled > 0.0 { *slope } else { 0.0 };
        }
        // SAFETY: as above.
        let places = unsafe { &io.inputs[PLACES].slice::<u8>()[values] };
        // One of four, whatever is there: the windows are read at this place.
        won.iter_mut().zip(places).for_each(|(won, place)| *won = u32::from(place & 3) * self.wide as u32);
    }

    /// Products of values with each other, of so many pixels' windows. Those of a value with one in an earlier register are
    /// left out: they are there the other way round.
    fn multiply(&self, count: usize, laid: &[f32], sums: &mut [f32]) {
        let most = products().len();
        assert!(laid.len() >= count * self.wide && sums.len() == self.square() * self.wide);
        for column in (0..self.depth + 1).step_by(micro::lanes()) {
            let halves = (self.square() - column) / 2;
            let blocks = halves.div_ceil(most);
            for block in 0..blocks {
                let some = share(halves, blocks, block);
                let row = column + 2 * some.start;
                let products_of = Products {
                    windows: laid.as_ptr(),
                    count,
                    wide: self.wide,
                    row,
                    column,
                    sums: sums[row * self.wide..].as_mut_ptr(),
                };
                // SAFETY: so many windows are laid, and there are so many rows of sums, by the check above.
                unsafe { products()[some.len() - 1](&products_of) };
            }
        }
    }

    /// What winners saw, times their gradients.
    fn gather(
        &self,
        windows: Range<usize>,
        laid: &[f32],
        (passed, won): (&[f32], &[u32]),
        sums: &mut [f32],
        io: &Io<'_>,
    ) {
        let k = self.g.k;
        let (gather, filters) = gatherer(self.wide);
        let count = windows.len();
        let there = laid.len() >= 4 * count * self.wide && passed.len() >= count * k && won.len() >= count * k;
        assert!(there && sums.len() == k * self.wide);
        let next = self.next(&windows, io);
        for (i, filter) in (0..k).step_by(filters).enumerate() {
            next.iter().for_each(|next| prefetch_part(next, k / filters, i));
            let some = Gather {
                windows: laid.as_ptr(),
                count,
                wide: self.wide,
                slopes: passed[filter..].as_ptr(),
                winners: won[filter..].as_ptr(),
                filters: k,
                sums: sums[filter * self.wide..].as_mut_ptr(),
            };
            // SAFETY: all of this is there by the check above, filters are a multiple of any machine's number, and winners
            // lie in their window.
            unsafe { gather(&some) };
        }
    }

    /// Gradients and pooled images of the windows that follow, where there are more than cores' own caches hold.
    fn next<'a>(&self, windows: &Range<usize>, io: &'a Io<'_>) -> [&'a [f32]; 2] {
        [SLOPES, POOLED].map(|input| {
            // SAFETY: nobody writes an input.
            let all = unsafe { io.inputs[input].slice::<f32>() };
            let end = (windows.end + windows.len()) * self.g.k;
            if size_of_val(all) > 4 * OWN { &all[windows.end * self.g.k..all.len().min(end)] } else { &[] }
        })
    }

    /// The gradients by some filters, of all tasks' sums.
    #[inline(always)]
    fn finish(&self, task: usize, io: &Io<'_>) {
        let (depth, wide) = (self.depth, self.wide);
        let filters = task * LANES..(task + 1) * LANES;
        let products = self.numbers()[0];
        let own = products + filters.start * wide..products + filters.end * wide;
        // SAFETY: scratch belongs to this thread.
        let (all, rest) =
            unsafe { io.scratch.slice_mut::<f64>(0..products + own.len() + 2 * wide) }.split_at_mut(products);
        let (winners, rest) = rest.split_at_mut(own.len());
        let (by_deviation, weight) = rest.split_at_mut(wide);
        all.fill(0.0);
        winners.fill(0.0);
        for part in 0..self.tasks {
            let part = self.sums(part, io);
            // SAFETY: sums are only read in this phase.
            let part = unsafe { part.slice::<f64>() };
            let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            add(all, &part[..products]);
            add(winners, &part[own.clone()]);
        }
        for row in 0..=depth {
            for column in row + 1..=depth {
                all[row * wide + column] = all[column * wide + row];
            }
        }
        // SAFETY: nobody writes an input.
        let input = |i: usize| unsafe { io.inputs[i].slice::<f32>() };
        let first = if self.options.affine { 2 } else { 0 };
        // SAFETY: these filters belong to this task, in every result.
        let output =
            |i: usize, of: usize| unsafe { io.outputs[i].slice_mut::<f32>(filters.start * of..filters.end * of) };
        let (ones, pixels) = (&all[depth * wide..], all[depth * wide + depth]);
        for (i, k) in filters.clone().enumerate() {
            for (value, at) in input(FILTERS)[k * depth..][..depth].iter().zip(&self.order) {
                weight[*at] = f64::from(*value);
            }
            let mean = weight[..depth].iter().zip(ones).map(|(weight, one)| weight * one).sum::<f64>() / pixels;
            weight[depth] = -mean;
            // The sum of what filters see times the distance from the mean.
            by_deviation.fill(0.0);
            for (weight, row) in weight[..=depth].iter().zip(all.chunks_exact(wide)) {
                by_deviation.iter_mut().zip(row).for_each(|(sum, product)| *sum += weight * product);
            }
            let winners = &winners[i * wide..][..wide];
            // The sums of slopes, and of slopes times the distance from the mean.
            let sum = winners[depth];
            let dot = weight[..=depth].iter().zip(winners).map(|(weight, seen)| weight * seen).sum::<f64>();
            let dev = f64::from(input(DEVIATION)[k]);
            let scale = dev * if self.options.affine { f64::from(input(SCALES)[k]) } else { 1.0 };
            let (average, tilt) = (sum / pixels, dot * dev * dev / pixels);
            let gradient = |at: usize| scale * (winners[at] - average * ones[at] - tilt * by_deviation[at]);
            let filter = &mut output(first, depth)[i * depth..][..depth];
            filter.iter_mut().zip(&self.order).for_each(|(value, at)| *value = gradient(*at) as f32);
            if self.options.bias {
                output(first + 1, 1)[i] = gradient(depth) as f32;
            }
            if self.options.affine {
                output(0, 1)[i] = (dot * dev) as f32;
                output(1, 1)[i] = sum as f32;
            }
        }
    }
}

/// Rows and columns of windows.
fn windows(g: &Geometry) -> [usize; 2] {
    [g.oh() / 2, g.ow() / 2]
}

impl Kernel for Backward {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks, self.g.k / LANES]
    }

    fn workspace(&self) -> usize {
        self.tasks * self.apart() * size_of::<f64>()
    }

    fn scratch(&self) -> usize {
        let [products, seen] = self.numbers();
        let adding = (self.floats().iter().sum::<usize>() + products + seen) * size_of::<f32>();
        let finishing = (products + (LANES + 2) * self.wide) * size_of::<f64>();
        adding.max(finishing)
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            return self.add_up(task, io);
        }
        vectorized(
            #[inline(always)]
            || self.finish(task, io),
        );
    }

    fn flops(&self) -> u64 {
        let pixels = (self.g.n * self.g.oh() * self.g.ow()) as u64;
        pixels * (self.depth * (self.depth + self.g.k / 2)) as u64
    }
}
