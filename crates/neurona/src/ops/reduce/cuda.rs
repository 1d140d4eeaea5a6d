//! Reductions on GPUs.

use super::cpu::Op;
use super::{ArgReduce, Reduce};
use crate::Result;
use crate::cuda::cut::{Module, aligned, lanes, vector};
use crate::cuda::kernel::Argument::{self, Bytes, F64, I64, Input, Output, Workspace};
use crate::cuda::kernel::{Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::{Layout, Operand};
use crate::tensor::DType;

static SOURCE: Source = Source::embedded("reduce.cu", include_str!("reduce.cu"));
static ARG: Source = Source::embedded("arg_reduce.cu", include_str!("arg_reduce.cu"));

/// Values in memory.
#[derive(Clone)]
struct Place {
    at: Argument,
    dtype: DType,
}

/// A join of the middle of `[outer, mid, inner]`.
#[derive(Clone, Copy)]
struct Shape {
    outer: usize,
    mid: usize,
    inner: usize,
}

/// The launches so far.
struct Passes<'a> {
    gpu: &'a Gpu,
    how: Op,
    /// Partial results are of this type.
    joined: DType,
    launches: Vec<Launch>,
    workspace: usize,
}

/// Where results go that are written as they come.
const IN_ORDER: [[i64; 3]; 2] = [[1; 3], [1, 0, 0]];

pub(super) fn reduce(op: &Reduce, x: &Operand, y: &Operand, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (dims, order) = dimensions(op, x);
    let count: usize = dims.iter().filter(|(reduced, _)| *reduced).map(|(_, size)| size).product();
    let joined = if x.meta.dtype.is_float() { x.meta.dtype.compute() } else { DType::I64 };
    let mut passes = Passes { gpu, how: op.how, joined, launches: Vec::new(), workspace: 0 };
    let divisor = if op.how == Op::Mean { count as f64 } else { 1.0 };
    let to = Place { at: Output(0), dtype: y.meta.dtype };
    let mut from = Place { at: Input(0), dtype: x.meta.dtype };
    let size = |dims: &[(bool, usize)]| dims.iter().map(|(_, size)| size).product::<usize>();
    if count == 0 {
        let shape = Shape { outer: 1, mid: 0, inner: y.meta.shape.numel() };
        passes.lines(&from, &to, shape, divisor, IN_ORDER)?;
    } else {
        // From the innermost dimension on, one at a time; what is left lies side by side again.
        let mut dims = dims;
        loop {
            let at = dims.iter().rposition(|(reduced, _)| *reduced).unwrap_or(0);
            let last = !dims[..at].iter().any(|(reduced, _)| *reduced);
            let shape = match dims.get(at) {
                Some((true, mid)) => Shape { outer: size(&dims[..at]), mid: *mid, inner: size(&dims[at + 1..]) },
                _ => Shape { outer: 1, mid: 1, inner: size(&dims) },
            };
            if last {
                passes.join(&from, &to, shape, divisor, order)?;
                break;
            }
            let between = passes.room(shape.outer * shape.inner);
            passes.join(&from, &between, shape, 1.0, IN_ORDER)?;
            from = between;
            dims.remove(at);
        }
    }
    let flops = x.meta.shape.numel() as u64;
    Ok(Box::new(Launches { launches: passes.launches, workspace: passes.workspace, flops }))
}

/// The dimensions in the order of memory, whether each is reduced; and sizes of the kept ones with their steps in the
/// result. Neighbours that stay neighbours are one.
fn dimensions(op: &Reduce, x: &Operand) -> (Vec<(bool, usize)>, [[i64; 3]; 2]) {
    let shape = &x.meta.shape;
    let steps = op.kept(shape).strides();
    let mut next = steps.iter();
    let logical: Vec<(bool, usize, usize)> = (shape.iter().zip(&op.reduced))
        .map(|(size, reduced)| (*reduced, *size, if *reduced { 0 } else { next.next().copied().unwrap_or(1) }))
        .collect();
    let memory: &[usize] = match x.layout {
        Layout::ChannelsLast if shape.len() == 4 => &[0, 2, 3, 1],
        _ => &(0..shape.len()).collect::<Vec<_>>(),
    };
    let (mut dims, mut kept): (Vec<(bool, usize)>, Vec<[usize; 2]>) = (Vec::new(), Vec::new());
    for (reduced, size, step) in memory.iter().map(|d| logical[*d]).filter(|(_, size, _)| *size != 1) {
        match dims.last_mut() {
            Some((kind, all)) if *kind == reduced => *all *= size,
            _ => dims.push((reduced, size)),
        }
        match kept.last_mut() {
            _ if reduced => {}
            Some([all, last]) if *last == step * size => (*all, *last) = (*all * size, step),
            _ => kept.push([size, step]),
        }
    }
    let mut order = IN_ORDER;
    for (k, [size, step]) in kept.into_iter().enumerate() {
        (order[0][k], order[1][k]) = (size as i64, step as i64);
    }
    (dims, order)
}

impl Passes<'_> {
    fn room(&mut self, elements: usize) -> Place {
        let at = self.workspace;
        self.workspace += aligned(elements * self.joined.size());
        Place { at: Workspace(at), dtype: self.joined }
    }

    fn module(&self, from: &Place, to: &Place, vector: usize, lanes: usize) -> Module<'_> {
        let how = match self.how {
            Op::Sum | Op::Mean => 0,
            Op::Prod => 1,
            Op::Max => 2,
            Op::Min => 3,
        };
        let module = Module::new(self.gpu, &SOURCE).of("ELEMENT", from.dtype).of("RESULT", to.dtype).with("HOW", how);
        module.with("VECTOR", vector).with("LANES", lanes)
    }

    fn push(&mut self, launch: Launch) {
        self.launches.push(launch);
    }

    /// Joins, in two steps where one would leave multiprocessors idle.
    fn join(&mut self, from: &Place, to: &Place, shape: Shape, divisor: f64, order: [[i64; 3]; 2]) -> Result<()> {
        if shape.inner == 1 {
            self.rows(from, to, shape, divisor, order)
        } else if shape.inner < 64 && shape.mid * shape.inner <= 4096 && shape.outer * shape.inner >= 4096 {
            self.lines(from, to, shape, divisor, order)
        } else {
            self.columns(from, to, shape, true, divisor, order)
        }
    }

    fn rows(&mut self, from: &Place, to: &Place, shape: Shape, divisor: f64, order: [[i64; 3]; 2]) -> Result<()> {
        let Shape { outer, mid, .. } = shape;
        // A single row begins at a whole vector wherever it ends.
        let width = vector(from.dtype, if outer == 1 { 0 } else { mid });
        let parts = (2 * self.gpu.multiprocessors).div_ceil(outer).min(mid.div_ceil(16 * 1024));
        let part = mid.div_ceil(parts).next_multiple_of(width);
        let parts = mid.div_ceil(part);
        let lanes = lanes(outer * parts, part.div_ceil(width));
        let threads = lanes.max(128);
        let grid = Grid::line((outer * parts).div_ceil(threads / lanes), threads as u32);
        let partial = if parts > 1 { self.room(outer * parts) } else { to.clone() };
        let (now, place) = if parts > 1 { (1.0, IN_ORDER) } else { (divisor, order) };
        let mut arguments = vec![from.at.clone(), partial.at.clone(), I64(outer as i64), I64(mid as i64)];
        arguments.extend([I64(parts as i64), I64(part as i64), F64(now), results(place)]);
        self.push(self.module(from, &partial, width, lanes).launch("reduce_rows", grid, arguments)?);
        if parts > 1 {
            self.rows(&partial, to, Shape { mid: parts, ..shape }, divisor, order)?;
        }
        Ok(())
    }

    fn columns(
        &mut self,
        from: &Place,
        to: &Place,
        shape: Shape,
        split: bool,
        divisor: f64,
        order: [[i64; 3]; 2],
    ) -> Result<()> {
        let Shape { outer, mid, inner } = shape;
        let width = vector(from.dtype, inner);
        // `COLUMN_THREADS` of columns.cuh; across a line of memory, or more where there are few rows.
        let down = mid.div_ceil(4).next_power_of_two().min(48);
        let across = (inner / width).min(384 / down);
        let strips = (inner / width).div_ceil(across);
        let layers = outer.min(65_535);
        let idle = (2 * self.gpu.multiprocessors).div_ceil(strips * layers);
        // A second launch costs as much as some rows more for every thread.
        let parts = if split && mid > 32 * down { idle.min(mid.div_ceil(8 * down)) } else { 1 };
        let part = mid.div_ceil(parts).max(1);
        let parts = mid.div_ceil(part).max(1);
        let partial = if parts > 1 { self.room(outer * parts * inner) } else { to.clone() };
        let (now, place) = if parts > 1 { (1.0, IN_ORDER) } else { (divisor, order) };
        let mut arguments = vec![from.at.clone(), partial.at.clone()];
        arguments.extend([outer, mid, inner, parts, part].map(|size| I64(size as i64)));
        arguments.extend([F64(now), results(place)]);
        let blocks = [strips as u32, parts as u32, layers as u32];
        let grid = Grid { blocks, threads: [across as u32, down as u32, 1], shared: 0 };
        self.push(self.module(from, &partial, width, 1).launch("reduce_columns", grid, arguments)?);
        if parts > 1 {
            self.columns(&partial, to, Shape { mid: parts, ..shape }, false, divisor, order)?;
        }
        Ok(())
    }

    fn lines(&mut self, from: &Place, to: &Place, shape: Shape, divisor: f64, order: [[i64; 3]; 2]) -> Result<()> {
        let mut arguments = vec![from.at.clone(), to.at.clone()];
        arguments.extend([shape.outer, shape.mid, shape.inner].map(|size| I64(size as i64)));
        arguments.extend([F64(divisor), results(order)]);
        let grid = Grid::over(shape.outer * shape.inner);
        self.push(self.module(from, to, 1, 1).launch("reduce_lines", grid, arguments)?);
        Ok(())
    }
}

/// `Results` of reduce.cu.
fn results(order: [[i64; 3]; 2]) -> Argument {
    Bytes(order.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect())
}

pub(super) fn arg_reduce(op: &ArgReduce, x: &Operand, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (shape, dtype) = (&x.meta.shape, x.meta.dtype);
    let (outer, mid) = (shape[..op.dim].iter().product::<usize>(), shape[op.dim]);
    let inner: usize = shape[op.dim + 1..].iter().product();
    // Long lines are cut where they are too few to keep the GPU busy.
    let (wanted, least) =
        if inner == 1 { (2 * gpu.multiprocessors, 16 * 1024) } else { (256 * gpu.multiprocessors, 64) };
    let parts = wanted.div_ceil(outer * inner).min(mid.div_ceil(least));
    let part = mid.div_ceil(parts);
    let parts = mid.div_ceil(part);
    let lanes = if inner == 1 { lanes(outer * parts, part.div_ceil(4)) } else { 1 };
    let module = Module::new(gpu, &ARG).of("ELEMENT", dtype).with("LEAST", u8::from(op.least)).with("LANES", lanes);
    let found = if parts > 1 { Workspace(0) } else { Output(0) };
    let mut arguments = vec![Input(0), found.clone(), I64(outer as i64), I64(mid as i64)];
    arguments.extend((inner > 1).then_some(I64(inner as i64)));
    arguments.extend([I64(parts as i64), I64(part as i64)]);
    let mut launches = vec![if inner == 1 {
        let threads = lanes.max(128);
        let grid = Grid::line((outer * parts).div_ceil(threads / lanes), threads as u32);
        module.launch("arg_reduce_rows", grid, arguments)?
    } else {
        module.launch("arg_reduce_columns", Grid::over(outer * parts * inner), arguments)?
    }];
    let mut workspace = 0;
    if parts > 1 {
        workspace = outer * parts * inner * size_of::<i64>();
        let mut arguments = vec![Input(0), found, Output(0)];
        arguments.extend([outer, mid, inner, parts].map(|size| I64(size as i64)));
        launches.push(module.launch("arg_reduce_candidates", Grid::over(outer * inner), arguments)?);
    }
    Ok(Box::new(Launches { launches, workspace, flops: x.meta.shape.numel() as u64 }))
}
