//! Copies between memory orders, on CPU cores.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cpu::kernel::{Buf, Io, Kernel, Plain, Strand, Strands, share};
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// The most dimensions a copy may have, those of size 1 and those that lie end to end not counted.
pub const MAX_DIMS: usize = 8;

/// A copy of a strided view to contiguous memory: permutations, expansions, slices, flips.
///
/// Input: the tensor that is viewed. Output: `shape`, contiguous.
pub struct Strided<T> {
    /// Size and input stride of the dimensions, slowest output dimension first; the last two are
    /// walked by `way`, the others one index after the other.
    dims: Vec<(usize, isize)>,
    /// Output strides of `dims`.
    out: Vec<usize>,
    way: Way,
    offset: usize,
    /// The input elements from the first to the last that is read.
    span: Range<isize>,
    element: PhantomData<T>,
}

/// How the innermost work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Along the output's fastest dimension, the last of `dims`.
    Rows,
    /// As transpositions: the last of `dims` is contiguous in the output, the one before in the input.
    Tiles,
}

impl<T: Plain> Strided<T> {
    /// A copy of the view of `shape` whose element `i` lies at `offset + Σ i[d] * strides[d]`.
    pub fn new(shape: &[usize], strides: &[isize], offset: usize) -> Self {
        let mut dims: Vec<(usize, isize)> = vec![];
        for (&size, &stride) in shape.iter().zip(strides) {
            match dims.last_mut() {
                _ if size == 1 => {}
                Some(last) if last.1 == stride * size as isize => *last = (last.0 * size, stride),
                _ => dims.push((size, stride)),
            }
        }
        if dims.is_empty() {
            dims.push((1, 1));
        }
        assert!(dims.len() <= MAX_DIMS, "a copy of {} dimensions", dims.len());
        let mut out = vec![1; dims.len()];
        for d in (1..dims.len()).rev() {
            out[d - 1] = out[d] * dims[d].0;
        }
        let reach = |sign: isize| -> isize {
            let ends = dims.iter().map(|&(size, stride)| (size as isize - 1) * stride);
            ends.filter(|end| end * sign > 0).sum()
        };
        let span = offset as isize + reach(-1)..offset as isize + reach(1) + 1;
        let last = dims.len() - 1;
        let way = match dims.iter().rposition(|&(_, stride)| stride == 1) {
            Some(k) if k < last => {
                // The order of the others is free: each index is visited once.
                dims[k..last].rotate_left(1);
                out[k..last].rotate_left(1);
                Way::Tiles
            }
            _ => Way::Rows,
        };
        Strided { dims, out, way, offset, span, element: PhantomData }
    }

    /// A copy of a contiguous tensor of `shape` whose dimension `d` becomes the old `order[d]`.
    pub fn permute(shape: &[usize], order: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d] as isize;
        }
        let sizes: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
        let strides: Vec<isize> = order.iter().map(|&d| strides[d]).collect();
        Self::new(&sizes, &strides, 0)
    }

    fn total(&self) -> usize {
        self.dims.iter().map(|d| d.0).product()
    }

    /// The dimensions that are walked index by index.
    fn walked(&self) -> usize {
        match self.way {
            Way::Rows => self.dims.len() - 1,
            Way::Tiles => self.dims.len() - 2,
        }
    }

    /// Into how many pieces the first dimension of the innermost work is cut.
    fn cuts(&self) -> usize {
        let inner = &self.dims[self.walked()..];
        let work: usize = inner.iter().map(|d| d.0).product();
        (work >> 15).clamp(1, inner[0].0.max(1))
    }

    fn units(&self) -> usize {
        self.dims[..self.walked()].iter().map(|d| d.0).product::<usize>() * self.cuts()
    }

    fn tasks(&self) -> usize {
        // An element that changes lines takes several times as long as one that is copied along.
        let work = if let Way::Tiles = self.way { 8 * self.total() } else { self.total() };
        pieces(work).min(self.units().max(1))
    }

    #[inline(always)]
    fn units_of(&self, task: usize, mut each: impl FnMut(isize, usize, Range<usize>)) {
        let (walked, cuts) = (self.walked(), self.cuts());
        let units = share(self.units(), self.tasks(), task);
        if units.is_empty() {
            return;
        }
        let (dims, out) = (&self.dims[..walked], &self.out[..walked]);
        // Divisions once a task; after that the indices count up like an odometer.
        let mut index = [0; MAX_DIMS];
        let (mut rest, mut cut) = (units.start / cuts, units.start % cuts);
        let (mut from, mut to) = (self.offset as isize, 0);
        for d in (0..walked).rev() {
            index[d] = rest % dims[d].0;
            rest /= dims[d].0;
            from += index[d] as isize * dims[d].1;
            to += index[d] * out[d];
        }
        for _ in units {
            each(from, to, share(self.dims[walked].0, cuts, cut));
            cut += 1;
            if cut < cuts {
                continue;
            }
            cut = 0;
            for d in (0..walked).rev() {
                index[d] += 1;
                from += dims[d].1;
                to += out[d];
                if index[d] < dims[d].0 {
                    break;
                }
                from -= dims[d].0 as isize * dims[d].1;
                to -= dims[d].0 * out[d];
                index[d] = 0;
            }
        }
    }

    #[inline(always)]
    fn rows(&self, task: usize, io: &Io<'_>) {
        let stride = self.dims[self.dims.len() - 1].1;
        // SAFETY: nobody writes the input.
        let x = unsafe { io.inputs[0].slice::<T>() };
        self.units_of(task, |from, to, range| {
            let from = (from + range.start as isize * stride) as usize;
            // SAFETY: each unit has its own part of the output.
            let out = unsafe { io.outputs[0].slice_mut::<T>(to + range.start..to + range.end) };
            match stride {
                1 if out.len() < 16 => {
                    // A call of the system's copy costs more than a short row.
                    for (out, &v) in out.iter_mut().zip(&x[from..from + range.len()]) {
                        *out = v;
                    }
                }
                1 => out.copy_from_slice(&x[from..from + range.len()]),
                0 => out.fill(x[from]),
                -1 => {
                    let back = x[from + 1 - range.len()..=from].iter().rev();
                    out.iter_mut().zip(back).for_each(|(out, &v)| *out = v);
                }
                _ => {
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = x[from.wrapping_add_signed(i as isize * stride)];
                    }
                }
            }
        });
    }

    #[inline(always)]
    fn tiles(&self, task: usize, io: &Io<'_>) {
        let last = self.dims.len() - 1;
        let (width, stride) = self.dims[last];
        let (height, pitch) = (self.dims[last - 1].0, self.out[last - 1]);
        let (x, out) = (io.inputs[0].ptr::<T>(), io.outputs[0].ptr::<T>());
        self.units_of(task, |from, to, range| {
            let from = from + range.start as isize;
            let to = to + range.start * pitch;
            // SAFETY: `run` has checked that the whole view lies in the input, and the output is
            // large enough; each unit has its own part of the output.
            unsafe {
                let (x, out) = (x.offset(from), out.add(to));
                let tile = Tile { x, stride, out, pitch, height: range.len(), width };
                match (pitch == width, stride == height as isize) {
                    (true, _) if width <= 8 => tile.interleave(),
                    (_, true) if height <= 8 && range.len() == height => tile.separate(),
                    _ => tile.transpose(),
                }
            }
        });
    }
}

/// A transposition: `out[i * pitch + j] = x[j * stride + i]` for `i < height`, `j < width`.
struct Tile<T> {
    x: *const T,
    stride: isize,
    out: *mut T,
    pitch: usize,
    height: usize,
    width: usize,
}

/// Planes, `step` elements from one to the next, to pixels of `c` channels: as many as `out` has room for.
pub(crate) fn interleave<T: Plain>(planes: &[T], step: usize, c: usize, out: &mut [T]) {
    let pixels = out.len() / c;
    assert!(out.len() == pixels * c && planes.len() >= (c - 1) * step + pixels, "fewer planes than pixels need");
    let (x, out) = (planes.as_ptr(), out.as_mut_ptr());
    let tile = Tile { x, stride: step as isize, out, pitch: c, height: pixels, width: c };
    vectorized(
        #[inline(always)]
        // SAFETY: every plane has so many elements, and there is room for all, by the check above.
        || unsafe { tile.interleave() },
    );
}

/// Pixels of `c` channels to planes, `step` elements from one to the next.
///
/// # Safety
/// No other task may touch these pixels of the planes during the same phase.
pub(crate) unsafe fn separate<T: Plain>(pixels: &[T], c: usize, planes: Buf, step: usize) {
    let count = pixels.len() / c;
    assert!(pixels.len() == count * c && planes.len::<T>() >= (c - 1) * step + count, "no room for all pixels");
    let (x, out) = (pixels.as_ptr(), planes.ptr::<T>());
    let tile = Tile { x, stride: c as isize, out, pitch: step, height: c, width: count };
    vectorized(
        #[inline(always)]
        // SAFETY: so many pixels are there, and every plane has room for them, by the check above; the caller's promise.
        || unsafe { tile.separate() },
    );
}

/// The side of the square that is turned at a time, and of those that are turned in registers.
const SIDE: usize = 16;
const QUAD: usize = 4;

/// Whether such squares have an instruction for each pair of rows: what the compiler makes of single elements takes four to
/// six times as long.
const fn turns_quads<T>() -> bool {
    cfg!(target_arch = "x86_64") && size_of::<T>() == size_of::<f32>()
}

impl<T: Plain> Tile<T> {
    /// Few planes to pixels (NCHW images to NHWC).
    ///
    /// # Safety
    /// All elements named in the type's description lie in memory that this task may use.
    #[inline(always)]
    unsafe fn interleave(&self) {
        #[inline(always)]
        unsafe fn planes<T: Plain, const C: usize>(t: &Tile<T>) {
            // By loops: what `from_fn` calls may not be inlined.
            for i in 0..t.height {
                for j in 0..C {
                    // SAFETY: by the caller's promise.
                    unsafe { *t.out.add(i * C + j) = *t.x.offset(j as isize * t.stride + i as isize) };
                }
            }
        }
        // SAFETY: by the caller's promise.
        unsafe {
            match self.width {
                2 => planes::<T, 2>(self),
                3 => planes::<T, 3>(self),
                4 => planes::<T, 4>(self),
                5 => planes::<T, 5>(self),
                6 => planes::<T, 6>(self),
                7 => planes::<T, 7>(self),
                8 => planes::<T, 8>(self),
                _ => self.transpose(),
            }
        }
    }

    /// Pixels to few planes (NHWC images to NCHW).
    ///
    /// # Safety
    /// As for `interleave`.
    #[inline(always)]
    unsafe fn separate(&self) {
        #[inline(always)]
        unsafe fn planes<T: Plain, const C: usize>(t: &Tile<T>) {
            // SAFETY: by the caller's promise.
            let x = unsafe { std::slice::from_raw_parts(t.x, t.width * C) };
            let (pixels, _) = x.as_chunks::<C>();
            for i in 0..C {
                // SAFETY: by the caller's promise.
                let plane = unsafe { std::slice::from_raw_parts_mut(t.out.add(i * t.pitch), t.width) };
                for (out, pixel) in plane.iter_mut().zip(pixels) {
                    *out = pixel[i];
                }
            }
        }
        // SAFETY: by the caller's promise.
        unsafe {
            match self.height {
                2 => planes::<T, 2>(self),
                3 => planes::<T, 3>(self),
                4 => planes::<T, 4>(self),
                5 => planes::<T, 5>(self),
                6 => planes::<T, 6>(self),
                7 => planes::<T, 7>(self),
                8 => planes::<T, 8>(self),
                _ => self.transpose(),
            }
        }
    }

    /// Any transposition, by squares in the nearest cache: whole lines are read and whole lines
    /// written, so that rows a power of two apart do not drive each other out.
    ///
    /// # Safety
    /// As for `interleave`.
    #[inline(always)]
    unsafe fn transpose(&self) {
        for i in (0..self.height).step_by(SIDE) {
            for j in (0..self.width).step_by(SIDE) {
                // SAFETY: by the caller's promise.
                unsafe {
                    if i + SIDE <= self.height && j + SIDE <= self.width {
                        self.square(i, j);
                    } else {
                        self.rest(i..self.height.min(i + SIDE), j..self.width.min(j + SIDE));
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn square(&self, i0: usize, j0: usize) {
        if turns_quads::<T>() {
            for i in (i0..i0 + SIDE).step_by(QUAD) {
                for j in (j0..j0 + SIDE).step_by(QUAD) {
                    // SAFETY: by the caller's promise.
                    unsafe { self.quad(i, j) };
                }
            }
            return;
        }
        let mut rows = [MaybeUninit::<[T; SIDE]>::uninit(); SIDE];
        for j in 0..SIDE {
            // SAFETY: by the caller's promise.
            let column: [T; SIDE] = unsafe {
                let at = (j0 + j) as isize * self.stride + i0 as isize;
                self.x.offset(at).cast::<[T; SIDE]>().read()
            };
            for (row, v) in rows.iter_mut().zip(column) {
                // SAFETY: `j` is within the row.
                unsafe { row.as_mut_ptr().cast::<T>().add(j).write(v) };
            }
        }
        for (i, row) in rows.iter().enumerate() {
            // SAFETY: by the caller's promise; every column of the row was written above.
            unsafe {
                let out = self.out.add((i0 + i) * self.pitch + j0);
                out.cast::<[T; SIDE]>().write(row.assume_init());
            }
        }
    }

    /// Four by four elements of 32 bits, which are only moved.
    #[inline(always)]
    unsafe fn quad(&self, i: usize, j: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by the caller's promise; every x86-64 machine has these instructions.
        unsafe {
            use std::arch::x86_64::*;
            let column = |k: usize| _mm_loadu_ps(self.x.offset((j + k) as isize * self.stride + i as isize).cast());
            let row = |k: usize, values| _mm_storeu_ps(self.out.add((i + k) * self.pitch + j).cast(), values);
            let (a, b, c, d) = (column(0), column(1), column(2), column(3));
            let [low, high] = [_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)];
            let [low_behind, high_behind] = [_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d)];
            row(0, _mm_movelh_ps(low, low_behind));
            row(1, _mm_movehl_ps(low_behind, low));
            row(2, _mm_movelh_ps(high, high_behind));
            row(3, _mm_movehl_ps(high_behind, high));
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("asked for at {i}, {j} where there are none");
    }

    #[inline(always)]
    unsafe fn rest(&self, is: Range<usize>, js: Range<usize>) {
        let (mut below, mut beside) = (is.start, js.start);
        if turns_quads::<T>() {
            (below, beside) = (is.end - is.len() % QUAD, js.end - js.len() % QUAD);
            for i in (is.start..below).step_by(QUAD) {
                for j in (js.start..beside).step_by(QUAD) {
                    // SAFETY: by the caller's promise.
                    unsafe { self.quad(i, j) };
                }
            }
        }
        // SAFETY: by the caller's promise.
        unsafe {
            self.elements(is.start..below, beside..js.end);
            self.elements(below..is.end, js);
        }
    }

    #[inline(always)]
    unsafe fn elements(&self, is: Range<usize>, js: Range<usize>) {
        for i in is {
            for j in js.clone() {
                // SAFETY: by the caller's promise.
                unsafe {
                    let v = *self.x.offset(j as isize * self.stride + i as isize);
                    *self.out.add(i * self.pitch + j) = v;
                }
            }
        }
    }
}

impl<T: Plain> Kernel for Strided<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn strands(&self) -> Option<Strands> {
        // The first dimension is the slowest here and there, and all of it is copied.
        let (n, stride) = self.dims[0];
        let whole = self.offset == 0 && self.span == (0..self.total() as isize);
        let first = self.walked() > 0 && whole && self.out[0] as isize == stride && n * self.out[0] == self.total();
        first.then(|| Strands { phases: vec![Strand::sharing(n, self.tasks())], inputs: vec![0], outputs: vec![0] })
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let total = self.total();
        if total == 0 {
            return;
        }
        let input = io.inputs[0].len::<T>() as isize;
        assert!(self.span.start >= 0 && self.span.end <= input);
        assert!(total <= io.outputs[0].len::<T>());
        vectorized(
            #[inline(always)]
            || match self.way {
                Way::Rows => self.rows(task, io),
                Way::Tiles => self.tiles(task, io),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, run};

    fn plain<T: Plain>(x: &[T], shape: &[usize], strides: &[isize], offset: usize) -> Vec<T> {
        let total: usize = shape.iter().product();
        (0..total)
            .map(|mut i| {
                let mut at = offset as isize;
                for d in (0..shape.len()).rev() {
                    at += (i % shape[d]) as isize * strides[d];
                    i /= shape[d];
                }
                x[at as usize]
            })
            .collect()
    }

    fn check<T: Plain + PartialEq + std::fmt::Debug>(
        shape: &[usize],
        strides: &[isize],
        offset: usize,
        elements: usize,
        of: impl Fn(usize) -> T,
    ) {
        let mut x: Vec<T> = (0..elements).map(&of).collect();
        let want = plain(&x, shape, strides, offset);
        let mut y = vec![of(77); want.len()];
        let kernel = Strided::<T>::new(shape, strides, offset);
        run(&kernel, &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
        assert_eq!(y, want, "{shape:?} {strides:?}");
    }

    #[test]
    fn permutations() {
        let mut rng = Rng(12);
        let mut cases: Vec<(Vec<usize>, Vec<usize>)> = vec![
            (vec![], vec![]),
            (vec![0, 3], vec![1, 0]),
            (vec![8, 3, 32, 32], vec![0, 2, 3, 1]),
            (vec![8, 32, 32, 3], vec![0, 3, 1, 2]),
            (vec![4, 64, 17, 19], vec![0, 2, 3, 1]),
            (vec![4, 17, 19, 64], vec![0, 3, 1, 2]),
            (vec![300, 500], vec![1, 0]),
            (vec![2, 100_000], vec![1, 0]),
            (vec![100_000, 2], vec![1, 0]),
            (vec![30, 40, 50], vec![2, 1, 0]),
        ];
        for _ in 0..200 {
            let rank = 1 + rng.below(8);
            let shape = (0..rank).map(|_| 1 + rng.below(5)).collect();
            let mut order: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| order.swap(i, rng.below(i + 1)));
            cases.push((shape, order));
        }
        for (shape, order) in cases {
            let total: usize = shape.iter().product();
            let mut strides = vec![1isize; shape.len()];
            for d in (1..shape.len()).rev() {
                strides[d - 1] = strides[d] * shape[d] as isize;
            }
            let sizes: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
            let strides: Vec<isize> = order.iter().map(|&d| strides[d]).collect();
            check::<u8>(&sizes, &strides, 0, total, |i| (i * 7) as u8);
            check::<u16>(&sizes, &strides, 0, total, |i| i as u16);
            check::<f32>(&sizes, &strides, 0, total, |i| i as f32);
            check::<f64>(&sizes, &strides, 0, total, |i| i as f64);
            let mut x: Vec<u32> = (0..total as u32).collect();
            let want = plain(&x, &sizes, &strides, 0);
            let mut y = vec![0; total];
            run(&Strided::<u32>::permute(&shape, &order), &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
            assert_eq!(y, want);
        }
    }

    fn turned<T: Plain + PartialEq + std::fmt::Debug>(rng: &mut Rng, of: impl Fn(usize) -> T) {
        let (c, count) = (1 + rng.below(70), 1 + rng.below(70));
        let step = count + rng.below(20);
        let mut planes: Vec<T> = (0..(c - 1) * step + count).map(&of).collect();
        let mut pixels = vec![of(1); c * count];
        interleave(&planes, step, c, &mut pixels);
        for (i, value) in pixels.iter().enumerate() {
            assert_eq!(*value, planes[i % c * step + i / c], "{c} channels, {count} pixels");
        }
        let before = planes.clone();
        for channel in 0..c {
            planes[channel * step..][..count].fill(of(0));
        }
        // SAFETY: nobody else has the planes.
        unsafe { separate(&pixels, c, Buf::over(&mut planes), step) };
        // What lies between the planes is left alone.
        assert_eq!(planes, before, "{c} channels, {count} pixels");
    }

    #[test]
    fn planes_to_pixels_and_back() {
        let mut rng = Rng(4);
        for _ in 0..200 {
            turned::<u8>(&mut rng, |i| (i * 7) as u8);
            turned::<f32>(&mut rng, |i| i as f32);
            turned::<f64>(&mut rng, |i| i as f64);
        }
        // No arithmetic on the way: what is no number keeps its bits.
        turned::<u32>(&mut rng, |i| 0x7F80_0001 + i as u32);
    }

    #[test]
    fn expansions_slices_and_flips() {
        let of = |i: usize| i as i64;
        check::<i64>(&[5, 7], &[0, 1], 0, 7, of);
        check::<i64>(&[7, 5], &[1, 0], 0, 7, of);
        check::<i64>(&[300, 400], &[0, 0], 3, 4, of);
        check::<i64>(&[100_000], &[0], 0, 1, of);
        check::<i64>(&[100_000], &[-1], 99_999, 100_000, of);
        check::<i64>(&[6, 5], &[-5, -1], 29, 30, of);
        check::<i64>(&[6, 5], &[5, -1], 4, 30, of);
        check::<i64>(&[4, 3, 16, 9], &[432, 144, 9, -1], 8, 1728, of);
        check::<i64>(&[10, 4], &[20, 2], 3, 200, of);
        check::<i64>(&[10, 60_000], &[70_000, 1], 5000, 700_000, of);
        check::<i64>(&[40, 50], &[1, -40], 40 * 49, 2000, of);
        check::<i64>(&[3, 0, 2], &[0, 2, 1], 0, 0, of);
        check::<i64>(&[3, 20, 30], &[0, 1, 20], 0, 600, of);
    }
}
