//! Forward with neighbouring windows in a register's lanes, for few filters.
//!
//! An image's columns are dealt out first, so that those which one column of all windows meets lie side by side: then each
//! filter value meets a whole register, and the largest of a window's elements is found lane by lane. In Winograd's way they
//! lie as they come, and elements are dealt out instead.

use super::copies::Copies;
use super::micro::{Decks, Sums, decks, lanes, sums};
use super::winograd::{self, STRIP, Strips};
use super::{Geometry, LANES, NEAR, Options, greatest, pooled};
use crate::cpu::gemm::task_count;
use crate::cpu::kernel::{Io, Kernel, Prepared, Strand, Strands, share};
use crate::cpu::simd::vectorized;
use crate::cpu::stream::{OWN, prefetch_part};
use std::ops::Range;

/// See [`forward`](super::forward).
pub(super) struct Direct {
    g: Geometry,
    options: Options,
    /// Columns from a window to the next: so many decks a row is dealt out to. One in Winograd's way.
    decks: usize,
    /// Floats of a deck.
    deck: usize,
    /// Windows of a row with those that fill the last register.
    wide: usize,
    /// Rows of windows that are computed at once, and at most from one set of decks.
    unit: usize,
    rows: usize,
    /// For each column of a filter, where the two columns of the first window find theirs in a row's decks.
    columns: Vec<[usize; 2]>,
    /// How sums are made with fewer products.
    winograd: Option<Strips>,
    filters: Copies,
    tasks: usize,
}

impl Direct {
    /// In Winograd's way if that is `fast`er, and possible.
    pub fn new(g: Geometry, options: Options, fast: bool) -> Self {
        let [down, across] = pooled(&g);
        let wide = across.next_multiple_of(LANES);
        let whole = (2 * wide + (g.s - 1) * g.dilation[1]).max(g.padded_w()).next_multiple_of(LANES);
        let winograd = Strips::possible(&g, wide, whole).filter(|_| fast);
        let (decks, deck, unit, tasks) = if winograd.is_some() {
            (1, whole, STRIP, winograd::tasks(&g))
        } else {
            let decks = 2 * g.stride[1];
            let reach = (g.stride[1] + (g.s - 1) * g.dilation[1]) / decks;
            let deck = (wide + reach).max(g.padded_w().div_ceil(decks)).next_multiple_of(4);
            // Two rows of windows at least: neighbours look at the same rows of the image, which each task deals out for
            // itself.
            (decks, deck, 1, task_count(g.flops() as usize).min(g.n * down.div_ceil(2)))
        };
        let at = |column: usize| column % decks * deck + column / decks;
        let columns = (0..g.s).map(|s| [0, 1].map(|b| at(b * g.stride[1] + s * g.dilation[1]))).collect();
        let line = g.c * decks * deck * size_of::<f32>();
        let most = (NEAR / line.max(1)).saturating_sub(g.rows_under(2)) / (2 * g.stride[0]) + 1;
        let rows = most.min(down).next_multiple_of(unit);
        let filters = Copies::new(winograd.as_ref().map_or(0, Strips::workspace), tasks);
        Direct { g, options, decks, deck, wide, unit, rows, columns, winograd, filters, tasks }
    }

    /// Floats from row to row, and from channel to channel, of the decks.
    fn steps(&self) -> [usize; 2] {
        let row = self.decks * self.deck;
        [row, self.g.rows_under(2 * self.rows) * row]
    }

    /// Floats of decks, of the sums of a unit's windows, of a row's results, and of what Winograd's way needs.
    fn floats(&self) -> [usize; 4] {
        let sums = self.g.k * self.wide;
        let winograd = self.winograd.as_ref().map_or(0, Strips::scratch);
        [(self.g.c * self.steps()[1]).next_multiple_of(LANES), self.unit * 4 * sums, sums, winograd]
    }

    /// Deals out rows of an image, counted from the top of its padding.
    #[inline(always)]
    fn deal(&self, image: usize, rows: Range<usize>, out: &mut [f32], x: &[f32]) {
        let g = &self.g;
        let [top, left] = g.padding;
        let [row_step, channel_step] = self.steps();
        let image = &x[image * g.c * g.h * g.w..][..g.c * g.h * g.w];
        for c in 0..g.c {
            // At once for all padding: many short fills would take longer. Windows that only fill registers see anything.
            if g.padded() || rows.end > top + g.h {
                out[c * channel_step..][..rows.len() * row_step].fill(0.0);
            }
            if self.options.from_rows && (self.decks == 1 || left == 0 && self.decks == 2) {
                // The rows that lie in the image; none where all are padding below it.
                let [first, last] = [rows.start, rows.end].map(|row| row.clamp(top, top + g.h));
                let image = &image[(c * g.h + first - top) * g.w..][..(last - first) * g.w];
                let to = c * channel_step + first.saturating_sub(rows.start) * row_step;
                let out = &mut out[to..][..(last - first) * row_step];
                if self.decks == 1 {
                    for (from, out) in image.chunks_exact(g.w.max(1)).zip(out.chunks_exact_mut(row_step)) {
                        out[left..][..g.w].copy_from_slice(from);
                    }
                    continue;
                }
                assert!(2 * self.deck <= row_step && g.w.div_ceil(2) <= self.deck);
                let to = [out.as_mut_ptr(), out.as_mut_ptr().wrapping_add(self.deck)];
                let all = Decks { from: image.as_ptr(), columns: g.w, rows: last - first, to, step: row_step };
                // SAFETY: whole rows of both, each with room for two decks, by the slices and the check above.
                unsafe { decks()(&all) };
                continue;
            }
            for (i, row) in rows.clone().enumerate() {
                let Some(y) = row.checked_sub(top).filter(|y| *y < g.h) else { continue };
                let out = &mut out[c * channel_step + i * row_step..][..row_step];
                let (from, step) =
                    if self.options.from_rows { ((c * g.h + y) * g.w, 1) } else { (y * g.w * g.c + c, g.c) };
                let (mut deck, mut place) = (left % self.decks, left / self.decks);
                for value in image[from..].iter().step_by(step).take(g.w) {
                    out[deck * self.deck + place] = *value;
                    deck += 1;
                    if deck == self.decks {
                        (deck, place) = (0, place + 1);
                    }
                }
            }
        }
    }

    /// The sums of a row of windows: for each filter and each of a window's four elements, all windows side by side.
    fn convolve(&self, row: usize, dealt: &[f32], io: &Io<'_>, out: &mut [f32]) {
        let g = &self.g;
        let depth = g.c * g.r * g.s;
        let [row_step, channel_step] = self.steps();
        // SAFETY: nobody writes an input.
        let weight = unsafe { io.inputs[1].slice::<f32>() };
        assert!(weight.len() >= g.k * depth && out.len() >= 4 * g.k * self.wide);
        let (most, lanes) = (sums().len(), lanes());
        let blocks = g.k.div_ceil(most);
        for block in 0..blocks {
            let filters = share(g.k, blocks, block);
            for window in (0..self.wide).step_by(lanes) {
                let tile = Sums {
                    x: dealt[2 * row * g.stride[0] * row_step + window..].as_ptr(),
                    channels: (g.c, channel_step),
                    rows: (g.r, g.dilation[0] * row_step),
                    below: g.stride[0] * row_step,
                    columns: &self.columns,
                    weight: weight[filters.start * depth..].as_ptr(),
                    depth,
                    out: out[filters.start * 4 * self.wide + window..].as_mut_ptr(),
                    wide: self.wide,
                };
                // SAFETY: decks are as long as the last register of windows reaches, and the sums as wide.
                unsafe { sums()[filters.len() - 1](&tile) };
            }
        }
    }

    /// Pools a row of windows.
    #[inline(always)]
    fn pool<const PLACES: bool>(&self, row: usize, sums: &[f32], best: &mut [f32], io: &Io<'_>) {
        let (g, wide) = (&self.g, self.wide);
        let [down, across] = pooled(g);
        let (image, y) = (row / down, row % down);
        // SAFETY: nobody writes an input.
        let of_filter = |input: usize| unsafe { io.inputs[input].slice::<f32>() };
        for (k, (sums, best)) in sums.chunks_exact(4 * wide).zip(best.chunks_exact_mut(wide)).enumerate() {
            let bias = if self.options.bias { of_filter(2)[k] } else { 0.0 };
            let scale = self.options.scaled.then(|| of_filter(3)[k]);
            let at = ((image * g.k + k) * down + y) * across;
            for (i, best) in best.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // By loops and not by `map`, whose closures would not be compiled for the instruction set in use.
                let mut cells = [[0f32; LANES]; 4];
                for (j, cell) in cells.iter_mut().enumerate() {
                    cell.copy_from_slice(&sums[j * wide + i * LANES..][..LANES]);
                    if let Some(scale) = scale {
                        cell.iter_mut().for_each(|sum| *sum *= scale);
                    }
                }
                let (value, place) = greatest::<PLACES>(&cells, &[bias; LANES]);
                *best = value;
                if PLACES {
                    let count = LANES.min(across - i * LANES);
                    // SAFETY: this row of windows belongs to this task.
                    let places = unsafe { io.outputs[1].slice_mut::<u8>(at + i * LANES..at + i * LANES + count) };
                    copy(&place[..count], places);
                }
            }
        }
    }

    /// Writes a row of windows.
    #[inline(always)]
    fn write(&self, row: usize, best: &[f32], io: &Io<'_>) {
        let [down, across] = pooled(&self.g);
        if self.options.to_rows {
            for (k, best) in best.chunks_exact(self.wide).take(self.g.k).enumerate() {
                let at = ((row / down * self.g.k + k) * down + row % down) * across;
                // SAFETY: this row of windows belongs to this task.
                unsafe { io.outputs[0].slice_mut::<f32>(at..at + across) }.copy_from_slice(&best[..across]);
            }
            return;
        }
        let line = across * self.g.k;
        // SAFETY: this row of windows belongs to this task.
        let y = unsafe { io.outputs[0].slice_mut::<f32>(row * line..(row + 1) * line) };
        // Numbers that the compiler sees: moving a few floats at a time takes as long as knowing how many.
        macro_rules! of { ($($k:literal)*) => { match self.g.k {
            $($k => interleave::<$k>(best, self.wide, y),)*
            k => for (j, y) in y.chunks_exact_mut(k).enumerate() {
                y.iter_mut().zip(best.chunks_exact(self.wide)).for_each(|(y, best)| *y = best[j]);
            }
        } } }
        of!(1 2 3 4 5 6 7 9 10 11 12 13 14 15)
    }
}

/// Copies up to 16 bytes without a call.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    match (from.first_chunk::<8>(), from.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let rest = to.len() - 8;
            to[..8].copy_from_slice(first);
            to[rest..].copy_from_slice(last);
        }
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// `K` rows of `wide` floats as columns.
#[inline(always)]
fn interleave<const K: usize>(rows: &[f32], wide: usize, out: &mut [f32]) {
    assert!(rows.len() >= K * wide && out.len() <= K * wide);
    for (j, out) in out.as_chunks_mut::<K>().0.iter_mut().enumerate() {
        for (k, out) in out.iter_mut().enumerate() {
            *out = rows[k * wide + j];
        }
    }
}

impl Kernel for Direct {
    fn phases(&self) -> Vec<usize> {
        let tasks = if self.g.k == 0 { 0 } else { self.tasks };
        if self.winograd.is_some() { vec![tasks.min(self.filters.count()), tasks] } else { vec![tasks] }
    }

    fn workspace(&self) -> usize {
        self.filters.bytes()
    }

    fn prepared(&self) -> Option<Prepared> {
        self.winograd.as_ref().map(Strips::prepared)
    }

    fn strands(&self) -> Option<Strands> {
        let packs = self.winograd.as_ref().map(|_| Strand::of(self.filters.count()));
        let phases = packs.into_iter().chain([Strand::sharing(self.g.n, self.tasks)]).collect();
        Some(Strands { phases, inputs: vec![0], outputs: self.options.outputs() })
    }

    fn scratch(&self) -> usize {
        self.floats().iter().sum::<usize>() * size_of::<f32>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if let (Some(winograd), 0) = (&self.winograd, phase) {
            let io = &self.filters.io(task, io);
            return vectorized(
                #[inline(always)]
                || winograd.pack(io),
            );
        }
        let io = &self.filters.io(self.filters.of(task, self.tasks), io);
        let (g, unit) = (&self.g, self.unit);
        let down = pooled(g)[0];
        let of_image = down.div_ceil(unit);
        let all = share(g.n * of_image, self.tasks, task);
        let [decks, sums, best, more] = self.floats();
        // SAFETY: scratch belongs to this thread; nobody writes an input.
        let (scratch, x) =
            unsafe { (io.scratch.slice_mut::<f32>(0..decks + sums + best + more), io.inputs[0].slice::<f32>()) };
        let (dealt, rest) = scratch.split_at_mut(decks);
        let (sums, rest) = rest.split_at_mut(sums);
        let (best, more) = rest.split_at_mut(best);
        let far = g.n * g.c * g.h * g.w * size_of::<f32>() > 4 * OWN;
        let mut at = all.start;
        while at < all.end {
            let (image, first) = (at / of_image, at % of_image);
            let count = (self.rows / unit).min(of_image - first).min(all.end - at);
            let top = 2 * first * unit * g.stride[0];
            vectorized(
                #[inline(always)]
                || self.deal(image, top..top + g.rows_under(2 * count * unit), dealt, x),
            );
            // Planes are too short for the core to foresee the next image's.
            let ahead: &[f32] = if far && count == of_image && at + count < all.end {
                &x[(image + 1) * g.c * g.h * g.w..][..g.c * g.h * g.w]
            } else {
                &[]
            };
            for i in 0..count {
                prefetch_part(ahead, count, i);
                match &self.winograd {
                    Some(strips) => strips.convolve(2 * STRIP * i, dealt, self.steps()[1], more, io, sums),
                    None => self.convolve(i, dealt, io, sums),
                }
                let rows = (first + i) * unit..down.min((first + i + 1) * unit);
                vectorized(
                    #[inline(always)]
                    || {
                        for (row, sums) in rows.zip(sums.chunks_exact(4 * g.k * self.wide)) {
                            let row = image * down + row;
                            match self.options.places {
                                true => self.pool::<true>(row, sums, best, io),
                                false => self.pool::<false>(row, sums, best, io),
                            }
                            self.write(row, best, io);
                        }
                    },
                );
            }
            at += count;
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops()
    }
}
