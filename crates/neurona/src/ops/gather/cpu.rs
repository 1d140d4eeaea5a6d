//! Elements by their places, and back, on CPU cores.

use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::math::Real;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::ops::slice::rows as by_rows;
use crate::tensor::{Element, Number};
use std::marker::PhantomData;

/// x as `[outer, size, inner]` and `count` places along the middle.
#[derive(Clone, Copy)]
pub struct Sizes {
    outer: usize,
    size: usize,
    inner: usize,
    count: usize,
    /// The places are one line for all, not one for each element.
    lines: bool,
}

impl Sizes {
    pub fn new(shape: &[usize], dim: usize, count: usize, lines: bool) -> Self {
        let (outer, inner) = (shape[..dim].iter().product(), shape[dim + 1..].iter().product());
        Sizes { outer, size: shape[dim], inner, count, lines }
    }

    fn rows(&self) -> usize {
        self.outer * self.count
    }
}

/// Inputs: x and the places. Output: `[outer, count, inner]`.
pub struct Gather<T> {
    sizes: Sizes,
    element: PhantomData<T>,
}

impl<T> Gather<T> {
    pub fn new(sizes: Sizes) -> Self {
        Gather { sizes, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.sizes.rows() * self.sizes.inner).min(self.sizes.rows().max(1))
    }
}

impl<T: Plain + Element> Kernel for Gather<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let Sizes { size, inner, count, lines, .. } = self.sizes;
        let rows = share(self.sizes.rows(), self.tasks(), task);
        // SAFETY: nobody writes the inputs; each task has its own rows of the result.
        let (x, index, y) = unsafe {
            let y = io.outputs[0].slice_mut::<T>(rows.start * inner..rows.end * inner);
            (io.inputs[0].slice::<T>(), io.inputs[1].slice::<i64>(), y)
        };
        // NaN, or 0 for whole numbers.
        let missing = T::from_number(Number::Float(f64::NAN));
        let exists = |place: i64| usize::try_from(place).ok().filter(|place| *place < size);
        let mut rest = y;
        by_rows(rows, count, |outer, within| {
            let (y, after) = std::mem::take(&mut rest).split_at_mut(within.len() * inner);
            rest = after;
            let x = &x[outer * size * inner..][..size * inner];
            if lines {
                for (&place, y) in index[within].iter().zip(y.chunks_exact_mut(inner.max(1))) {
                    match exists(place) {
                        Some(place) => y.copy_from_slice(&x[place * inner..][..inner]),
                        None => y.fill(missing),
                    }
                }
                return;
            }
            let index = &index[(outer * count + within.start) * inner..][..y.len()];
            if inner == 1 {
                let found = |&place: &i64| exists(place).map_or(missing, |place| x[place]);
                return y.iter_mut().zip(index).for_each(|(y, place)| *y = found(place));
            }
            let chunk = inner.max(1);
            for (y, index) in y.chunks_exact_mut(chunk).zip(index.chunks_exact(chunk)) {
                for (i, (y, &place)) in y.iter_mut().zip(index).enumerate() {
                    *y = exists(place).map_or(missing, |place| x[place * inner + i]);
                }
            }
        });
    }
}

/// Inputs: dy `[outer, count, inner]` and the places. Output: `[outer, size, inner]`.
///
/// A task owns some rows of the result and looks through all places for those that fall there, so that each
/// element is a sum in the order of the places, whoever computes it.
pub struct ScatterAdd<T> {
    sizes: Sizes,
    /// Tasks that share one index of `outer`.
    blocks: usize,
    element: PhantomData<T>,
}

impl<T> ScatterAdd<T> {
    pub fn new(sizes: Sizes) -> Self {
        // Every block reads all places: that is little work beside long rows only.
        let most = if sizes.inner >= 8 && sizes.lines { 32 } else { 4 };
        let work = sizes.outer * sizes.inner * sizes.count.max(sizes.size);
        let blocks = (pieces(work) / sizes.outer.max(1)).clamp(1, most).min(sizes.size.max(1));
        ScatterAdd { sizes, blocks, element: PhantomData }
    }
}

impl<T: Real> Kernel for ScatterAdd<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.sizes.outer * self.blocks]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let Sizes { size, inner, count, lines, .. } = self.sizes;
        let (outer, block) = (task / self.blocks, task % self.blocks);
        let rows = share(size, self.blocks, block);
        let at = outer * size * inner;
        // SAFETY: nobody writes the inputs; each task has its own rows of the result.
        let (dy, index, dx) = unsafe {
            let dx = io.outputs[0].slice_mut::<T>(at + rows.start * inner..at + rows.end * inner);
            (io.inputs[0].slice::<T>(), io.inputs[1].slice::<i64>(), dx)
        };
        dx.fill(T::zero());
        let mine = |place: i64| usize::try_from(place).ok().filter(|place| rows.contains(place));
        let dy = &dy[outer * count * inner..][..count * inner];
        vectorized(
            #[inline(always)]
            || {
                for (i, dy) in dy.chunks_exact(inner.max(1)).enumerate() {
                    if lines {
                        let Some(place) = mine(index[i]) else { continue };
                        let dx = &mut dx[(place - rows.start) * inner..][..inner];
                        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = *dx + *dy);
                    } else {
                        let index = &index[(outer * count + i) * inner..][..inner];
                        for (j, (&place, &dy)) in index.iter().zip(dy).enumerate() {
                            if let Some(place) = mine(place) {
                                let dx = &mut dx[(place - rows.start) * inner + j];
                                *dx = *dx + dy;
                            }
                        }
                    }
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing::{Rng, run};

    /// Sums of whole numbers are exact: they must be equal to plain loops, however the work is cut.
    #[test]
    fn there_and_back() {
        let mut rng = Rng(3);
        for (shape, dim, count, lines) in [
            ([1usize, 1000, 64], 1, 3000, true),
            ([1, 7, 1], 1, 100_000, true),
            ([3, 50, 300], 1, 70, false),
            ([1, 20_000, 1], 1, 90_000, false),
            ([5, 3, 1], 0, 4, true),
            ([2, 3, 0], 1, 4, true),
            ([2, 3, 4], 1, 0, false),
        ] {
            let sizes = Sizes::new(&shape, dim, count, lines);
            let (outer, size, inner) = (sizes.outer, sizes.size, sizes.inner);
            let mut x: Vec<f64> = (0..outer * size * inner).map(|i| i as f64).collect();
            let mut dy: Vec<f64> = (0..outer * count * inner).map(|_| rng.below(9) as f64).collect();
            let mut index: Vec<i64> =
                (0..if lines { count } else { dy.len() }).map(|_| rng.below(size) as i64).collect();
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let places = Buf::over(&mut index);
            run(&Gather::<f64>::new(sizes), &[Buf::over(&mut x), places], &[Buf::over(&mut y)]);
            run(&ScatterAdd::<f64>::new(sizes), &[Buf::over(&mut dy), places], &[Buf::over(&mut dx)]);
            let mut want = vec![0.0; x.len()];
            for e in 0..y.len() {
                let (o, i) = (e / (count * inner), e % inner);
                let place = index[if lines { e / inner % count } else { e }] as usize;
                let from = (o * size + place) * inner + i;
                assert_eq!(y[e], x[from]);
                want[from] += dy[e];
            }
            assert!(dx == want, "{shape:?} {count} {lines}");
        }
    }
}
