//! Reductions over any dimensions of a tensor in any physical order.

use std::marker::PhantomData;

use super::{Joining, Number, Op, Reduce};
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::math::Tree;
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;

/// One dimension: its size, and the steps of input and output along it.
#[derive(Clone, Copy, Debug)]
struct Dim {
    size: usize,
    step: usize,
    out_step: usize,
}

/// The kernel that joins the dimensions marked in `reduced`: [`Reduce`] where the memory allows,
/// else [`Strided`].
///
/// `strides` are the input's, `out_strides` the output's, both in elements and one a dimension of
/// `shape`; those of reduced dimensions are not looked at in the output.
pub fn over<I: Plain + Into<A>, A: Number>(
    op: Op,
    shape: &[usize],
    strides: &[usize],
    out_strides: &[usize],
    reduced: &[bool],
) -> Box<dyn Kernel> {
    let mut dims: Vec<(bool, Dim)> = (0..shape.len())
        .filter(|&i| shape[i] != 1)
        .map(|i| {
            let out_step = if reduced[i] { 0 } else { out_strides[i] };
            let dim = Dim { size: shape[i], step: strides[i], out_step };
            (reduced[i], dim)
        })
        .collect();
    dims.sort_by_key(|(_, dim)| std::cmp::Reverse(dim.step));
    dims.dedup_by(|(kind, dim), (last_kind, last)| {
        let follows = kind == last_kind && last.step == dim.step * dim.size && last.out_step == dim.out_step * dim.size;
        if follows {
            *last = Dim { size: last.size * dim.size, ..*dim };
        }
        follows
    });
    let none = Dim { size: 1, step: 0, out_step: 0 };
    let (outer, mid, inner) = match dims[..] {
        [] => (none, none, none),
        [(true, mid)] => (none, mid, none),
        [(false, outer)] => (outer, none, none),
        [(false, outer), (true, mid)] => (outer, mid, none),
        [(true, mid), (false, inner)] => (none, mid, inner),
        [(false, outer), (true, mid), (false, inner)] => (outer, mid, inner),
        _ => return Box::new(Strided::<I, A>::new(op, &dims)),
    };
    let fits = |dim: Dim, step: usize, out_step: usize| dim.size == 1 || dim.step == step && dim.out_step == out_step;
    if fits(inner, 1, 1) && fits(mid, inner.size, 0) && fits(outer, mid.size * inner.size, inner.size) {
        Box::new(Reduce::<I, A>::new(op, outer.size, mid.size, inner.size))
    } else {
        Box::new(Strided::<I, A>::new(op, &dims))
    }
}

/// Joins dimensions element by element; slower than [`Reduce`], and right for any strides.
///
/// Input: x of `I`. Output of `A`. Made by [`over`].
pub struct Strided<I, A> {
    op: Op,
    kept: Vec<Dim>,
    reduced: Vec<Dim>,
    types: PhantomData<(I, A)>,
}

impl<I: Plain + Into<A>, A: Number> Strided<I, A> {
    fn new(op: Op, dims: &[(bool, Dim)]) -> Self {
        let of = |kind| {
            let these = dims.iter().filter(|(reduced, _)| *reduced == kind);
            these.map(|(_, dim)| *dim).collect()
        };
        Strided { op, kept: of(false), reduced: of(true), types: PhantomData }
    }

    fn tasks(&self) -> usize {
        let results = size(&self.kept);
        pieces(results * size(&self.reduced)).min(results.max(1))
    }
}

fn size(dims: &[Dim]) -> usize {
    dims.iter().map(|dim| dim.size).product()
}

/// Where element number `i` of `dims` lies in input and output.
#[inline(always)]
fn locate(dims: &[Dim], mut i: usize) -> (usize, usize) {
    let (mut at, mut out) = (0, 0);
    for dim in dims.iter().rev() {
        at += i % dim.size * dim.step;
        out += i % dim.size * dim.out_step;
        i /= dim.size;
    }
    (at, out)
}

struct Sweep<'a, I, A> {
    kernel: &'a Strided<I, A>,
    task: usize,
    io: &'a Io<'a>,
}

impl<I: Plain + Into<A>, A: Number> Joining<A> for Sweep<'_, I, A> {
    #[inline(always)]
    fn run(self, start: A, join: impl Fn(A, A) -> A + Copy) {
        let k = self.kernel;
        // SAFETY: nobody writes the input.
        let x = unsafe { self.io.inputs[0].slice::<I>() };
        let count = size(&k.reduced);
        let (run, lines) = match k.reduced.split_last() {
            Some((run, lines)) => (*run, lines),
            None => (Dim { size: 1, step: 1, out_step: 0 }, &[][..]),
        };
        for i in share(size(&k.kept), k.tasks(), self.task) {
            let (base, out) = locate(&k.kept, i);
            let mut tree = Tree::new(start);
            let lines_count = if count == 0 { 0 } else { size(lines) };
            for line in 0..lines_count {
                let base = base + locate(lines, line).0;
                for from in (0..run.size).step_by(64) {
                    let to = (from + 64).min(run.size);
                    let value = |i: usize| x[base + i * run.step].into();
                    let block = (from..to).fold(start, |a, i| join(a, value(i)));
                    tree.push(block, join);
                }
            }
            let total = k.op.finish(tree.finish(join), count);
            // SAFETY: each result is written by one task.
            unsafe { self.io.outputs[0].slice_mut::<A>(out..out + 1)[0] = total };
        }
    }
}

impl<I: Plain + Into<A>, A: Number> Kernel for Strided<I, A> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let kernel = self;
        vectorized(
            #[inline(always)]
            || self.op.with(Sweep { kernel, task, io }),
        );
    }

    fn flops(&self) -> u64 {
        (size(&self.kept) * size(&self.reduced)) as u64
    }
}
