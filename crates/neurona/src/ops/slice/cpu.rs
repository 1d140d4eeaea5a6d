//! Copies of and into parts of a dimension, on CPU cores.

use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::tasks::pieces;
use crate::tensor::{Element, Number};
use std::marker::PhantomData;
use std::ops::Range;

/// A part of a tensor `[outer, row]`: `count` blocks of each row, `stride` apart. The first begins `start · unit`
/// elements into the row.
#[derive(Clone, Copy)]
pub struct Part {
    outer: usize,
    row: usize,
    unit: usize,
    block: usize,
    count: usize,
    stride: usize,
}

impl Part {
    /// `length` places of dimension `dim`, `step` apart.
    pub fn new(shape: &[usize], dim: usize, length: usize, step: usize) -> Self {
        let outer = shape[..dim].iter().product();
        let unit: usize = shape[dim + 1..].iter().product();
        let row = shape[dim] * unit;
        // Neighbours are one block.
        let (block, count) = if step == 1 { (unit * length, 1) } else { (unit, length) };
        Part { outer, row, unit, block, count, stride: step * unit }
    }

    /// Elements of a row that are taken.
    fn taken(&self) -> usize {
        self.block * self.count
    }
}

/// The parts of rows of `width` elements that `range` covers: the row, and the range within it.
pub fn rows(range: Range<usize>, width: usize, mut each: impl FnMut(usize, Range<usize>)) {
    let mut at = range.start;
    while at < range.end {
        let (row, from) = (at / width, at % width);
        let to = width.min(from + range.end - at);
        each(row, from..to);
        at += to - from;
    }
}

/// Copies the part. Inputs: x and the start. Output: the part, contiguous.
pub struct Take<T> {
    part: Part,
    element: PhantomData<T>,
}

impl<T: Plain> Take<T> {
    pub fn new(part: Part) -> Self {
        Take { part, element: PhantomData }
    }
}

impl<T: Plain> Kernel for Take<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.part.outer * self.part.taken())]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let part = self.part;
        let total = part.outer * part.taken();
        let range = share(total, pieces(total), task);
        // SAFETY: nobody writes the inputs; each task has its own range of the result.
        let (x, start, y) = unsafe {
            let start = io.inputs[1].slice::<i64>()[0] as usize;
            (io.inputs[0].slice::<T>(), start, io.outputs[0].slice_mut::<T>(range.clone()))
        };
        let mut y = y;
        rows(range, part.taken(), |row, within| {
            let x = &x[row * part.row + start * part.unit..];
            let (here, rest) = std::mem::take(&mut y).split_at_mut(within.len());
            y = rest;
            if part.block == 1 {
                here.iter_mut().zip(within).for_each(|(y, i)| *y = x[i * part.stride]);
                return;
            }
            let mut here = here;
            rows(within, part.block, |block, within| {
                let (to, rest) = std::mem::take(&mut here).split_at_mut(within.len());
                here = rest;
                to.copy_from_slice(&x[block * part.stride..][within]);
            });
        });
    }
}

/// Writes the part, and zeros around it. Inputs: the part, contiguous, and the start. Output: the whole.
pub struct Put<T> {
    part: Part,
    element: PhantomData<T>,
}

impl<T: Plain> Put<T> {
    pub fn new(part: Part) -> Self {
        Put { part, element: PhantomData }
    }
}

impl<T: Plain + Element> Kernel for Put<T> {
    fn phases(&self) -> Vec<usize> {
        vec![pieces(self.part.outer * self.part.row)]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let part = self.part;
        let total = part.outer * part.row;
        let range = share(total, pieces(total), task);
        // SAFETY: nobody writes the inputs; each task has its own range of the result.
        let (dy, start, dx) = unsafe {
            let start = io.inputs[1].slice::<i64>()[0] as usize;
            (io.inputs[0].slice::<T>(), start, io.outputs[0].slice_mut::<T>(range.clone()))
        };
        dx.fill(T::from_number(Number::Int(0)));
        let mut dx = dx;
        rows(range, part.row, |row, within| {
            let (here, rest) = std::mem::take(&mut dx).split_at_mut(within.len());
            dx = rest;
            let (dy, first) = (&dy[row * part.taken()..][..part.taken()], start * part.unit);
            // The first block that ends after the range begins.
            let skipped = (within.start + 1).saturating_sub(first + part.block).div_ceil(part.stride.max(1));
            for block in skipped..part.count {
                let at = first + block * part.stride;
                let (from, to) = (at.max(within.start), (at + part.block).min(within.end));
                if from >= to {
                    break;
                }
                let source = &dy[block * part.block + from - at..][..to - from];
                here[from - within.start..to - within.start].copy_from_slice(source);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::run;

    /// Every combination on one tensor that several tasks share, against plain indices.
    #[test]
    fn parts_out_and_back() {
        for (shape, dim, start, length, step) in [
            ([2usize, 300, 101], 1, 7, 290, 1),
            ([2, 300, 101], 1, 3, 99, 3),
            ([3, 5, 4001], 2, 1, 1000, 4),
            ([40_000, 3, 1], 0, 1, 19_999, 2),
            ([40_000, 3, 1], 1, 2, 1, 1),
            ([40_000, 3, 1], 1, 0, 2, 2),
            ([2, 3, 4], 1, 3, 0, 1),
            ([0, 3, 4], 1, 1, 1, 1),
        ] {
            let outer: usize = shape[..dim].iter().product();
            let unit: usize = shape[dim + 1..].iter().product();
            let mut x: Vec<i64> = (1..=shape.iter().product::<usize>() as i64).collect();
            let mut at = [start as i64];
            let part = Part::new(&shape, dim, length, step);
            let mut y = vec![-1i64; outer * length * unit];
            run(&Take::<i64>::new(part), &[Buf::over(&mut x), Buf::over(&mut at)], &[Buf::over(&mut y)]);
            let mut back = vec![-1i64; x.len()];
            run(&Put::<i64>::new(part), &[Buf::over(&mut y), Buf::over(&mut at)], &[Buf::over(&mut back)]);
            let (mut want, mut whole) = (vec![], vec![0; x.len()]);
            for o in 0..outer {
                for i in 0..length {
                    for u in 0..unit {
                        let from = (o * shape[dim] + start + i * step) * unit + u;
                        want.push(x[from]);
                        whole[from] = x[from];
                    }
                }
            }
            assert!(y == want, "{shape:?} {dim} {start} {length} {step}");
            assert!(back == whole, "{shape:?} {dim} {start} {length} {step}: back");
        }
    }
}
