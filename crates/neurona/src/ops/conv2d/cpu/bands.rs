//! A convolution of few channels that batch normalisation follows, a band of rows at a time: while that is in the first cache,
//! it is measured, and pooled where only the winners of windows of 2 by 2 are needed.
//!
//! Which element wins is known before anything is normalised: the greatest, or where a channel's scale is negative the
//! least. Of a scale of 0 all are equal, and the first wins.

use super::forward::Band;
use super::measure::{Measure, TOGETHER, WIDEST};
use super::{Forward, Geometry, pad_image};
use crate::cpu::block::Block;
use crate::cpu::gemm::{Activation, task_count};
use crate::cpu::kernel::{Buf, Io, Kernel, Prepared, share};
use crate::cpu::math::Real;
use crate::cpu::simd::{InBlocks, in_blocks};
use crate::cpu::stream::{OWN, prefetch, prefetch_part};
use crate::ops::batch_norm::cpu::record;
use std::ops::Range;

/// Bytes of a band, which stays in the first cache.
const NEAR: usize = 16 << 10;
/// Pixels of a part at most, about: sums of more lose digits.
const PIXELS: usize = 2048;
/// Images at least: each is one task's.
const IMAGES: usize = 16;
/// Floats of an image with its padding that a core's own cache holds beside the rest.
const IMAGE: usize = 32 << 10;
/// Elements of a window.
const CELLS: usize = 4;
/// Filters that are pooled together, at least: whole registers, on every machine.
const LANES: usize = 16;

/// What is asked for instead of the images, beside their statistics: the winners of their windows and where they stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Winners {
    /// Scales are the last input; else all are positive.
    pub scales: bool,
    /// The images that are convolved come by rows.
    pub from_rows: bool,
}

/// Inputs: images `[n, h, w, c]` unless they come by rows, weight `[k, c, r, s]`; when asked a bias of `k`, and a scale of
/// `k` of which the signs matter.
/// Outputs: images `[n, oh, ow, k]`, or winners `[n, oh/2, ow/2, k]`; a [`record`] a part; with winners their places.
pub(crate) struct Bands {
    g: Geometry,
    /// The same of one image whose padding belongs to it.
    padded: Geometry,
    band: Band,
    bias: bool,
    winners: Option<Winners>,
    rows: usize,
    tasks: usize,
}

impl Bands {
    /// A convolution of these sizes, if this way is made for them. Whether it is depends on sizes alone, so that the
    /// statistics of a network have the same bits whoever else reads what it gives.
    pub fn new(g: Geometry, bias: bool, winners: Option<Winners>) -> Option<Self> {
        let padded_h = g.h + 2 * g.padding[0];
        let [down, across] = [g.oh(), g.ow()];
        let halves = down > 0 && across > 0 && down.is_multiple_of(2) && across.is_multiple_of(2);
        let filters = g.k.is_multiple_of(LANES) && (1..=WIDEST).contains(&g.k);
        let small = (1..=DEPTH).contains(&(g.c * g.taps())) && padded_h * g.padded_w() * g.c <= IMAGE;
        if g.groups != 1 || g.n < IMAGES || !halves || !filters || !small || !Forward::is_product(g) {
            return None;
        }
        let padded = Geometry { n: 1, h: padded_h, w: g.padded_w(), padding: [0, 0], ..g };
        let rows = 2 * (NEAR / (2 * across * g.k * size_of::<f32>())).clamp(1, down / 2);
        let band = Band::new(padded, bias, false, Activation::None, rows)?;
        let tasks = task_count(g.flops() as usize).max(g.n * down * across / PIXELS).min(g.n);
        Some(Bands { g, padded, band, bias, winners, rows, tasks })
    }

    /// Parts of the pixels that are measured.
    pub fn parts(&self) -> usize {
        self.tasks
    }

    fn by_rows(&self) -> bool {
        self.winners.is_some_and(|winners| winners.from_rows)
    }

    /// Whether images are laid anew in scratch.
    fn laid_anew(&self) -> bool {
        self.g.padded() || self.by_rows()
    }

    /// Floats of an image with its padding, and of a band.
    fn floats(&self) -> [usize; 2] {
        let image = self.padded.h * self.padded.w * self.g.c;
        let band = if self.winners.is_some() { self.rows * self.g.ow() * self.g.k } else { 0 };
        [if self.laid_anew() { image.next_multiple_of(LANES) } else { 0 }, band]
    }

    /// Bytes at the start of scratch that convolving needs.
    fn before(&self) -> usize {
        self.band.scratch().next_multiple_of(64)
    }

    /// Where an image and its padding lie.
    fn image(&self, image: usize, io: &Io<'_>) -> Buf {
        let (g, size) = (&self.g, self.g.h * self.g.w * self.g.c);
        let given = io.inputs[0].part::<f32>(image * size, size);
        if !self.laid_anew() {
            return given;
        }
        let floats = self.padded.h * self.padded.w * g.c;
        let room = io.scratch.part::<u8>(self.before(), floats * size_of::<f32>());
        // SAFETY: nobody writes an input; scratch belongs to this thread.
        let (from, to) = unsafe { (given.slice::<f32>(), room.slice_mut::<f32>(0..floats)) };
        pad_image(to, from, g, 0..self.padded.h, self.by_rows());
        room
    }

    fn some_images(&self, task: usize, io: &Io<'_>) {
        let (g, line) = (&self.g, self.g.ow() * self.g.k);
        let [image_floats, band_floats] = self.floats();
        let band_at = self.before() / size_of::<f32>() + image_floats;
        // SAFETY: scratch belongs to this thread, and the image ends before.
        let room = unsafe { io.scratch.slice_mut::<f32>(band_at..band_at + band_floats) };
        let size = g.h * g.w * g.c;
        let far = g.n * size * size_of::<f32>() > 4 * OWN;
        let images = share(g.n, self.tasks, task);
        let signs = self.signs(io);
        let mut measure = Measure::new(g.k);
        for image in images.clone() {
            let inputs = [self.image(image, io), io.inputs[1], if self.bias { io.inputs[2] } else { Buf::empty() }];
            let of_band = Io { inputs: &inputs[..2 + usize::from(self.bias)], ..*io };
            // SAFETY: nobody writes an input.
            let x = unsafe { io.inputs[0].slice::<f32>() };
            let next = if far && image + 1 < images.end { &x[(image + 1) * size..][..size] } else { &[] };
            let bands = g.oh().div_ceil(self.rows);
            for band in 0..bands {
                prefetch_part(next, bands, band);
                let rows = band * self.rows..g.oh().min((band + 1) * self.rows);
                let floats = rows.len() * line;
                let y = match self.winners {
                    Some(_) => &mut room[..floats],
                    None => {
                        let at = (image * g.oh() + rows.start) * line;
                        // SAFETY: this image belongs to this task.
                        unsafe { io.outputs[0].slice_mut::<f32>(at..at + floats) }
                    }
                };
                self.band.rows(0, rows.clone(), y, &of_band);
                self.look(image, rows, y, &signs, &mut measure, io);
            }
        }
        measure.put(io, task, g.k, 0);
    }

    /// The sign of each channel's scale.
    fn signs(&self, io: &Io<'_>) -> [f32; WIDEST] {
        let mut signs = [1.0; WIDEST];
        if self.winners.is_some_and(|winners| winners.scales) {
            // SAFETY: nobody writes an input.
            let scales = unsafe { io.inputs[io.inputs.len() - 1].slice::<f32>() };
            for (sign, scale) in signs.iter_mut().zip(&scales[..self.g.k]) {
                *sign = if *scale == 0.0 { 0.0 } else { scale.signum() };
            }
        }
        signs
    }

    /// Measures a band, and pools it where winners are asked for.
    fn look(
        &self,
        image: usize,
        rows: Range<usize>,
        band: &[f32],
        signs: &[f32; WIDEST],
        measure: &mut Measure,
        io: &Io<'_>,
    ) {
        let (g, line) = (&self.g, self.g.ow() / 2 * self.g.k);
        let first: [usize; TOGETHER] = std::array::from_fn(|i| i * g.k);
        let count = band.len() / g.k;
        // SAFETY: so many pixels are there.
        let [near, sums, squares] = unsafe { measure.taking(band.as_ptr(), &first[..TOGETHER.min(count)], count) };
        let at = (image * g.oh() / 2 + rows.start / 2) * line;
        let own = if self.winners.is_some() { at..at + rows.len() / 2 * line } else { 0..0 };
        let places = if self.winners.is_some() { io.outputs[2] } else { Buf::empty() };
        // SAFETY: this image belongs to this task; where winners are not asked for, nothing is taken.
        let (winners, places) =
            unsafe { (io.outputs[0].slice_mut::<f32>(own.clone()), places.slice_mut::<u8>(own.clone())) };
        if g.n * g.oh() * line * size_of::<f32>() > 8 * OWN {
            // Lines come from memory even to be overwritten: the next band's.
            prefetch(winners.as_ptr().wrapping_add(own.len()), own.len());
        }
        in_blocks(Look { k: g.k, ow: g.ow(), band, signs, near, sums, squares, winners, places });
    }
}

/// A band, its sums, and the winners of its windows, if they are asked for.
struct Look<'a> {
    k: usize,
    ow: usize,
    band: &'a [f32],
    signs: &'a [f32; WIDEST],
    near: &'a [f32; WIDEST],
    sums: &'a mut [f32; WIDEST],
    squares: &'a mut [f32; WIDEST],
    winners: &'a mut [f32],
    places: &'a mut [u8],
}

impl InBlocks for Look<'_> {
    #[inline(always)]
    fn run<const WIDE: usize>(mut self) {
        for channel in (0..self.k).step_by(WIDE) {
            // SAFETY: arrays need no instructions, and blocks of 16 are asked for where there is AVX-512 alone.
            unsafe {
                match (WIDE, self.winners.is_empty()) {
                    (16, true) => self.channels::<<f32 as Real>::Sixteen, WIDE, false>(channel),
                    (16, false) => self.channels::<<f32 as Real>::Sixteen, WIDE, true>(channel),
                    (_, true) => self.channels::<[f32; WIDE], WIDE, false>(channel),
                    (_, false) => self.channels::<[f32; WIDE], WIDE, true>(channel),
                }
            }
        }
    }
}

impl Look<'_> {
    /// Some channels of all windows: the first of the greatest by these signs wins, and NaN over numbers, as in a pool.
    ///
    /// # Safety
    /// The machine must have the block's instructions.
    #[inline(always)]
    unsafe fn channels<B: Block<f32>, const WIDE: usize, const POOLS: bool>(&mut self, channel: usize) {
        let across = self.ow / 2;
        let steps = [0, 1, self.ow, self.ow + 1].map(|pixels| pixels * self.k);
        // SAFETY: the caller's promise.
        unsafe {
            let (zero, near, sign) = (B::splat(0.0), B::load(self.near, channel), B::load(self.signs, channel));
            // One sum for each element of a window: additions that need not wait for each other, and short sums.
            let (mut sums, mut squares) = ([zero; CELLS], [zero; CELLS]);
            for row in 0..self.band.len() / (2 * self.ow * self.k) {
                for column in 0..across {
                    let pixel = (row * 2 * self.ow + 2 * column) * self.k + channel;
                    let (mut winner, mut best, mut place) = (zero, zero, zero);
                    for i in 0..CELLS {
                        let value = B::load(self.band, pixel + steps[i]);
                        let apart = value.sub(near);
                        sums[i] = sums[i].add(apart);
                        squares[i] = squares[i].add(apart.mul(apart));
                        let signed = value.mul(sign);
                        if i == 0 {
                            (winner, best) = (value, signed);
                        } else {
                            let wins = signed.beats(best);
                            best = B::choose(wins, signed, best);
                            winner = B::choose(wins, value, winner);
                            place = B::choose(wins, B::splat(i as f32), place);
                        }
                    }
                    if POOLS {
                        let at = (row * across + column) * self.k + channel;
                        winner.store(self.winners, at);
                        let mut numbers = [0.0; WIDE];
                        place.store(&mut numbers, 0);
                        for (place, number) in self.places[at..at + WIDE].iter_mut().zip(numbers) {
                            // SAFETY: one of the numbers 0 to 3.
                            *place = number.to_int_unchecked::<i32>() as u8;
                        }
                    }
                }
            }
            for (cells, all) in [(sums, &mut *self.sums), (squares, &mut *self.squares)] {
                let band = cells[0].add(cells[1]).add(cells[2].add(cells[3]));
                B::load(all, channel).add(band).store(all, channel);
            }
        }
    }
}

impl Kernel for Bands {
    fn phases(&self) -> Vec<usize> {
        vec![self.band.packs(), self.tasks]
    }

    fn workspace(&self) -> usize {
        self.band.workspace()
    }

    fn prepared(&self) -> Option<Prepared> {
        self.band.prepared()
    }

    fn scratch(&self) -> usize {
        self.before() + self.floats().iter().sum::<usize>() * size_of::<f32>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 { self.band.pack(task, io) } else { self.some_images(task, io) }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}

/// Values of a window at most: the gradient multiplies each by each ([`crate::ops::conv2d_norm_pool`]).
pub(crate) const DEPTH: usize = 31;

/// Numbers of a convolution's statistics, in parts.
pub(crate) fn statistics(g: Geometry) -> [usize; 2] {
    let parts = match Bands::new(g, false, None) {
        Some(bands) => bands.parts(),
        None => Forward::parts_of(g),
    };
    [parts, record(g.k)]
}
