//! The geometry that pooling operations share.

use std::ops::Range;

use crate::cpu::kernel::Plain;
use crate::cpu::math::Real;
use crate::cuda::cut::{Module, vector};
use crate::cuda::kernel::Argument;
use crate::cuda::{Gpu, Source};
use crate::tensor::{DType, Meta};

/// Options beyond this are mistakes, and below it no sum of sizes overflows.
pub(crate) const LARGEST: usize = 1 << 30;

/// How a pooling window looks and moves.
///
/// ```
/// use neurona::PoolOptions;
/// assert_eq!(PoolOptions::square(2).stride, [2, 2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Steps between windows, down and across.
    pub stride: [usize; 2],
    /// Rows and columns added on each side, at most half a window.
    pub padding: [usize; 2],
    /// Whether a last window that does not fit whole is kept.
    pub ceil_mode: bool,
}

impl PoolOptions {
    /// Square windows side by side.
    pub fn square(size: usize) -> Self {
        PoolOptions { kernel: [size; 2], stride: [size; 2], padding: [0, 0], ceil_mode: false }
    }

    /// The geometry over this input, or what does not fit.
    pub(crate) fn check(&self, x: &Meta) -> Result<Pool, String> {
        let &[n, c, h, w] = &x.shape[..] else { return Err("needs images [n, c, h, w]".into()) };
        if !x.dtype.is_float() {
            return Err(format!("needs floating-point images, not {}", x.dtype));
        }
        let PoolOptions { kernel, stride, padding, ceil_mode } = *self;
        if kernel.contains(&0) || stride.contains(&0) {
            return Err("window and stride must be at least 1".into());
        }
        if [kernel, stride, padding].as_flattened().iter().any(|&size| size > LARGEST) {
            return Err(format!("window, stride and padding must be at most {LARGEST}"));
        }
        if padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2 {
            return Err(format!("padding {padding:?} is more than half the window {kernel:?}"));
        }
        let g = Pool { n, c, h, w, kernel, stride, padding, ceil_mode };
        if g.oh() == 0 || g.ow() == 0 {
            return Err(format!("a window of {kernel:?} does not fit an image of {h} x {w}"));
        }
        Ok(g)
    }
}

/// Pooling of activations of logical shape `[n, c, h, w]`, stored as NHWC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Images.
    pub n: usize,
    /// Channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Steps between windows, down and across; at least 1.
    pub stride: [usize; 2],
    /// Rows and columns added on each side, at most half a window.
    pub padding: [usize; 2],
    /// Whether a last window that does not fit whole is kept.
    pub ceil_mode: bool,
}

impl Pool {
    /// Output height.
    pub fn oh(&self) -> usize {
        self.windows(0)
    }

    /// Output width.
    pub fn ow(&self) -> usize {
        self.windows(1)
    }

    /// Elements of the input.
    pub fn input_len(&self) -> usize {
        self.n * self.h * self.w * self.c
    }

    /// Elements of the output.
    pub fn output_len(&self) -> usize {
        self.n * self.oh() * self.ow() * self.c
    }

    /// Whether every window is a whole 2x2 block next to the last.
    pub(crate) fn is_halving(&self) -> bool {
        self.kernel == [2, 2]
            && self.stride == [2, 2]
            && self.padding == [0, 0]
            && self.oh() == self.h / 2
            && self.ow() == self.w / 2
    }

    /// The input positions along `axis` that window `o` covers, padding left out.
    #[inline(always)]
    pub(crate) fn covered(&self, axis: usize, o: usize) -> Range<usize> {
        let start = o * self.stride[axis];
        let end = (start + self.kernel[axis]).saturating_sub(self.padding[axis]);
        let start = start.saturating_sub(self.padding[axis]);
        start..end.min([self.h, self.w][axis]).max(start)
    }

    /// The windows along `axis` that cover input position `i`.
    #[inline(always)]
    pub(crate) fn covering(&self, axis: usize, i: usize) -> Range<usize> {
        let mut ranges = Covering::new(self, axis);
        ranges.start = (i + 1 + self.padding[axis]).saturating_sub(self.kernel[axis]).div_ceil(self.stride[axis]);
        ranges.end = ranges.start;
        ranges.at(i)
    }

    fn windows(&self, axis: usize) -> usize {
        let size = [self.h, self.w][axis] as isize;
        let [kernel, stride, padding] = [self.kernel, self.stride, self.padding].map(|v| v[axis] as isize);
        let up = if self.ceil_mode { stride - 1 } else { 0 };
        let mut count = (size + 2 * padding - kernel + up).div_euclid(stride) + 1;
        // PyTorch's rule: a window may not start in the right padding.
        if self.ceil_mode && (count - 1) * stride >= size + padding {
            count -= 1;
        }
        count.max(0) as usize
    }
}

/// The kernels of a file that includes `windows.cuh`, for this geometry.
pub(crate) fn module<'a>(g: &Pool, dtype: DType, gpu: &'a Gpu, source: &'static Source) -> Module<'a> {
    windows(Module::new(gpu, source).of("ELEMENT", dtype).with("VECTOR", vector(dtype, g.c)), g)
}

/// The macros that say what windows look like.
pub(crate) fn windows<'a>(mut module: Module<'a>, g: &Pool) -> Module<'a> {
    let names =
        [["WINDOW_HEIGHT", "WINDOW_WIDTH"], ["STRIDE_DOWN", "STRIDE_ACROSS"], ["PADDING_DOWN", "PADDING_ACROSS"]];
    for (names, sizes) in names.into_iter().zip([g.kernel, g.stride, g.padding]) {
        for (name, size) in names.into_iter().zip(sizes) {
            module = module.with(name, size);
        }
    }
    let large = g.input_len().max(g.output_len()) > i32::MAX as usize;
    module.with("INDEX", if large { "u64" } else { "u32" })
}

/// `Images` of `windows.cuh`.
pub(crate) fn images(g: &Pool) -> Argument {
    let sizes = [g.n, g.h, g.w, g.c, g.oh(), g.ow()];
    Argument::Bytes(sizes.iter().flat_map(|size| (*size as i32).to_ne_bytes()).collect())
}

/// Which windows cover each of the positions along an axis, asked for in ascending order: counts up
/// instead of dividing, which would cost more than the work on a pixel of few channels.
struct Covering {
    start: usize,
    end: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    windows: usize,
}

impl Covering {
    #[inline(always)]
    fn new(g: &Pool, axis: usize) -> Self {
        Covering {
            start: 0,
            end: 0,
            kernel: g.kernel[axis],
            stride: g.stride[axis],
            padding: g.padding[axis],
            windows: g.windows(axis),
        }
    }

    #[inline(always)]
    fn at(&mut self, i: usize) -> Range<usize> {
        let i = i + self.padding;
        while self.start * self.stride + self.kernel <= i {
            self.start += 1;
        }
        while self.end * self.stride <= i {
            self.end += 1;
        }
        self.start..self.end.min(self.windows).max(self.start)
    }
}

/// Channels handled together; fewer would fill no vector register, and is no faster.
pub(crate) const LANES: usize = 16;

/// `L` elements from `at`. At the `EDGE` of a buffer there may be fewer; the rest is then arbitrary.
///
/// Pixels are read and written in whole vectors even when the channels do not fill one: the lanes
/// past the last channel reach into the next pixel, which is then written in its turn.
#[inline(always)]
pub(crate) fn load<T: Plain, const L: usize, const EDGE: bool>(x: &[T], at: usize) -> [T; L] {
    let rest = &x[at..];
    let mut lanes = [rest[0]; L];
    let n = if EDGE { L.min(rest.len()) } else { L };
    lanes[..n].copy_from_slice(&rest[..n]);
    lanes
}

/// Replaces each `out` by `f(out, a, b)`. Every slice is as long as `out` or longer.
#[inline(always)]
fn combine<T: Plain, B: Plain>(out: &mut [T], a: &[T], b: &[B], f: impl Fn(T, T, B) -> T) {
    let (a, b) = (&a[..out.len()], &b[..out.len()]);
    let mut blocks = out.chunks_exact_mut(LANES);
    for ((out, a), b) in (&mut blocks).zip(a.chunks_exact(LANES)).zip(b.chunks_exact(LANES)) {
        // Through an array of our own, of which the compiler knows that it overlaps nothing.
        let mut new = [a[0]; LANES];
        for j in 0..LANES {
            new[j] = f(out[j], a[j], b[j]);
        }
        out.copy_from_slice(&new);
    }
    let out = blocks.into_remainder();
    let at = a.len() - out.len();
    for (j, out) in out.iter_mut().enumerate() {
        *out = f(*out, a[at + j], b[at + j]);
    }
}

/// Spreads a row of windows that are [halving](Pool::is_halving) over the cells above or below:
/// column `s` of a window becomes `f(s, a, b)` of the window's elements.
///
/// `a`, `b` and `out` begin at the row and may go on after it, where `out` is overwritten.
#[inline(always)]
fn spread_halves<T: Plain, B: Plain>(g: &Pool, a: &[T], b: &[B], out: &mut [T], zero: T, f: impl Fn(usize, T, B) -> T) {
    const L: usize = 8;
    let c = g.c;
    for o in 0..g.w / 2 {
        for s in 0..2 {
            let (from, to) = (o * c, (2 * o + s) * c);
            let (a, b, out) = (&a[from..], &b[from..], &mut out[to..]);
            match (a.first_chunk::<L>(), b.first_chunk::<L>(), out.first_chunk_mut::<L>()) {
                (Some(a), Some(b), Some(out)) if c <= L => {
                    let mut new = [zero; L];
                    for j in 0..L {
                        new[j] = f(s, a[j], b[j]);
                    }
                    *out = new;
                }
                _ => combine(&mut out[..c], a, b, |_, a, b| f(s, a, b)),
            }
        }
    }
    if g.w % 2 == 1 {
        out[(g.w - 1) * c..g.w * c].fill(zero);
    }
}

/// The gradient of a pooling for these rows of the input: every cell collects from the windows that cover it, so that
/// no two tasks write one cell.
///
/// `part(window, place)` says what the cell at this place of this window gets, of the window's gradient and what is
/// `beside` it.
#[inline(always)]
pub(crate) fn collect<T: Real, B: Plain, F: Fn(T, B) -> T>(
    g: &Pool,
    rows: Range<usize>,
    dy: &[T],
    beside: &[B],
    dx: &mut [T],
    part: impl Fn([usize; 2], usize) -> F,
) {
    let (oh, ow) = (g.oh(), g.ow());
    let reach = g.c.next_multiple_of(LANES);
    let halving = g.is_halving();
    let mut at = 0;
    for row in rows {
        let (image, iy) = (row / g.h, row % g.h);
        let oys = g.covering(0, iy);
        if halving {
            let dx = &mut dx[at..];
            at += g.w * g.c;
            if oys.is_empty() {
                dx[..g.w * g.c].fill(T::zero());
            } else {
                let from = (image * oh + oys.start) * ow * g.c;
                // Windows of such a row differ in nothing but their elements.
                let parts = [0, 1].map(|s| part([oys.start, 0], 2 * (iy & 1) + s));
                spread_halves(g, &dy[from..], &beside[from..], dx, T::zero(), |s, dy, beside| parts[s](dy, beside));
            }
            continue;
        }
        let mut across = Covering::new(g, 1);
        let last = (image * oh + oys.end) * ow * g.c;
        for ix in 0..g.w {
            let oxs = across.at(ix);
            // Whole vectors, as far as there is room: see `load`.
            let room = at + reach <= dx.len() && last + reach <= dy.len();
            let dx = &mut dx[at..at + if room { reach } else { g.c }];
            let mut first = true;
            for oy in oys.clone() {
                let r = iy + g.padding[0] - oy * g.stride[0];
                for ox in oxs.clone() {
                    let s = ix + g.padding[1] - ox * g.stride[1];
                    let part = part([oy, ox], r * g.kernel[1] + s);
                    let from = ((image * oh + oy) * ow + ox) * g.c;
                    let (dy, beside) = (&dy[from..], &beside[from..]);
                    if first {
                        combine(dx, dy, beside, |_, dy, beside| part(dy, beside));
                    } else {
                        combine(dx, dy, beside, |sum, dy, beside| sum + part(dy, beside));
                    }
                    first = false;
                }
            }
            if first {
                dx.fill(T::zero());
            }
            at += g.c;
        }
    }
}

/// Writes `lanes` from `at`, as far as there is room at the `EDGE` of a buffer.
#[inline(always)]
pub(crate) fn store<T: Plain, const L: usize, const EDGE: bool>(x: &mut [T], at: usize, lanes: [T; L]) {
    let rest = &mut x[at..];
    let n = if EDGE { L.min(rest.len()) } else { L };
    rest[..n].copy_from_slice(&lanes[..n]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_pytorch() {
        let size = |h, k, s, p, ceil_mode| {
            let g = Pool { n: 1, c: 1, h, w: h, kernel: [k; 2], stride: [s; 2], padding: [p; 2], ceil_mode };
            assert_eq!(g.oh(), g.ow());
            for i in 0..h {
                for o in 0..g.oh() {
                    assert_eq!(g.covered(0, o).contains(&i), g.covering(0, i).contains(&o));
                }
            }
            g.oh()
        };
        assert_eq!(size(28, 2, 2, 0, false), 14);
        assert_eq!(size(7, 2, 2, 0, false), 3);
        assert_eq!(size(7, 2, 2, 0, true), 4);
        assert_eq!(size(112, 3, 2, 1, false), 56);
        assert_eq!(size(5, 2, 3, 1, true), 2);
        assert_eq!(size(1, 1, 2, 0, true), 1);
        assert_eq!(size(4, 1, 5, 0, true), 1);
        assert_eq!(size(2, 3, 1, 0, false), 0);
        assert_eq!(size(0, 2, 2, 0, false), 0);
    }
}
