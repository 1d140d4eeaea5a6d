//! Convolution on CPU cores.
//!
//! Images are NHWC here, so that the values under a filter row are one run of memory: all three
//! passes are matrix products whose operands are read where they lie, without an im2col copy.
//! Only padding, and pixels that would be crowded in the cache, cost a copy, of the few rows that a task needs. Weights are
//! OIHW outside.

mod bands;
mod few;
mod forward;
mod grouped;
mod input_grad;
mod measure;
mod meetings;
mod source;
#[cfg(test)]
mod tests;
mod weight_grad;
mod winograd;

pub(crate) use bands::{Bands, DEPTH, Winners, statistics};
pub(crate) use forward::Band;
pub use forward::Forward;
pub use input_grad::InputGrad;
pub(crate) use weight_grad::Fresh;
pub use weight_grad::WeightGrad;
pub(crate) use winograd::on as winograd_on;

use crate::cpu::gemm::Activation;
use crate::cpu::kernel::{Kernel, share};
use crate::cpu::stream::FAR;
use crate::ops::permute::cpu::interleave;
use crate::ops::sgd_step::Options;
use few::{Few, Pass};
use std::ops::Range;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Images.
    pub n: usize,
    /// Channels of the input.
    pub c: usize,
    /// Height of the input.
    pub h: usize,
    /// Width of the input.
    pub w: usize,
    /// Channels of the output.
    pub k: usize,
    /// Height of the filters.
    pub r: usize,
    /// Width of the filters.
    pub s: usize,
    /// Rows and columns from one output to the next.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [usize; 2],
    /// Rows and columns from one filter value to the next.
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    pub groups: usize,
}

impl Geometry {
    /// Height of the output.
    pub fn oh(&self) -> usize {
        extent(self.h, self.r, self.stride[0], self.padding[0], self.dilation[0])
    }

    /// Width of the output.
    pub fn ow(&self) -> usize {
        extent(self.w, self.s, self.stride[1], self.padding[1], self.dilation[1])
    }

    /// Arithmetic of one pass.
    pub fn flops(&self) -> u64 {
        2 * (self.n * self.oh() * self.ow() * self.k * self.taps() * self.group_c()) as u64
    }

    /// Input channels of one group.
    fn group_c(&self) -> usize {
        self.c / self.groups.max(1)
    }

    /// Output channels of one group.
    fn group_k(&self) -> usize {
        self.k / self.groups.max(1)
    }

    /// Whether pixels and channels are all there is, and pixels are few: gradients are then matrix products whose operands
    /// are worth packing. Unpacked, pixels of many channels, often a power of two, meet in the same lines of the cache,
    /// and few of them are short sums for the weights. With more pixels, packing costs more than it gives.
    fn few_points(&self) -> bool {
        self.points() && self.groups == 1 && self.stride == [1, 1] && self.n * self.h * self.w <= 2048
    }

    /// Whether a filter is one value that meets pixels only.
    fn points(&self) -> bool {
        self.taps() == 1 && !self.padded()
    }

    /// Whether images and results are too large for any cache: what comes next is then asked for while something else is
    /// computed.
    fn far(&self) -> bool {
        self.n * (self.h * self.w * self.c + self.oh() * self.ow() * self.k) * size_of::<f32>() > FAR
    }

    /// Values of a filter for one channel.
    pub(crate) fn taps(&self) -> usize {
        self.r * self.s
    }

    pub(crate) fn padded(&self) -> bool {
        self.padding != [0, 0]
    }

    /// Width of an image with its padding.
    pub(crate) fn padded_w(&self) -> usize {
        self.w + 2 * self.padding[1]
    }

    /// The filter rows (axis 0) or columns (axis 1) that lie on the image when the filter is at an output row or column;
    /// the others lie on its padding.
    fn reach(&self, axis: usize, at: usize) -> Range<usize> {
        self.inside(axis, at * self.stride[axis], self.dilation[axis], [self.r, self.s][axis])
    }

    /// The output rows or columns at which a filter row or column lies on the image.
    fn reached(&self, axis: usize, tap: usize) -> Range<usize> {
        self.inside(axis, tap * self.dilation[axis], self.stride[axis], [self.oh(), self.ow()][axis])
    }

    /// Which of `count` places, `step` apart from this one in the padded image, are not padding.
    fn inside(&self, axis: usize, from: usize, step: usize, count: usize) -> Range<usize> {
        let (padding, size) = (self.padding[axis], [self.h, self.w][axis]);
        let before = |end: usize| end.saturating_sub(from).div_ceil(step).min(count);
        before(padding)..before(padding + size).max(before(padding))
    }

    /// Padded input rows under `rows` output rows.
    pub(crate) fn rows_under(&self, rows: usize) -> usize {
        if rows == 0 { 0 } else { (rows - 1) * self.stride[0] + (self.r - 1) * self.dilation[0] + 1 }
    }
}

/// The fastest kernel of a convolution; see [`Forward`].
pub fn forward(g: Geometry, bias: bool, scaled: bool, activation: Activation) -> Box<dyn Kernel> {
    // Filters with a scale are those of inference, where packed ones are good for many runs.
    match Few::new(g, Pass::Forward { bias, activation }).filter(|_| !scaled) {
        Some(few) => Box::new(few),
        None => Box::new(Forward::new(g, bias, scaled, activation)),
    }
}

/// That kernel with relu and a pool of 2 by 2 behind it, if it is one that can have them. Scaled filters are those of
/// inference, as above.
pub(crate) fn forward_pooled(g: Geometry, bias: bool, scaled: bool) -> Option<Box<dyn Kernel>> {
    if !scaled && Few::new(g, Pass::Forward { bias, activation: Activation::Relu }).is_some() {
        return None;
    }
    Some(Box::new(Forward::new(g, bias, scaled, Activation::Relu).pooling()?))
}

/// Whether that kernel can measure what it gives, for batch normalisation.
pub(crate) fn measures(g: Geometry) -> bool {
    Few::new(g, Pass::Forward { bias: false, activation: Activation::None }).is_none()
}

/// The fastest kernel that measures what it gives, which nothing has changed yet.
pub(crate) fn measuring(g: Geometry, bias: bool) -> Box<dyn Kernel> {
    match Bands::new(g, bias, None) {
        Some(bands) => Box::new(bands),
        None => Box::new(Forward::new(g, bias, false, Activation::None).measuring()),
    }
}

/// The fastest kernel of its gradient for the input; see [`InputGrad`].
pub fn input_grad(g: Geometry) -> Box<dyn Kernel> {
    match Few::new(g, Pass::InputGrad) {
        Some(few) => Box::new(few),
        None => Box::new(InputGrad::new(g)),
    }
}

/// The fastest kernel of its gradient for the weights; see [`WeightGrad`].
pub fn weight_grad(g: Geometry, with_bias: bool) -> Box<dyn Kernel> {
    match Few::new(g, Pass::WeightGrad { with_bias, step: None }) {
        Some(few) => Box::new(few),
        None => Box::new(WeightGrad::new(g, with_bias)),
    }
}

/// The gradient for the weights and a step along it at once, where the two are faster together: when gradients would
/// have gone from the caches until the step comes to them. Operands and results as [`few::Pass`] says.
pub(super) fn weight_grad_step(g: Geometry, with_bias: bool, step: Options) -> Option<Box<dyn Kernel>> {
    Few::new(g, Pass::WeightGrad { with_bias, step: Some(step) }).map(|few| Box::new(few) as _)
}

fn extent(size: usize, filter: usize, stride: usize, padding: usize, dilation: usize) -> usize {
    let reach = dilation * filter.saturating_sub(1) + 1;
    if filter == 0 || size + 2 * padding < reach { 0 } else { (size + 2 * padding - reach) / stride + 1 }
}

/// Bytes of a panel of weights that stay in the second-level cache while its pixels meet it.
const CACHE: usize = 640 << 10;

/// Pixels that a task should have at least: a few tiles, so that weights are read for many.
const PIXELS: usize = 56;

/// How the pixels of a batch are cut: into groups of images, and images into blocks of rows when
/// the images are few.
#[derive(Clone, Copy)]
struct Cut {
    n: usize,
    rows: usize,
    groups: usize,
    blocks: usize,
}

impl Cut {
    /// Cuts `n` images of `rows × columns` pixels into about `tasks` parts of no fewer than
    /// `least` pixels.
    fn new(n: usize, rows: usize, columns: usize, tasks: usize, least: usize) -> Self {
        let pixels = rows * columns;
        if n == 0 || pixels == 0 {
            return Cut { n, rows, groups: 0, blocks: 1 };
        }
        let images = n.div_ceil(tasks.max(1)).max(least / pixels).clamp(1, n);
        let groups = n.div_ceil(images);
        let most = (pixels / least).clamp(1, rows);
        let blocks = if images == 1 { tasks.div_ceil(groups).clamp(1, most) } else { 1 };
        Cut { n, rows, groups, blocks }
    }

    /// Number of parts.
    fn parts(&self) -> usize {
        self.groups * self.blocks
    }

    /// Most images of a part.
    fn images(&self) -> usize {
        self.n.div_ceil(self.groups.max(1))
    }

    /// Most rows of a part.
    fn block_rows(&self) -> usize {
        self.rows.div_ceil(self.blocks)
    }

    /// The images and rows of a part.
    fn part(&self, part: usize) -> (Range<usize>, Range<usize>) {
        (share(self.n, self.groups, part / self.blocks), share(self.rows, self.blocks, part % self.blocks))
    }
}

/// Copies rows of an image with zeros around them: `rows` count from the top of the padding, and
/// `channels` of each pixel are kept, at `stride` floats from pixel to pixel.
fn pad(out: &mut [f32], image: &[f32], g: &Geometry, rows: Range<usize>, channels: Range<usize>, stride: usize) {
    let [top, left] = g.padding;
    let line = g.padded_w() * stride;
    for (row, out) in rows.zip(out.chunks_exact_mut(line)) {
        if row < top || row >= top + g.h {
            out.fill(0.0);
            continue;
        }
        let from = &image[(row - top) * g.w * g.c..][..g.w * g.c];
        let (before, rest) = out.split_at_mut(left * stride);
        let (inside, after) = rest.split_at_mut(g.w * stride);
        before.fill(0.0);
        after.fill(0.0);
        if stride == g.c && channels.len() == g.c {
            inside.copy_from_slice(from);
        } else {
            for (to, from) in inside.chunks_exact_mut(stride).zip(from.chunks_exact(g.c)) {
                to[..channels.len()].copy_from_slice(&from[channels.clone()]);
            }
        }
    }
}

/// Rows of an image, counted from the top of its padding, with all channels last and margins; it may come by rows.
pub(crate) fn pad_image(out: &mut [f32], image: &[f32], g: &Geometry, rows: Range<usize>, by_rows: bool) {
    if by_rows { pad_planes(out, image, g, rows) } else { pad(out, image, g, rows, 0..g.c, g.c) }
}

/// The same of an image `[c, h, w]`.
fn pad_planes(out: &mut [f32], image: &[f32], g: &Geometry, rows: Range<usize>) {
    let ([top, left], line) = (g.padding, g.padded_w() * g.c);
    if !g.padded() {
        return interleave(&image[rows.start * g.w..], g.h * g.w, g.c, out);
    }
    out.fill(0.0);
    for (row, out) in rows.zip(out.chunks_exact_mut(line)).filter(|(row, _)| (top..top + g.h).contains(row)) {
        interleave(&image[(row - top) * g.w..], g.h * g.w, g.c, &mut out[left * g.c..][..g.w * g.c]);
    }
}
