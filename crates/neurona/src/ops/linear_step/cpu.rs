//! Gradients and step of a linear layer on CPU cores, in one sweep over its weights.
//!
//! Some rows of weights at a time and a few registers of their columns: they are multiplied by gradients, which gives a part
//! of the gradient by the input; the input is multiplied by gradients, which gives their own; and they take their step while
//! all of it is in the L1 cache.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::gemm::{LARGE, add_parts, joins, mask, parts};
use crate::cpu::kernel::{Io, Kernel, share};
use crate::cpu::simd::{by_isa, vectorized};
use crate::ops::sgd_step::Options;
use crate::ops::sgd_step::tile::{Along, Gradients};
use std::ops::Range;

/// The sweep, for few rows of inputs.
pub(super) struct Sweep {
    rows: usize,
    out: usize,
    inner: usize,
    masked: bool,
    step: Options,
    /// Of the rows of weights, a task each; those of a product of its own, so that the gradient by the input has its bits.
    parts: usize,
    columns: Vec<Columns>,
}

/// Some neighbouring columns of the weights.
struct Columns {
    range: Range<usize>,
    run: BlockFn,
}

impl Sweep {
    /// For up to as many rows as there are kernels for.
    pub fn new(rows: usize, out: usize, inner: usize, masked: bool, step: Options) -> Option<Self> {
        // Rows of larger matrices are too far apart to be walked down.
        let columns = cut(rows, inner).filter(|_| out * inner < LARGE)?;
        Some(Sweep { rows, out, inner, masked, step, parts: parts(rows, inner, out), columns })
    }

    /// Some rows of weights.
    fn sweep(&self, part: usize, io: &Io<'_>) {
        let filters = share(self.out, self.parts, part);
        let floats = self.out * self.inner;
        let sizes = [
            (io.inputs[0], self.rows * self.out),
            (io.inputs[1], self.rows * self.inner),
            (io.outputs[0], self.rows * self.inner),
            (io.outputs[1], floats),
            (io.workspace, self.workspace() / size_of::<f32>()),
        ];
        assert!(sizes.iter().all(|(buf, floats)| buf.len::<f32>() >= *floats));
        let along = Along::new(Some(self.step), io, floats);
        let sums = if self.parts > 1 { io.workspace } else { io.outputs[0] };
        for Columns { range, run } in &self.columns {
            let at = filters.start * self.inner + range.start;
            let block = Block {
                dy: io.inputs[0].ptr::<f32>().wrapping_add(filters.start),
                dy_row: self.out,
                x: io.inputs[1].ptr::<f32>().wrapping_add(range.start),
                weights: along.reads(at)[0],
                gradients: io.outputs[1].ptr::<f32>().wrapping_add(at),
                sums: sums.ptr::<f32>().wrapping_add(part * self.rows * self.inner + range.start),
                filters: filters.len(),
                row: self.inner,
                columns: range.len(),
            };
            let gradients = Gradients {
                rows: filters.len(),
                columns: range.len(),
                tile: block.gradients,
                tile_row: self.inner,
                to: None,
                at,
                row: self.inner,
            };
            // SAFETY: sizes are as checked above; these rows and columns belong to this task, and so do these sums. The
            // kernel is of the instruction set in use.
            unsafe {
                run(&block);
                along.step(&gradients);
            }
        }
        if self.masked && self.parts == 1 {
            vectorized(
                #[inline(always)]
                || mask(0..self.rows * self.inner, io),
            );
        }
    }
}

impl Kernel for Sweep {
    fn phases(&self) -> Vec<usize> {
        let sums = (self.parts > 1).then(|| joins(self.parts, self.rows * self.inner));
        std::iter::once(self.parts).chain(sums).collect()
    }

    fn workspace(&self) -> usize {
        if self.parts > 1 { self.parts * self.rows * self.inner * size_of::<f32>() } else { 0 }
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            return self.sweep(task, io);
        }
        let size = self.rows * self.inner;
        add_parts(self.parts, share(size, joins(self.parts, size), task), self.masked, io);
    }

    fn flops(&self) -> u64 {
        (4 * self.rows as u64 + 6) * (self.out * self.inner) as u64
    }
}

/// A block of weights with what it meets and gives. Floats from one row to the next are `row` but for the gradients by the
/// layer's result.
struct Block {
    dy: *const f32,
    dy_row: usize,
    x: *const f32,
    weights: *const f32,
    gradients: *mut f32,
    sums: *mut f32,
    /// Rows of weights.
    filters: usize,
    row: usize,
    columns: usize,
}

/// A compiled [`Block`] of a fixed number of rows of inputs: reads and writes what it names.
type BlockFn = unsafe fn(&Block);

#[inline(always)]
unsafe fn block<V: Vector, const M: usize, const N: usize, const PART: bool>(b: &Block) {
    // SAFETY: the caller's block names memory that it may read and write, and only `columns` of it are touched; the vector
    // operations are there by this function's callers.
    unsafe {
        let load =
            |p: *const f32, j: usize| if PART { V::load_part(p, b.columns) } else { V::load(p.add(j * V::LANES)) };
        let store = |v: V, p: *mut f32, j: usize| {
            if PART { v.store_part(p, b.columns) } else { v.store(p.add(j * V::LANES)) }
        };
        let x: [[V; N]; M] = std::array::from_fn(|i| std::array::from_fn(|j| load(b.x.add(i * b.row), j)));
        let mut sums = [[V::splat(0.0); N]; M];
        for filter in 0..b.filters {
            let at = filter * b.row;
            let weights: [V; N] = std::array::from_fn(|j| load(b.weights.add(at), j));
            let mut gradients = [V::splat(0.0); N];
            for i in 0..M {
                let dy = V::splat(*b.dy.add(i * b.dy_row + filter));
                for j in 0..N {
                    sums[i][j] = dy.mul_add(weights[j], sums[i][j]);
                    gradients[j] = dy.mul_add(x[i][j], gradients[j]);
                }
            }
            for (j, gradient) in gradients.iter().enumerate() {
                store(*gradient, b.gradients.add(at), j);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                store(*sum, b.sums.add(i * b.row), j);
            }
        }
    }
}

macro_rules! compiled {
    ($block:ident $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $block<V: Vector, const M: usize, const N: usize, const PART: bool>(b: &Block) {
            // SAFETY: the caller's promise, passed on.
            unsafe { block::<V, M, N, PART>(b) }
        }
    };
}
compiled!(block_portable);
#[cfg(target_arch = "x86_64")]
compiled!(block_avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(block_avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// Blocks of one width, by their number of rows from 1 on.
struct Width {
    columns: usize,
    rows: [BlockFn; 8],
}

macro_rules! width {
    ($block:ident, $vector:ty, $n:literal, $part:literal) => {
        Width {
            columns: if $part { 1 } else { $n * <$vector as Vector>::LANES },
            rows: [
                $block::<$vector, 1, $n, $part>,
                $block::<$vector, 2, $n, $part>,
                $block::<$vector, 3, $n, $part>,
                $block::<$vector, 4, $n, $part>,
                $block::<$vector, 5, $n, $part>,
                $block::<$vector, 6, $n, $part>,
                $block::<$vector, 7, $n, $part>,
                $block::<$vector, 8, $n, $part>,
            ],
        }
    };
}

// Two registers a row where there are registers for their sums; the last blocks for what does not fill one.
static PORTABLE: [Width; 2] = [width!(block_portable, Lanes, 1, false), width!(block_portable, Lanes, 1, true)];
#[cfg(target_arch = "x86_64")]
static AVX2: [Width; 2] = [width!(block_avx2, Avx2, 1, false), width!(block_avx2, Avx2, 1, true)];
#[cfg(target_arch = "x86_64")]
static AVX512: [Width; 3] = [
    width!(block_avx512, Avx512, 2, false),
    width!(block_avx512, Avx512, 1, false),
    width!(block_avx512, Avx512, 1, true),
];

/// Cuts columns into blocks, for so many rows of inputs.
fn cut(rows: usize, columns: usize) -> Option<Vec<Columns>> {
    let widths: &'static [Width] = by_isa!(&AVX512, &AVX2, &PORTABLE);
    let (mut cut, mut start) = (Vec::new(), 0);
    while start < columns {
        let rest = columns - start;
        let width = widths.iter().find(|width| width.columns <= rest)?;
        let run = *width.rows.get(rows.checked_sub(1)?)?;
        let taken = if width.columns == 1 { rest } else { width.columns };
        cut.push(Columns { range: start..start + taken, run });
        start += taken;
    }
    Some(cut).filter(|cut| !cut.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::gemm::tests::noise;
    use crate::cpu::gemm::{Activation, MatLayout, MatMul};
    use crate::cpu::kernel::Buf;
    use crate::cpu::tasks::testing;
    use crate::ops::sgd_step::cpu::Step;

    /// The sweep against two products and a step of their own: the same bits.
    fn check(rows: usize, out: usize, inner: usize, masked: bool, options: Options, step: f64) {
        let what = format!("{rows} rows, {out} x {inner}, masked {masked}, {options:?}, step {step}");
        let (mut dy, mut x) = (noise(rows * out, 1), noise(rows * inner, 2));
        let (mut relu, mut numbers) = (noise(rows * inner, 3), vec![0.1, 0.9, 0.3, 5e-4, step]);
        // The first step must not read the buffer.
        let buffer = if step > 1.0 { noise(out * inner, 5) } else { vec![f32::NAN; out * inner] };
        let mut kept = vec![noise(out * inner, 4), buffer];
        kept.truncate(options.operands() - 1);
        let mut alone = kept.clone();
        let results = || (vec![f32::NAN; rows * inner], vec![f32::NAN; out * inner]);

        let plain = |columns| MatLayout { row: columns, col: 1, batch: 0 };
        let (mut dx, mut dw) = results();
        let by_input =
            MatMul::of(1, rows, inner, out, plain(out), plain(inner), false, Activation::None, false, masked);
        let mut operands = vec![Buf::over(&mut dy), Buf::over(&mut alone[0]), Buf::over(&mut relu)];
        operands.truncate(2 + usize::from(masked));
        testing::run(&by_input, &operands, &[Buf::over(&mut dx)]);
        let turned = MatLayout { row: 1, col: out, batch: 0 };
        let by_weight = MatMul::new(1, out, inner, rows, turned, plain(inner), false, Activation::None);
        testing::run(&by_weight, &[Buf::over(&mut dy), Buf::over(&mut x)], &[Buf::over(&mut dw)]);
        let mut operands: Vec<Buf> = alone.iter_mut().map(|v| Buf::over(v)).collect();
        let updated = operands.clone();
        operands.insert(1, Buf::over(&mut dw));
        operands.push(Buf::over(&mut numbers));
        testing::run(&Step::<f32>::new(&[out * inner], options), &operands, &updated);

        let (mut by_input, mut by_weight) = results();
        let mut operands = vec![Buf::over(&mut dy), Buf::over(&mut x), Buf::over(&mut relu)];
        operands.truncate(2 + usize::from(masked));
        let mut given = vec![Buf::over(&mut by_input), Buf::over(&mut by_weight)];
        for kept in &mut kept {
            operands.push(Buf::over(kept));
            given.push(Buf::over(kept));
        }
        operands.push(Buf::over(&mut numbers));
        let sweep = Sweep::new(rows, out, inner, masked, options).expect("few rows and weights");
        testing::run(&sweep, &operands, &given);
        assert_eq!(dx, by_input, "{what}");
        assert_eq!(dw, by_weight, "{what}");
        assert_eq!(alone, kept, "{what}");
    }

    #[test]
    fn one_sweep_has_the_bits_of_products_and_step() {
        for rows in 1..=8 {
            for (out, inner) in [(1, 1), (3, 5), (10, 84), (84, 120), (120, 400), (7, 33), (300, 47), (257, 1019)] {
                let step = f64::from(1 + u8::from((rows + inner) % 2 == 0));
                check(rows, out, inner, out % 2 == 0, Options { momentum: true, ..Default::default() }, step);
            }
        }
        for (momentum, nesterov, maximize) in [(false, false, true), (true, false, true), (true, true, false)] {
            for step in [1.0, 2.0] {
                check(4, 61, 401, true, Options { momentum, nesterov, maximize }, step);
            }
        }
    }

    #[test]
    fn it_is_for_few_rows_and_weights() {
        let fits = |rows, out, inner| Sweep::new(rows, out, inner, false, Options::default()).is_some();
        assert!(fits(8, 120, 400) && fits(1, 1, 1) && fits(2, 0, 9));
        assert!(!fits(9, 120, 400) && !fits(0, 120, 400) && !fits(4, 512, 512) && !fits(4, 9, 0));
    }
}
