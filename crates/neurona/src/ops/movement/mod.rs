//! Kernels for GPUs that only move elements, shared by the ops that do: strided copies, transpositions, and elements
//! from other places of one dimension.

use crate::Result;
use crate::cuda::index::Numbers;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::tensor::{DType, Shape};

const COPY: Source = Source::embedded("copy.cu", include_str!("copy.cu"));
const TRANSPOSE: Source = Source::embedded("transpose.cu", include_str!("transpose.cu"));
const PLACES: Source = Source::embedded("places.cu", include_str!("places.cu"));

/// The side of the squares of `transpose.cu`, and the rows of threads that turn one.
const SIDE: usize = 32;
const ROWS: u32 = 8;
/// Dimensions smaller than this leave most of a square empty.
const WORTH_TURNING: usize = 16;

/// One dimension of a copy: its size, and the strides on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dim {
    size: usize,
    from: isize,
    to: isize,
}

/// A copy between strided orders of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    /// Bytes of what is moved at once.
    bytes: usize,
    /// Types of the elements before and after, where they differ.
    types: Option<(DType, DType)>,
    dims: Vec<Dim>,
    from_offset: usize,
    to_offset: usize,
}

impl Strided {
    /// Elements of `bytes` bytes; element `i` goes from `from_offset + Σ i[d] * from[d]` to `to_offset + Σ i[d] * to[d]`.
    pub fn new(
        bytes: usize,
        shape: &[usize],
        (from, from_offset): (&[isize], usize),
        (to, to_offset): (&[isize], usize),
    ) -> Strided {
        let mut dims: Vec<Dim> = Vec::new();
        for ((&size, &from), &to) in shape.iter().zip(from).zip(to).filter(|((size, _), _)| **size != 1) {
            let whole = size as isize;
            match dims.last_mut() {
                Some(last) if last.from == from * whole && last.to == to * whole => {
                    *last = Dim { size: last.size * size, from, to }
                }
                _ => dims.push(Dim { size, from, to }),
            }
        }
        if dims.is_empty() {
            dims.push(Dim { size: 1, from: 1, to: 1 });
        }
        let mut copy = Strided { bytes, types: None, dims, from_offset, to_offset };
        copy.widen();
        copy
    }

    /// To contiguous memory.
    pub fn view(bytes: usize, shape: &[usize], from: &[isize], from_offset: usize) -> Strided {
        Strided::new(bytes, shape, (from, from_offset), (&strides(shape), 0))
    }

    /// Of a contiguous tensor, whose dimension `order[d]` becomes dimension `d`.
    pub fn permute(bytes: usize, shape: &[usize], order: &[usize]) -> Strided {
        let own = strides(shape);
        let sizes: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
        let from: Vec<isize> = order.iter().map(|&d| own[d]).collect();
        Strided::view(bytes, &sizes, &from, 0)
    }

    /// The same, from one floating-point type to another on the way.
    pub fn converting(types: (DType, DType), shape: &[usize], order: &[usize]) -> Strided {
        // Of 16 bytes, so that neighbours are not joined: elements are looked at one by one.
        Strided { types: Some(types), ..Strided::permute(16, shape, order) }
    }

    /// Neighbours that stay neighbours move together, up to the 16 bytes that a thread can access at once.
    fn widen(&mut self) {
        let Some((last, others)) = self.dims.split_last_mut().filter(|(last, _)| (last.from, last.to) == (1, 1)) else {
            return;
        };
        while self.bytes < 16 {
            let even = |stride: isize| stride % 2 == 0;
            let fits = last.size.is_multiple_of(2)
                && (self.from_offset | self.to_offset).is_multiple_of(2)
                && others.iter().all(|d| even(d.from) && even(d.to));
            if !fits {
                break;
            }
            self.bytes *= 2;
            last.size /= 2;
            self.from_offset /= 2;
            self.to_offset /= 2;
            others.iter_mut().for_each(|d| (d.from, d.to) = (d.from / 2, d.to / 2));
        }
        if last.size == 1 && !others.is_empty() {
            self.dims.pop();
        }
    }

    fn total(&self) -> usize {
        self.dims.iter().map(|d| d.size).product()
    }

    /// No element number on either side is greater.
    fn reach(&self) -> usize {
        let ends = |of: fn(&Dim) -> isize| -> usize {
            self.dims.iter().map(|d| (d.size - 1) * usize::try_from(of(d)).unwrap_or(0)).sum()
        };
        self.total().max(self.from_offset + ends(|d| d.from)).max(self.to_offset + ends(|d| d.to))
    }

    /// The dimension that changes places with the last: the fastest of x is not the fastest of y.
    fn turned(&self) -> Option<usize> {
        let (last, others) = self.dims.split_last()?;
        let k = others.iter().position(|d| d.from == 1 && d.size >= WORTH_TURNING)?;
        let plain = last.to == 1 && last.size >= WORTH_TURNING && self.from_offset == 0 && self.to_offset == 0;
        plain.then_some(k)
    }

    /// The launch that copies operand `input` into the result; none where there is nothing to copy.
    pub fn launch(&self, input: usize, gpu: &Gpu) -> Result<Option<Launch>> {
        if self.total() == 0 {
            return Ok(None);
        }
        let launch = match self.turned() {
            Some(k) => self.launch_transpose(k, input, gpu)?,
            None => self.launch_copy(input, gpu)?,
        };
        Ok(Some(launch))
    }

    fn launch_copy(&self, input: usize, gpu: &Gpu) -> Result<Launch> {
        let mut view = Numbers::up_to(self.reach());
        [self.total(), self.from_offset, self.to_offset].into_iter().for_each(|n| view.number(n as isize));
        self.dims.iter().for_each(|d| view.divisor(d.size));
        self.dims.iter().for_each(|d| view.number(d.from));
        self.dims.iter().for_each(|d| view.number(d.to));
        let macros = self.macros(self.dims.len(), &view);
        Ok(Launch {
            function: gpu.function(&COPY, "copy", &macros)?,
            grid: Grid::over(self.total()),
            arguments: vec![Argument::Input(input), Argument::Output(0), Argument::Bytes(view.bytes())],
        })
    }

    fn launch_transpose(&self, k: usize, input: usize, gpu: &Gpu) -> Result<Launch> {
        let mut others = self.dims.clone();
        let columns = others.remove(others.len() - 1);
        let rows = others.remove(k);
        let (across, down) = (columns.size.div_ceil(SIDE), rows.size.div_ceil(SIDE));
        // Threads beyond the edge of a square compute a place too, which they leave alone.
        let mut turn = Numbers::up_to(self.reach() + SIDE * (columns.from.unsigned_abs() + rows.to.unsigned_abs()));
        turn.divisor(across);
        turn.divisor(down);
        [rows.size as isize, columns.size as isize, columns.from, rows.to].into_iter().for_each(|n| turn.number(n));
        others.iter().for_each(|d| turn.divisor(d.size));
        others.iter().for_each(|d| turn.number(d.from));
        others.iter().for_each(|d| turn.number(d.to));
        let blocks = across * down * others.iter().map(|d| d.size).product::<usize>();
        let macros = self.macros(others.len(), &turn);
        Ok(Launch {
            function: gpu.function(&TRANSPOSE, "transpose", &macros)?,
            grid: Grid { blocks: [blocks as u32, 1, 1], threads: [SIDE as u32, ROWS, 1], shared: 0 },
            arguments: vec![Argument::Input(input), Argument::Output(0), Argument::Bytes(turn.bytes())],
        })
    }

    fn macros(&self, rank: usize, numbers: &Numbers) -> Vec<(&'static str, String)> {
        let mut macros = vec![("RANK", rank.to_string()), ("INDEX", numbers.cuda_type().into())];
        match self.types {
            Some((from, to)) => {
                macros.extend([("CONVERT", "1".into()), ("FROM", cuda_type(from).into()), ("TO", cuda_type(to).into())])
            }
            None => macros.push(("BYTES", self.bytes.to_string())),
        }
        macros
    }

    /// A step that is this copy alone.
    pub fn kernel(&self, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
        let launches = self.launch(0, gpu)?.into_iter().collect();
        Ok(Box::new(Launches { launches, ..Launches::default() }))
    }
}

/// Where the elements along a dimension come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Every `step`-th place from the one that operand 1 says.
    Slice { step: usize },
    /// Back from [`Origin::Slice`], with zeros between.
    Unslice { step: usize },
    /// As many places before as operand 1 says, the end followed by the start.
    Roll,
    /// The places that operand 1 names, one line for all.
    Lines,
    /// The places that operand 1 names, one for each element of the result.
    Each,
}

/// A step that takes elements of operand 0 from other places of dimension `dim`.
pub(crate) fn places(
    dtype: DType,
    x: &Shape,
    y: &Shape,
    dim: usize,
    from: Origin,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let total = y.numel();
    if total == 0 {
        return Ok(Box::new(Launches::default()));
    }
    let (mode, step) = match from {
        Origin::Slice { step } => ("SLICE", step),
        Origin::Unslice { step } => ("UNSLICE", step),
        Origin::Roll => ("ROLL", 1),
        Origin::Lines => ("LINES", 1),
        Origin::Each => ("EACH", 1),
    };
    let inner: usize = y[dim + 1..].iter().product();
    let mut bytes = dtype.size();
    let mut wide = 1;
    while from != Origin::Each && bytes < 16 && (inner / wide).is_multiple_of(2) {
        (bytes, wide) = (bytes * 2, wide * 2);
    }
    let mut line = Numbers::up_to(x.numel().max(total));
    line.number((total / wide) as isize);
    line.number(x[dim] as isize);
    [y[dim], inner / wide, step].into_iter().for_each(|size| line.divisor(size));
    let named = matches!(from, Origin::Lines | Origin::Each);
    let missing = if named { not_a_number(dtype) } else { 0 };
    let macros = [("MODE", mode.into()), ("BYTES", bytes.to_string()), ("INDEX", line.cuda_type().into())];
    let launch = Launch {
        function: gpu.function(&PLACES, "places", &macros)?,
        grid: Grid::over(total / wide),
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            Argument::Output(0),
            Argument::I64(missing as i64),
            Argument::Bytes(line.bytes()),
        ],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}

/// NaN, or 0 for whole numbers, as many times as 8 bytes hold it.
fn not_a_number(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => u64::from(half::f16::NAN.to_bits()) * 0x0001_0001_0001_0001,
        DType::BF16 => u64::from(half::bf16::NAN.to_bits()) * 0x0001_0001_0001_0001,
        DType::F32 => u64::from(f32::NAN.to_bits()) * 0x0000_0001_0000_0001,
        DType::F64 => f64::NAN.to_bits(),
        DType::Bool | DType::U8 | DType::I64 => 0,
    }
}

/// Strides of a contiguous tensor.
pub(crate) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as isize;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_and_move_together() {
        let turned = Strided::permute(2, &[6, 4, 8], &[1, 0, 2]);
        assert_eq!((turned.bytes, turned.dims.len(), turned.total()), (16, 2, 24));
        assert_eq!(turned.turned(), None);
        let same = Strided::permute(4, &[3, 1, 5], &[1, 0, 2]);
        assert_eq!(same.dims, [Dim { size: 15, from: 1, to: 1 }]);
        let flipped = Strided::view(4, &[4, 4], &[4, -1], 3);
        assert_eq!((flipped.bytes, flipped.dims.len()), (4, 2));
        let single = Strided::permute(8, &[1, 1], &[1, 0]);
        assert_eq!((single.total(), single.reach()), (1, 1));
    }

    #[test]
    fn images_with_many_channels_are_turned_in_squares() {
        let last = Strided::permute(4, &[2, 64, 8, 8], &[0, 2, 3, 1]);
        assert_eq!(last.dims.len(), 3);
        assert_eq!(last.turned(), Some(1));
        assert_eq!(Strided::permute(4, &[2, 3, 8, 8], &[0, 2, 3, 1]).turned(), None);
    }
}
