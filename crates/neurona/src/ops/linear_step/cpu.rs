//! Gradients and step of a linear layer on CPU cores, in one sweep over its weights.
//!
//! Some rows of weights at a time, from one end to the other: they are multiplied by gradients, which gives a part of the
//! gradient by the input; the input is multiplied by gradients, which gives their own; and they take their step while all of
//! it is in registers. Walked down instead, a few columns at a time, rows would be fetched ahead far beyond the last one of a
//! thread: where cores have no cache in common, taking the other's rows doubled the time of its half.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::gemm::{LARGE, add_parts, joins, mask, parts};
use crate::cpu::kernel::{Buf, Io, Kernel, Strand, Strands, share};
use crate::cpu::simd::{by_isa, vectorized};
use crate::cpu::stream::near;
use crate::ops::sgd_step::tile::Number;
use crate::ops::sgd_step::{ForRule, Options, Rule};
use crate::ops::sweep::scalars;

/// The sweep, for few rows of inputs.
pub(super) struct Sweep {
    rows: usize,
    out: usize,
    inner: usize,
    masked: bool,
    step: Options,
    /// Of the rows of weights, a task each; those of a product of its own, so that the gradient by the input has its bits.
    parts: usize,
}

/// Rows of inputs at most: each reads and writes its sums once for every few rows of weights.
const ROWS: usize = 8;
/// Rows of weights that are swept together.
const TOGETHER: usize = 4;

impl Sweep {
    /// For up to as many rows as there are kernels for.
    pub fn new(rows: usize, out: usize, inner: usize, masked: bool, step: Options) -> Option<Self> {
        let fits = (1..=ROWS).contains(&rows) && inner > 0 && out * inner < LARGE;
        fits.then(|| Sweep { rows, out, inner, masked, step, parts: parts(rows, inner, out) })
    }

    /// Some rows of weights.
    fn sweep(&self, part: usize, io: &Io<'_>) {
        let filters = share(self.out, self.parts, part);
        let (size, floats) = (self.rows * self.inner, self.out * self.inner);
        let sizes = [
            (io.inputs[0], self.rows * self.out),
            (io.inputs[1], size),
            (io.outputs[0], size),
            (io.outputs[1], floats),
            (io.workspace, self.workspace() / size_of::<f32>()),
        ];
        // The weights and, with momentum, their buffer: the last operands but for the numbers, and the last results.
        let kept = self.step.operands() - 1;
        let old = &io.inputs[io.inputs.len() - 1 - kept..io.inputs.len() - 1];
        let new = &io.outputs[2..2 + kept];
        assert!(old.iter().chain(new).all(|buf| buf.len::<f32>() >= floats));
        assert!(sizes.iter().all(|(buf, floats)| buf.len::<f32>() >= *floats));
        // Another thread has just written some of it, and a block of rows would wait for its lines one after the other.
        if self.parts > 1 {
            near(io.inputs[0].ptr(), self.rows * self.out);
            near(io.inputs[1].ptr(), size);
        }
        let (numbers, first) = self.step.numbers(scalars(io));
        let [one, some] = self.step.rule(first, Choice);
        let line = self.line();
        // SAFETY: scratch belongs to this thread.
        let sums = unsafe { io.scratch.slice_mut::<f32>(0..self.rows * line) };
        sums.fill(0.0);
        let mut filter = filters.start;
        while filter < filters.end {
            let (rows, run) = if filters.end - filter < TOGETHER { (1, one) } else { (TOGETHER, some) };
            let place = |bufs: &[Buf], i: usize| {
                bufs.get(i).map_or(std::ptr::null_mut(), |buf| buf.ptr::<f32>().wrapping_add(filter * self.inner))
            };
            let block = Block {
                rows: self.rows,
                dy: io.inputs[0].ptr::<f32>().wrapping_add(filter),
                dy_row: self.out,
                x: io.inputs[1].ptr(),
                old: [place(old, 0), place(old, 1)],
                gradients: place(&io.outputs[1..2], 0),
                new: [place(new, 0), place(new, 1)],
                numbers,
                sums: sums.as_mut_ptr(),
                sums_row: line,
                columns: self.inner,
            };
            // SAFETY: sizes are as checked above; these rows belong to this task, and so do these sums. The kernel is of the
            // instruction set in use.
            unsafe { run(&block) };
            filter += rows;
        }
        let (to, own) = if self.parts > 1 { (io.workspace, part * size) } else { (io.outputs[0], 0) };
        // SAFETY: these sums belong to this task.
        let to = unsafe { to.slice_mut::<f32>(own..own + size) };
        for (to, sums) in to.chunks_exact_mut(self.inner).zip(sums.chunks_exact(line)) {
            to.copy_from_slice(&sums[..self.inner]);
        }
        if self.masked && self.parts == 1 {
            vectorized(
                #[inline(always)]
                || mask(0..size, io),
            );
        }
    }

    /// Tasks that add parts up: two halves of the batch, where it has halves, rather than one. Who comes next often goes image
    /// by image, and each thread then has its own.
    fn sums(&self) -> usize {
        let least = if self.rows.is_multiple_of(2) { 2 } else { 1 };
        joins(self.parts, self.rows * self.inner).max(least)
    }

    /// Floats of a row of sums while they are added to: whole registers, because what was written in part cannot be read
    /// again before it has reached the cache.
    fn line(&self) -> usize {
        self.inner.next_multiple_of(16)
    }
}

impl Kernel for Sweep {
    fn phases(&self) -> Vec<usize> {
        std::iter::once(self.parts).chain((self.parts > 1).then(|| self.sums())).collect()
    }

    fn strands(&self) -> Option<Strands> {
        let sums = Strand { waits: true, ..Strand::sharing(self.rows, self.sums()) };
        let phases = std::iter::once(Strand::NONE).chain((self.parts > 1).then_some(sums)).collect();
        Some(Strands { phases, inputs: Vec::new(), outputs: vec![0] })
    }

    fn workspace(&self) -> usize {
        if self.parts > 1 { self.parts * self.rows * self.inner * size_of::<f32>() } else { 0 }
    }

    fn scratch(&self) -> usize {
        self.rows * self.line() * size_of::<f32>()
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            return self.sweep(task, io);
        }
        let size = self.rows * self.inner;
        add_parts(self.parts, share(size, self.sums(), task), self.masked, io);
    }

    fn flops(&self) -> u64 {
        (4 * self.rows as u64 + 6) * (self.out * self.inner) as u64
    }
}

/// A few rows of weights with what they meet and give. Floats from one row to the next are as many as there are columns,
/// unless they are named apart.
struct Block {
    /// Rows of inputs.
    rows: usize,
    dy: *const f32,
    dy_row: usize,
    x: *const f32,
    /// Weights, and their buffer.
    old: [*const f32; 2],
    gradients: *mut f32,
    new: [*mut f32; 2],
    /// The step's, as [`Rule`] takes them.
    numbers: [f32; 5],
    /// Added to, in whole registers.
    sums: *mut f32,
    sums_row: usize,
    columns: usize,
}

/// A compiled [`Block`] of a fixed number of rows of weights: reads and writes what it names.
type BlockFn = unsafe fn(&Block);

/// `F` rows of weights.
#[inline(always)]
unsafe fn block<V: Vector, R: Rule, const F: usize>(b: &Block) {
    // SAFETY: the caller's block names memory that it may read and write; the vector operations are there by this function's
    // callers.
    unsafe {
        let mut dy = [[0f32; F]; ROWS];
        for (i, dy) in dy.iter_mut().enumerate().take(b.rows) {
            dy.copy_from_slice(std::slice::from_raw_parts(b.dy.add(i * b.dy_row), F));
        }
        let whole = b.columns / V::LANES * V::LANES;
        for column in (0..whole).step_by(V::LANES) {
            register::<V, R, F, false>(b, &dy, column);
        }
        if whole < b.columns {
            register::<V, R, F, true>(b, &dy, whole);
        }
    }
}

/// A register of columns; `PART` at the end of a row, where they do not fill it.
#[inline(always)]
unsafe fn register<V: Vector, R: Rule, const F: usize, const PART: bool>(
    b: &Block,
    dy: &[[f32; F]; ROWS],
    column: usize,
) {
    let part = b.columns % V::LANES;
    // SAFETY: as above, and only columns that are there are touched.
    unsafe {
        let load = |p: *const f32| if PART { V::load_part(p, part) } else { V::load(p) };
        let store = |v: V, p: *mut f32| if PART { v.store_part(p, part) } else { v.store(p) };
        let weights: [V; F] = std::array::from_fn(|f| load(b.old[0].add(f * b.columns + column)));
        let mut gradients = [V::splat(0.0); F];
        for (i, dy) in dy.iter().enumerate().take(b.rows) {
            let place = b.sums.add(i * b.sums_row + column);
            let (x, mut sum) = (load(b.x.add(i * b.columns + column)), V::load(place));
            for f in 0..F {
                let dy = V::splat(dy[f]);
                sum = dy.mul_add(weights[f], sum);
                gradients[f] = dy.mul_add(x, gradients[f]);
            }
            sum.store(place);
        }
        let numbers = b.numbers.map(|x| Number(V::splat(x)));
        for f in 0..F {
            let at = f * b.columns + column;
            store(gradients[f], b.gradients.add(at));
            let buffer = if R::KEEPS > 1 { load(b.old[1].add(at)) } else { weights[f] };
            let [weight, buffer] = R::apply(numbers, [Number(weights[f]), Number(gradients[f]), Number(buffer)]);
            store(weight.0, b.new[0].add(at));
            if R::KEEPS > 1 {
                store(buffer.0, b.new[1].add(at));
            }
        }
    }
}

macro_rules! compiled {
    ($block:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $block<R: Rule, const F: usize>(b: &Block) {
            // SAFETY: the caller's promise, passed on.
            unsafe { block::<$vector, R, F>(b) }
        }
    };
}
compiled!(block_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(block_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(block_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The blocks of one row of weights, and of some.
struct Choice;

impl ForRule for Choice {
    type Result = [BlockFn; 2];

    fn with<R: Rule>(self) -> Self::Result {
        by_isa!(
            [block_avx512::<R, 1>, block_avx512::<R, TOGETHER>],
            [block_avx2::<R, 1>, block_avx2::<R, TOGETHER>],
            [block_portable::<R, 1>, block_portable::<R, TOGETHER>]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::gemm::tests::noise;
    use crate::cpu::gemm::{Activation, MatLayout, MatMul};
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
            for (out, inner) in
                [(1, 1), (3, 5), (10, 84), (84, 120), (120, 400), (7, 33), (300, 47), (257, 1019), (33, 512)]
            {
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
