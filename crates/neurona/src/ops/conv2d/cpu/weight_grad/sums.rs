//! What follows the products: parts added up, and sums turned into the filters' order.

use super::{Way, WeightGrad};
use crate::cpu::kernel::{Io, share};
use crate::cpu::simd::vectorized;
use std::ops::Range;

/// Filters whose sums lie side by side and are added up together.
pub(super) const STREAMS: usize = 16;

impl WeightGrad {
    /// Turns a task's sums `[filter][tap][channel]` into OIHW.
    pub(super) fn turn(&self, group: usize, row_block: usize, channels: Range<usize>, stride: usize, io: &Io<'_>) {
        let g = &self.g;
        let (c, taps) = (g.group_c(), g.taps());
        let filters = share(g.group_k(), self.blocks.0, row_block);
        vectorized(
            #[inline(always)]
            || {
                for (i, filter) in filters.enumerate() {
                    let from = self.source.floats(&self.cut) + i * taps * stride;
                    let at = (group * g.group_k() + filter) * c * taps;
                    // SAFETY: scratch belongs to this thread, and these channels of these filters to this task.
                    let (from, dw) = unsafe {
                        let dw = io.outputs[0].slice_mut(at + channels.start * taps..at + channels.end * taps);
                        (io.scratch.slice_mut::<f32>(from..from + taps * stride), dw)
                    };
                    for (channel, dw) in dw.chunks_exact_mut(taps).enumerate() {
                        let from = from[channel..].iter().step_by(stride);
                        dw.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                    }
                }
            },
        );
    }

    /// Floats of a few filters that are added up at once: short ones together make whole registers.
    pub(super) fn room(&self) -> usize {
        let size = self.g.group_c() * self.g.taps();
        (2048 / size.max(1)).max(1) * size
    }

    /// Adds up the parts of some filters.
    pub(super) fn reduce(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let size = g.group_c() * g.taps();
        let filters = share(g.k.div_ceil(self.filters), self.reduces, task);
        let filters = filters.start * self.filters..g.k.min(filters.end * self.filters);
        // SAFETY: no task writes the workspace during this phase; these filters belong to this
        // task, and scratch to this thread.
        let (sums, dw, room) = unsafe {
            let dw = io.outputs[0].slice_mut::<f32>(filters.start * size..filters.end * size);
            (io.workspace.slice::<f32>(), dw, io.scratch.slice_mut::<f32>(0..self.room()))
        };
        let parts = self.cut.parts();
        if self.with_bias {
            // SAFETY: as above.
            let db = unsafe { io.outputs[1].slice_mut::<f32>(filters.clone()) };
            let partials = &sums[self.bias_at()..];
            for (db, filter) in db.iter_mut().zip(filters.clone()) {
                *db = (0..parts).map(|part| partials[part * g.k + filter]).sum();
            }
        }
        if size == 0 || self.alone.is_some() {
            return;
        }
        vectorized(
            #[inline(always)]
            || match self.way {
                Way::Gradients { .. } => {
                    let several = room.len() / size;
                    for (first, dw) in filters.step_by(several).zip(dw.chunks_mut(several * size)) {
                        let total = if g.taps() == 1 { &mut *dw } else { &mut room[..dw.len()] };
                        total.fill(0.0);
                        for part in 0..parts {
                            let from = &sums[part * self.partial() + first * size..][..total.len()];
                            total.iter_mut().zip(from).for_each(|(sum, x)| *sum += x);
                        }
                        if g.taps() == 1 {
                            continue;
                        }
                        for (dw, from) in dw.chunks_exact_mut(size).zip(room.chunks_exact(size)) {
                            for (channel, dw) in dw.chunks_exact_mut(g.taps()).enumerate() {
                                let from = from[channel..].iter().step_by(g.group_c());
                                dw.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                            }
                        }
                    }
                }
                Way::Windows => self.reduce_windows(filters, dw, sums),
            },
        );
    }

    #[inline(always)]
    fn reduce_windows(&self, filters: Range<usize>, dw: &mut [f32], sums: &[f32]) {
        let g = &self.g;
        let (c, k, taps) = (g.group_c(), g.group_k(), g.taps());
        let size = c * taps;
        let mut first = filters.start;
        while first < filters.end {
            let group = first / k;
            let count = STREAMS.min(filters.end - first).min((group + 1) * k - first);
            let dw = &mut dw[(first - filters.start) * size..][..count * size];
            for (channel, tap) in (0..c).flat_map(|c| (0..taps).map(move |t| (c, t))) {
                let at = group * k * size + (tap * c + channel) * k + first % k;
                let mut sum = [0f32; STREAMS];
                for part in 0..self.cut.parts() {
                    let from = &sums[part * self.partial() + at..];
                    if count == STREAMS {
                        sum.iter_mut().zip(&from[..STREAMS]).for_each(|(sum, x)| *sum += x);
                    } else {
                        sum.iter_mut().zip(&from[..count]).for_each(|(sum, x)| *sum += x);
                    }
                }
                for (j, sum) in sum[..count].iter().enumerate() {
                    dw[j * size + channel * taps + tap] = *sum;
                }
            }
            first += count;
        }
    }
}

/// Adds rows of `k` floats, of which only `columns` are wanted, to their sums.
pub(in super::super) fn column_sums(out: &mut [f32], rows: &[f32], k: usize, columns: Range<usize>) {
    const ROOM: usize = 512;
    vectorized(
        #[inline(always)]
        || {
            if columns.len() < k || k > ROOM / 2 {
                for row in rows.chunks_exact(k) {
                    out.iter_mut().zip(&row[columns.clone()]).for_each(|(sum, x)| *sum += x);
                }
                return;
            }
            // Several short rows at once make whole registers, and chains of additions apart.
            let several = ROOM / k * k;
            let mut sums = [0f32; ROOM];
            for rows in rows.chunks(several) {
                sums.iter_mut().zip(rows).for_each(|(sum, x)| *sum += x);
            }
            for sums in sums[..several].chunks_exact(k) {
                out.iter_mut().zip(sums).for_each(|(sum, x)| *sum += x);
            }
        },
    );
}
