//! Margins around a tensor, and their gradient, on CPU cores.

use super::Fill;
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::math::Real;
use crate::cpu::tasks::pieces;
use std::marker::PhantomData;

/// Where each place of the padded tensor comes from.
pub struct Frame {
    /// All dimensions but the last, which is walked as a row.
    lead: Vec<Dim>,
    row: Dim,
}

/// One dimension: its size inside, and for each padded place the place inside.
struct Dim {
    inside: usize,
    before: usize,
    source: Vec<usize>,
    /// For each place inside, the padded places that are copies of it.
    copies: Vec<Vec<usize>>,
}

/// Comes from nowhere: a constant.
const NOWHERE: usize = usize::MAX;

impl Dim {
    fn new(inside: usize, (before, after): (usize, usize), fill: Fill) -> Self {
        let last = inside.saturating_sub(1);
        let source: Vec<usize> = (0..before + inside + after)
            .map(|i| match fill {
                _ if (before..before + inside).contains(&i) => i - before,
                Fill::Constant => NOWHERE,
                Fill::Reflect if i < before => before - i,
                Fill::Reflect => last - (i - before - last),
                Fill::Replicate if i < before => 0,
                Fill::Replicate => last,
            })
            .collect();
        let mut copies = vec![vec![]; inside];
        source.iter().enumerate().filter(|(_, s)| **s != NOWHERE).for_each(|(i, &s)| copies[s].push(i));
        Dim { inside, before, source, copies }
    }

    fn padded(&self) -> usize {
        self.source.len()
    }

    /// Padded places of the margins, with where they come from.
    fn margins(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let outside = (0..self.before).chain(self.before + self.inside..self.padded());
        outside.map(|i| (i, self.source[i]))
    }
}

impl Frame {
    pub fn new(shape: &[usize], margins: &[(usize, usize)], fill: Fill) -> Self {
        let mut dims: Vec<Dim> = shape.iter().zip(margins).map(|(&n, &m)| Dim::new(n, m, fill)).collect();
        let row = dims.pop().unwrap_or_else(|| Dim::new(1, (0, 0), fill));
        Frame { lead: dims, row }
    }

    /// Rows of the padded tensor and inside.
    fn rows(&self) -> (usize, usize) {
        (self.lead.iter().map(Dim::padded).product(), self.lead.iter().map(|d| d.inside).product())
    }

    /// The row inside that a padded row comes from.
    fn source(&self, mut row: usize) -> Option<usize> {
        let (mut from, mut stride) = (0, 1);
        for dim in self.lead.iter().rev() {
            match dim.source[row % dim.padded()] {
                NOWHERE => return None,
                place => from += place * stride,
            }
            row /= dim.padded();
            stride *= dim.inside;
        }
        Some(from)
    }

    /// For each leading dimension, the last first, the padded places that are copies of a row's place there.
    fn places(&self, mut row: usize) -> impl Iterator<Item = (&Dim, &[usize])> {
        self.lead.iter().rev().map(move |dim| {
            let copies = &dim.copies[row % dim.inside];
            row /= dim.inside;
            (dim, &copies[..])
        })
    }

    /// The padded rows that are copies of a row inside, in a fixed order.
    fn copies(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let count: usize = self.places(row).map(|(_, copies)| copies.len()).product();
        (0..count).map(move |mut choice| {
            let (mut at, mut stride) = (0, 1);
            for (dim, copies) in self.places(row) {
                at += copies[choice % copies.len()] * stride;
                choice /= copies.len();
                stride *= dim.padded();
            }
            at
        })
    }
}

/// Inputs: x, and the number that a constant margin has. Output: x within its margins.
pub struct Pad<T> {
    frame: Frame,
    element: PhantomData<T>,
}

impl<T> Pad<T> {
    pub fn new(frame: Frame) -> Self {
        Pad { frame, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        let rows = self.frame.rows().0;
        pieces(rows * self.frame.row.padded()).min(rows.max(1))
    }
}

impl<T: Plain> Kernel for Pad<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let line = &self.frame.row;
        let (width, inside) = (line.padded(), line.inside);
        let rows = share(self.frame.rows().0, self.tasks(), task);
        // SAFETY: nobody writes the inputs; each task has its own rows of the result.
        let (x, value, y) = unsafe {
            let value = io.inputs.get(1).map(|value| value.slice::<T>()[0]);
            (io.inputs[0].slice::<T>(), value, io.outputs[0].slice_mut::<T>(rows.start * width..rows.end * width))
        };
        for (row, y) in rows.zip(y.chunks_exact_mut(width.max(1))) {
            if let Some(value) = value {
                y.fill(value);
            }
            let Some(from) = self.frame.source(row) else { continue };
            let x = &x[from * inside..][..inside];
            y[line.before..][..inside].copy_from_slice(x);
            if value.is_none() {
                line.margins().for_each(|(i, from)| y[i] = x[from]);
            }
        }
    }
}

/// Input: dy. Output: the sum of dy over all copies of each element.
pub struct PadGrad<T> {
    frame: Frame,
    element: PhantomData<T>,
}

impl<T> PadGrad<T> {
    pub fn new(frame: Frame) -> Self {
        PadGrad { frame, element: PhantomData }
    }

    fn tasks(&self) -> usize {
        let rows = self.frame.rows().1;
        pieces(rows * self.frame.row.inside).min(rows.max(1))
    }
}

impl<T: Real> Kernel for PadGrad<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let line = &self.frame.row;
        let (width, inside) = (line.padded(), line.inside);
        let rows = share(self.frame.rows().1, self.tasks(), task);
        // SAFETY: nobody writes the input; each task has its own rows of the result.
        let (dy, dx) = unsafe {
            (io.inputs[0].slice::<T>(), io.outputs[0].slice_mut::<T>(rows.start * inside..rows.end * inside))
        };
        for (row, dx) in rows.zip(dx.chunks_exact_mut(inside.max(1))) {
            dx.fill(T::zero());
            for copy in self.frame.copies(row) {
                let dy = &dy[copy * width..][..width];
                dx.iter_mut().zip(&dy[line.before..]).for_each(|(dx, dy)| *dx = *dx + *dy);
                for (i, from) in line.margins().filter(|(_, from)| *from != NOWHERE) {
                    dx[from] = dx[from] + dy[i];
                }
            }
        }
    }
}
