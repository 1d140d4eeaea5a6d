//! The fast product against the plain one.

use super::*;
use crate::cpu::kernel::{Buf, Plain};

/// Deterministic values in [-1, 1).
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Runs a kernel on one thread, its tasks backwards when asked; results start as NaN.
pub(crate) fn run<T: Plain + Float>(
    kernel: &dyn Kernel,
    inputs: &mut [Vec<T>],
    outputs: &[usize],
    backwards: bool,
) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = outputs.iter().map(|&n| vec![T::nan(); n]).collect();
    let aligned = |bytes: usize| vec![[f64::NAN; 8]; bytes.div_ceil(64)];
    let (mut workspace, mut scratch) = (aligned(kernel.workspace()), aligned(kernel.scratch()));
    let inputs: Vec<Buf> = inputs.iter_mut().map(|v| Buf::over(v)).collect();
    let outputs: Vec<Buf> = results.iter_mut().map(|v| Buf::over(v)).collect();
    let io = Io {
        inputs: &inputs,
        outputs: &outputs,
        workspace: Buf::new(workspace.as_mut_ptr().cast(), kernel.workspace()),
        scratch: Buf::new(scratch.as_mut_ptr().cast(), kernel.scratch()),
    };
    for (phase, tasks) in kernel.phases().into_iter().enumerate() {
        for task in 0..tasks {
            kernel.run(phase, if backwards { tasks - 1 - task } else { task }, &io);
        }
    }
    results
}

/// Compares with a tolerance for sums of `terms` rounded products.
pub(crate) fn close(fast: &[f32], plain: &[f64], terms: usize, what: &str) {
    assert_eq!(fast.len(), plain.len(), "{what}");
    let tolerance = 1e-5 * (terms.max(1) as f64).sqrt();
    for (i, (&x, &y)) in fast.iter().zip(plain).enumerate() {
        assert!((f64::from(x) - y).abs() <= tolerance * y.abs().max(1.0), "{what}: {x} is not {y} at {i}");
    }
}

/// Turns test data into the reference's type.
pub(crate) fn wide(values: &[Vec<f32>]) -> Vec<Vec<f64>> {
    values.iter().map(|v| v.iter().map(|&x| f64::from(x)).collect()).collect()
}

fn check(batch: usize, m: usize, n: usize, k: usize, way: usize, shared: bool) {
    let layout = |rows: usize, columns: usize, transposed: bool, batch: usize| MatLayout {
        row: if transposed { 1 } else { columns },
        col: if transposed { rows } else { 1 },
        batch,
    };
    let a = layout(m, k, way & 1 != 0, m * k);
    let b = layout(k, n, way & 2 != 0, if shared { 0 } else { k * n });
    let bias = way & 4 != 0;
    let activation = match way & 8 != 0 {
        true if n.is_multiple_of(2) => Activation::Relu,
        true => Activation::Relu6,
        false => Activation::None,
    };
    let b_size = if shared { k * n } else { batch * k * n };
    let mut inputs = vec![noise(batch * m * k, 1), noise(b_size, 2)];
    if bias {
        inputs.push(noise(n, 3));
    }
    let fast = MatMul::new(batch, m, n, k, a, b, bias, activation);
    let plain = MatMulReference::<f64>::new(batch, m, n, k, a, b, bias, activation);
    let size = [batch * m * n];
    let expected = run(&plain, &mut wide(&inputs), &size, false);
    let forwards = run(&fast, &mut inputs, &size, false);
    let backwards = run(&fast, &mut inputs, &size, true);
    let what = format!("{batch} x {m}x{n}x{k}, way {way}, shared {shared}");
    assert_eq!(forwards[0], backwards[0], "{what}");
    close(&forwards[0], &expected[0], k, &what);
}

#[test]
fn small_sizes_in_every_layout() {
    for &m in &[0, 1, 2, 3, 5, 7, 13, 15, 29] {
        for &n in &[0, 1, 4, 6, 9, 16, 17, 31, 33, 70] {
            for &k in &[0, 1, 3, 16, 37] {
                for way in 0..16 {
                    check(1, m, n, k, way, false);
                }
            }
        }
    }
}

#[test]
fn large_sizes_in_every_layout() {
    for &(m, n, k) in &[(128, 84, 120), (65, 257, 1030), (200, 40, 513), (33, 300, 700)] {
        for way in 0..16 {
            check(1, m, n, k, way, false);
        }
    }
}

#[test]
fn right_operands_larger_than_the_cache() {
    for &(m, n, k) in &[(1, 1024, 300), (2, 530, 600), (5, 700, 400), (20, 1030, 260)] {
        for way in [0, 1, 12, 13] {
            check(1, m, n, k, way, false);
        }
    }
}

#[test]
fn left_rows_that_meet_in_the_cache() {
    for &(batch, m, n, k) in &[(1, 60, 40, 1024), (1, 141, 33, 2048), (2, 75, 20, 1024)] {
        for way in 0..16 {
            check(batch, m, n, k, way, true);
        }
    }
}

#[test]
fn random_sizes_and_layouts() {
    let mut rng = crate::cpu::tasks::testing::Rng(5);
    for _ in 0..200 {
        let [m, n, k] = [160, 160, 600].map(|most| {
            let small = 3 * rng.below(2);
            rng.below(most >> small)
        });
        let (batch, way) = (1 + rng.below(3), rng.below(16));
        check(batch, m, n, k, way, rng.below(2) == 0);
    }
}

/// A column beyond whole panels is one of its own where vectors along the reduction are full enough.
#[test]
fn panels_of_one_column() {
    let ends = |n, run| panel::filled_panels(n, run).last().map(|p| (p.start, p.columns, p.width.columns));
    assert_eq!(ends(33, 120), Some((32, 1, 1)));
    assert_eq!(ends(2, 120), Some((1, 1, 1)));
    assert!(ends(33, 1).is_some_and(|(_, _, width)| width > 1));
    assert!(ends(32, 120).is_some_and(|(start, columns, width)| start + columns == 32 && width > 1));
}

#[test]
fn batches() {
    for &(batch, m, n, k) in &[(0, 3, 4, 5), (3, 5, 18, 7), (2, 70, 33, 19)] {
        for way in 0..16 {
            check(batch, m, n, k, way, false);
            check(batch, m, n, k, way, true);
        }
    }
}

#[test]
fn relu_keeps_nan() {
    let layout = MatLayout { row: 1, col: 1, batch: 0 };
    let product = MatMul::new(1, 1, 1, 1, layout, layout, false, Activation::Relu);
    let result = run(&product, &mut [vec![f32::NAN], vec![1.0]], &[1], false);
    assert!(result[0][0].is_nan());
}

/// An operand of so many columns, by rows.
fn plain_layout(columns: usize) -> MatLayout {
    MatLayout { row: columns, col: 1, batch: 0 }
}

#[test]
fn few_rows_are_summed_in_parts() {
    for (m, n, k) in [(4, 400, 120), (8, 400, 120), (1, 1000, 200), (3, 129, 500), (2, 5, 50_000)] {
        let product = MatMul::new(1, m, n, k, plain_layout(k), plain_layout(n), false, Activation::None);
        assert!(matches!(product.way, Way::Parts(_)), "{m}x{n}x{k}");
        for way in 0..2 {
            check(1, m, n, k, way, false);
        }
    }
}

#[test]
fn a_mask_lets_through_where_it_is_above_zero() {
    for (m, n, k) in [(1, 1, 1), (4, 400, 120), (4, 120, 84), (32, 70, 600), (130, 65, 90), (3, 0, 4)] {
        let size = m * n;
        let mut inputs = vec![noise(m * k, 1), noise(k * n, 2), noise(size, 3)];
        if let Some(first) = inputs[2].first_mut() {
            *first = f32::NAN;
        }
        let of = |masked: bool| {
            let (a, b) = (plain_layout(k), plain_layout(n));
            MatMul::of(1, m, n, k, a, b, false, Activation::None, false, masked)
        };
        let masked = run(&of(true), &mut inputs, &[size], true).remove(0);
        let plain = run(&of(false), &mut inputs, &[size], false).remove(0);
        let expected: Vec<f32> =
            plain.iter().zip(&inputs[2]).map(|(x, mask)| if *mask > 0.0 { *x } else { 0.0 }).collect();
        assert_eq!(masked, expected, "{m}x{n}x{k}");
    }
}
