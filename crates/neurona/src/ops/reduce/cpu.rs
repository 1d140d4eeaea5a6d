//! Sums, means, extremes and products over some dimensions, on CPU cores.

mod arg;
mod strided;

use std::marker::PhantomData;
use std::ops::Range;

use crate::cpu::columns::span;
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::math::fold;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

pub use arg::Arg;
pub use strided::over;

/// What elements are joined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Their sum; whole numbers wrap around.
    Sum,
    /// Their sum over their number; whole numbers are cut off.
    Mean,
    /// The greatest; NaN wins.
    Max,
    /// The least; NaN wins.
    Min,
    /// Their product; whole numbers wrap around.
    Prod,
}

/// A number that elements are joined in: `f32`, `f64` or `i64`.
pub trait Number: Plain + PartialOrd {
    /// Not greater than any number.
    const LEAST: Self;
    /// Not less than any number.
    const GREATEST: Self;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient by a count.
    fn over(self, count: usize) -> Self;
}

macro_rules! real { ($($t:ty),*) => { $(
    impl Number for $t {
        const LEAST: Self = <$t>::NEG_INFINITY;
        const GREATEST: Self = <$t>::INFINITY;
        const ZERO: Self = 0.0;
        const ONE: Self = 1.0;
        #[inline(always)]
        fn plus(self, other: Self) -> Self {
            self + other
        }
        #[inline(always)]
        fn times(self, other: Self) -> Self {
            self * other
        }
        #[inline(always)]
        fn over(self, count: usize) -> Self {
            self / count as $t
        }
    }
)* } }
real!(f32, f64);

impl Number for i64 {
    const LEAST: Self = i64::MIN;
    const GREATEST: Self = i64::MAX;
    const ZERO: Self = 0;
    const ONE: Self = 1;

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn over(self, count: usize) -> Self {
        self.checked_div(count as i64).unwrap_or(0)
    }
}

/// Work that is written once for all ways of joining and compiled for each.
trait Joining<A> {
    fn run(self, start: A, join: impl Fn(A, A) -> A + Copy);
}

impl Op {
    #[inline(always)]
    fn with<A: Number>(self, work: impl Joining<A>) {
        match self {
            Op::Sum | Op::Mean => work.run(A::ZERO, A::plus),
            Op::Prod => work.run(A::ONE, A::times),
            Op::Max => work.run(A::LEAST, |a, b| if (b > a) | nan(b) { b } else { a }),
            Op::Min => work.run(A::GREATEST, |a, b| if (b < a) | nan(b) { b } else { a }),
        }
    }

    #[inline(always)]
    fn finish<A: Number>(self, total: A, count: usize) -> A {
        match self {
            Op::Mean => total.over(count),
            _ => total,
        }
    }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn nan<A: PartialOrd>(v: A) -> bool {
    v != v
}

/// Joins the middle dimension of a contiguous `[outer, mid, inner]`.
///
/// Input: x of `I`. Output: `[outer, inner]` of `A`: the same type, or `i64` from `u8`.
///
/// The work is cut into units: a strip of at least 1024 columns where there are as many, and a
/// part of the rows where one strip is too much for a task. Parts leave partial results for a
/// second phase. The order of additions is a tree of fixed shape, good to about 1e-6 in `f32`.
pub struct Reduce<I, A> {
    op: Op,
    outer: usize,
    mid: usize,
    inner: usize,
    strips: usize,
    parts: usize,
    types: PhantomData<(I, A)>,
}

/// Rows that are joined before their result is joined to the rest.
const ROWS: usize = 256;

/// Rows that are joined one after the other: so few lose nothing by it.
const FEW: usize = 8;

/// Columns whose partial results are joined together.
const COLUMNS: usize = 64;

impl<I: Plain + Into<A>, A: Number> Reduce<I, A> {
    /// Joins `mid`.
    pub fn new(op: Op, outer: usize, mid: usize, inner: usize) -> Self {
        let width = (32 * 1024 / mid.max(1)).max(1024).min(inner).max(1);
        let parts = match mid * width {
            work if work > 64 * 1024 => (work >> 15).min(512).min(mid),
            _ => 1,
        };
        Reduce { op, outer, mid, inner, strips: inner.div_ceil(width), parts, types: PhantomData }
    }

    fn units(&self) -> usize {
        self.outer * self.parts * self.strips
    }

    fn tasks(&self) -> usize {
        pieces(self.outer * self.mid * self.inner).min(self.units().max(1))
    }

    fn combiners(&self) -> usize {
        pieces(self.outer * self.parts * self.inner).min((self.outer * self.inner).max(1))
    }

    /// The widest strip, at least a span of it.
    fn width(&self) -> usize {
        span(self.inner.div_ceil(self.strips.max(1)))
    }
}

struct Sweep<'a, I, A> {
    kernel: &'a Reduce<I, A>,
    task: usize,
    io: &'a Io<'a>,
}

impl<I: Plain + Into<A>, A: Number> Joining<A> for Sweep<'_, I, A> {
    #[inline(always)]
    fn run(self, start: A, join: impl Fn(A, A) -> A + Copy) {
        let k = self.kernel;
        // SAFETY: nobody writes the input.
        let x = unsafe { self.io.inputs[0].slice::<I>() };
        let width = k.width();
        // SAFETY: scratch belongs to this task.
        let scratch = unsafe { self.io.scratch.slice_mut::<A>(0..2 * width) };
        let (block, total) = scratch.split_at_mut(width);
        let units = share(k.units(), k.tasks(), self.task);
        if k.inner == 1 && k.mid < 64 {
            // SAFETY: each task has its own results.
            let out = unsafe { self.io.outputs[0].slice_mut::<A>(units.clone()) };
            let x = &x[units.start * k.mid..units.end * k.mid];
            short_rows(x, k.mid, out, start, join);
            out.iter_mut().for_each(|v| *v = k.op.finish(*v, k.mid));
            return;
        }
        for unit in units {
            let (unit, strip) = (unit / k.strips, unit % k.strips);
            let (outer, part) = (unit / k.parts, unit % k.parts);
            let columns = share(k.inner, k.strips, strip);
            let rows = share(k.mid, k.parts, part);
            let to = if k.parts == 1 { self.io.outputs[0] } else { self.io.workspace };
            let at = unit * k.inner;
            // SAFETY: each unit has its own results.
            let out = unsafe { to.slice_mut::<A>(at + columns.start..at + columns.end) };
            let x = &x[outer * k.mid * k.inner..][..k.mid * k.inner];
            if k.inner == 1 {
                out[0] = fold(&x[rows], start, join);
            } else {
                join_rows(x, k.inner, rows, columns, block, total, out, start, join);
            }
            if k.parts == 1 {
                for v in out {
                    *v = k.op.finish(*v, k.mid);
                }
            }
        }
    }
}

/// Joins each row of `n` elements, eight at a time: one row alone would wait for every addition.
#[inline(always)]
fn short_rows<I: Plain + Into<A>, A: Number>(
    x: &[I],
    n: usize,
    out: &mut [A],
    start: A,
    join: impl Fn(A, A) -> A + Copy,
) {
    let whole = out.len() / 8 * 8;
    let (eights, rest) = out.split_at_mut(whole);
    for (k, eight) in eights.chunks_exact_mut(8).enumerate() {
        let x = &x[k * 8 * n..][..8 * n];
        let mut total = [start; 8];
        for i in 0..n {
            for (r, total) in total.iter_mut().enumerate() {
                *total = join(*total, x[r * n + i].into());
            }
        }
        eight.copy_from_slice(&total);
    }
    for (k, out) in rest.iter_mut().enumerate() {
        let row = x[(whole + k) * n..][..n].iter();
        *out = row.fold(start, |a, &b| join(a, b.into()));
    }
}

/// Joins `rows` of the matrix `x` of `inner` columns, for `columns` only.
#[inline(always)]
fn join_rows<I: Plain + Into<A>, A: Number>(
    x: &[I],
    inner: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    block: &mut [A],
    total: &mut [A],
    out: &mut [A],
    start: A,
    join: impl Fn(A, A) -> A + Copy,
) {
    if rows.len() <= FEW {
        out.fill(start);
        for row in rows {
            let row = &x[row * inner + columns.start..row * inner + columns.end];
            out.iter_mut().zip(row).for_each(|(out, &v)| *out = join(*out, v.into()));
        }
        return;
    }
    // Rows that lie end to end are taken several at a time, as one wide row.
    let narrow = columns.len() == inner;
    let width = if narrow { span(inner) } else { columns.len() };
    let stride = if narrow { width } else { inner };
    let x = if rows.is_empty() {
        &x[..0]
    } else {
        &x[rows.start * inner + columns.start..(rows.end - 1) * inner + columns.end]
    };
    let (block, total) = (&mut block[..width], &mut total[..width]);
    total.fill(start);
    for x in x.chunks(ROWS * stride) {
        block.fill(start);
        let whole = (x.len() + stride - width) / stride;
        let row = |r: usize| &x[r * stride..][..width];
        for r in (0..whole / 4).map(|q| 4 * q) {
            let [a, b, c, d] = [row(r), row(r + 1), row(r + 2), row(r + 3)];
            for j in 0..width {
                let ab = join(a[j].into(), b[j].into());
                let cd = join(c[j].into(), d[j].into());
                block[j] = join(block[j], join(ab, cd));
            }
        }
        for r in whole / 4 * 4..whole {
            for (block, &v) in block.iter_mut().zip(row(r)) {
                *block = join(*block, v.into());
            }
        }
        for (block, &v) in block.iter_mut().zip(x.get(whole * stride..).unwrap_or(&[])) {
            *block = join(*block, v.into());
        }
        for (total, block) in total.iter_mut().zip(block.iter()) {
            *total = join(*total, *block);
        }
    }
    for (j, out) in out.iter_mut().enumerate() {
        let copies = total[j..].iter().step_by(if narrow { inner } else { width });
        *out = copies.fold(start, |a, b| join(a, *b));
    }
}

struct Combine<'a, I, A> {
    kernel: &'a Reduce<I, A>,
    task: usize,
    io: &'a Io<'a>,
}

impl<I: Plain + Into<A>, A: Number> Joining<A> for Combine<'_, I, A> {
    #[inline(always)]
    fn run(self, start: A, join: impl Fn(A, A) -> A + Copy) {
        let k = self.kernel;
        // SAFETY: partial results were written in the earlier phase.
        let partial = unsafe { self.io.workspace.slice::<A>() };
        let range = share(k.outer * k.inner, k.combiners(), self.task);
        // SAFETY: each task has its own results.
        let out = unsafe { self.io.outputs[0].slice_mut::<A>(range.clone()) };
        let mut at = range.start;
        for out in out.chunks_mut(COLUMNS) {
            let mut out = out;
            // A group of columns may go on in the next outer index.
            while !out.is_empty() {
                let (outer, column) = (at / k.inner, at % k.inner);
                let (now, rest) = out.split_at_mut(out.len().min(k.inner - column));
                let base = outer * k.parts * k.inner + column;
                let part = |p: usize| &partial[base + p * k.inner..][..now.len()];
                let mut total = [start; COLUMNS];
                for first in (0..k.parts).step_by(16) {
                    let mut block = [start; COLUMNS];
                    for p in first..k.parts.min(first + 16) {
                        for (block, &v) in block.iter_mut().zip(part(p)) {
                            *block = join(*block, v);
                        }
                    }
                    for (total, block) in total.iter_mut().zip(block) {
                        *total = join(*total, block);
                    }
                }
                for (out, total) in now.iter_mut().zip(total) {
                    *out = k.op.finish(total, k.mid);
                }
                at += now.len();
                out = rest;
            }
        }
    }
}

impl<I: Plain + Into<A>, A: Number> Kernel for Reduce<I, A> {
    fn phases(&self) -> Vec<usize> {
        match self.parts {
            1 => vec![self.tasks()],
            _ => vec![self.tasks(), self.combiners()],
        }
    }

    fn workspace(&self) -> usize {
        match self.parts {
            1 => 0,
            parts => self.outer * parts * self.inner * size_of::<A>(),
        }
    }

    fn scratch(&self) -> usize {
        2 * self.width() * size_of::<A>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        let kernel = self;
        vectorized(
            #[inline(always)]
            || match phase {
                0 => self.op.with(Sweep { kernel, task, io }),
                _ => self.op.with(Combine { kernel, task, io }),
            },
        );
    }

    fn flops(&self) -> u64 {
        (self.outer * self.mid * self.inner) as u64
    }
}

#[cfg(test)]
mod tests;
