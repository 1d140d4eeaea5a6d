//! Where the tasks of a pass read its input.

use super::{Cut, Geometry, pad};
use crate::cpu::gemm::{self, micro::widths};
use crate::cpu::kernel::Io;
use crate::cpu::stream::{LINE, prefetch};
use std::ops::Range;

/// What the tasks of a pass read of its input: the images as they are, or copies of a few rows, in scratch.
///
/// Padded images are copied, because windows reach into the zeros around them; and so are pixels that would push each other
/// out of the L1 cache, because they lie so far apart, and by a power of two: of many channels, or at strides.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// The convolution of the images, and the same of what is read: of gathered pixels none is skipped.
    images: Geometry,
    pub g: Geometry,
    pub copied: bool,
    /// Floats from pixel to pixel.
    pub pixel: usize,
}

impl Source {
    pub fn new(images: Geometry) -> Self {
        Source { images, g: images, copied: images.padded(), pixel: images.c }
    }

    /// The same for a pass whose tiles broadcast pixels, with so many parts and panels: crowded ones are gathered.
    pub fn broadcast(images: Geometry, parts: usize, panels: usize) -> Self {
        if !images.points() || !crowded(images.stride[1] * images.c) || !worth_copies(parts, panels) {
            return Source::new(images);
        }
        let g = Geometry { h: images.oh(), w: images.ow(), stride: [1, 1], ..images };
        Source { images, g, copied: true, pixel: spread(images.c) }
    }

    /// Whether pixels are copied although nothing is around them.
    pub fn gathered(&self) -> bool {
        self.copied && !self.images.padded()
    }

    /// Floats from row to row.
    pub fn line(&self) -> usize {
        self.g.padded_w() * self.pixel
    }

    /// Floats from image to image, of which so many rows of the output are computed.
    pub fn image(&self, rows: usize) -> usize {
        self.line() * if self.copied { self.g.rows_under(rows) } else { self.g.h }
    }

    /// The floats that a task copies.
    pub fn floats(&self, cut: &Cut) -> usize {
        if self.copied { cut.images() * self.image(cut.block_rows()) } else { 0 }
    }

    /// What lies under some rows of the output: the images, or copies, of padded ones with the given channels only.
    pub fn rows(
        &self,
        cut: &Cut,
        images: Range<usize>,
        rows: Range<usize>,
        channels: Range<usize>,
        io: &Io<'_>,
    ) -> *const f32 {
        let g = &self.images;
        let first = rows.start * g.stride[0];
        if !self.copied {
            return io.inputs[0].ptr::<f32>().wrapping_add((images.start * g.h + first) * g.w * g.c);
        }
        let size = self.image(cut.block_rows());
        // SAFETY: no task writes an input.
        let x = unsafe { io.inputs[0].slice::<f32>() };
        for (i, image) in images.enumerate() {
            // SAFETY: scratch belongs to this thread.
            let out = unsafe { io.scratch.slice_mut(i * size..(i + 1) * size) };
            let x = &x[image * g.h * g.w * g.c..];
            if self.gathered() {
                gather(out, x, g, rows.clone(), self.pixel);
            } else {
                pad(out, x, g, first..first + g.rows_under(rows.len()), channels.clone(), self.pixel);
            }
        }
        io.scratch.ptr()
    }

    /// Asks for pixels that filters of one value meet, counted in the output over all images.
    pub fn prefetch(&self, pixels: Range<usize>, io: &Io<'_>) {
        let g = &self.images;
        for pixel in pixels {
            let (line, column) = (pixel / g.ow(), pixel % g.ow());
            let (image, row) = (line / g.oh(), line % g.oh());
            let at = ((image * g.h + row * g.stride[0]) * g.w + column * g.stride[1]) * g.c;
            prefetch(io.inputs[0].ptr::<f32>().wrapping_add(at), g.c);
        }
    }
}

/// Whether the pixels of a tile, so many floats apart, push each other out of the L1 cache.
pub(super) fn crowded(apart: usize) -> bool {
    gemm::crowded(widths()[widths().len() - 1].rows(), apart)
}

/// Floats from pixel to pixel of so many channels where they are not crowded: an odd number of cache lines, so that no two
/// pixels of a tile have a set of the L1 cache in common.
pub(super) fn spread(channels: usize) -> usize {
    (channels.div_ceil(LINE) | 1) * LINE
}

/// Panels at least for which a task copies crowded pixels.
pub(super) const WORTH: usize = 4;

/// Whether so many parts and panels are tasks enough, when each copies crowded pixels.
pub(super) fn worth_copies(parts: usize, panels: usize) -> bool {
    parts * (panels / WORTH) >= 16
}

/// Copies the pixels of an image that filters of one value meet for these rows of the output, at `stride` floats from pixel
/// to pixel.
fn gather(out: &mut [f32], image: &[f32], g: &Geometry, rows: Range<usize>, stride: usize) {
    let pixels = rows.flat_map(|row| (0..g.ow()).map(move |column| (row, column)));
    for (to, (row, column)) in out.chunks_exact_mut(stride).zip(pixels) {
        let from = (row * g.stride[0] * g.w + column * g.stride[1]) * g.c;
        to[..g.c].copy_from_slice(&image[from..from + g.c]);
    }
}
