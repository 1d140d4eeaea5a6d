//! The transform of filters.

use super::micro::{Filters, WIDEST, loops};
use super::{Geometry, PART, POINTS, TAPS};
use crate::cpu::gemm::panel::Transposed;
use crate::cpu::kernel::Io;
use std::ops::Range;

/// Some filters that are used together, at most as many as a register has lanes, and some of their channels.
pub(super) struct Block {
    pub filters: Range<usize>,
    pub channels: Range<usize>,
    pub scaled: bool,
}

impl Block {
    /// Bytes of scratch for so many channels.
    pub fn scratch(channels: usize) -> usize {
        TAPS * TAPS * channels * WIDEST * size_of::<f32>()
    }

    /// Transforms them to `[point along][part][channel][3][filter]`, with all channels and a register of filters, from float
    /// `at` of the workspace on.
    ///
    /// # Safety
    /// The block is part of the geometry; these values belong to this task, and the workspace has room for them.
    pub unsafe fn pack(&self, g: &Geometry, at: usize, io: &Io<'_>) {
        let (lanes, taps, channels) = (loops().lanes, TAPS * TAPS, self.channels.len());
        let (filters, scratch) = (self.filters.len(), io.scratch.ptr::<f32>());
        let weight = io.inputs[1].ptr::<f32>().wrapping_add((self.filters.start * g.c + self.channels.start) * taps);
        let packed = Transposed {
            source: weight,
            stride: g.c * taps,
            columns: filters,
            taps,
            groups: channels,
            step: lanes,
            width: lanes,
            range: 0..channels * taps,
        };
        // SAFETY: no task writes an input; scratch belongs to this thread.
        unsafe { packed.pack(scratch) };
        let mut scale = [1f32; WIDEST];
        if self.scaled {
            // SAFETY: no task writes an input.
            scale[..filters].copy_from_slice(unsafe { &io.inputs[3].slice::<f32>()[self.filters.clone()] });
        }
        for (i, channel) in self.channels.clone().enumerate() {
            let to = io.workspace.ptr::<f32>().wrapping_add(at + channel * PART * lanes);
            let taps = scratch.wrapping_add(i * lanes);
            let (tap, part) = (channels * lanes, g.c * PART * lanes);
            // SAFETY: the taps have just been packed; the caller's promise for what is written.
            unsafe { (loops().filters)(&Filters { taps, tap, scale, to, part }) };
        }
    }

    /// Floats of so many filters' values for all channels.
    pub fn floats(g: &Geometry, filters: usize) -> usize {
        POINTS * g.c * filters
    }
}
