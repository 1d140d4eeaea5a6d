//! Reductions against plain loops.

use super::*;
use crate::cpu::kernel::Buf;
use crate::cpu::math::Real;
use crate::cpu::tasks::testing::{Rng, close, run};

const OPS: [Op; 5] = [Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Prod];

fn plain(op: Op, values: impl Iterator<Item = f64> + Clone) -> f64 {
    let nan = values.clone().any(f64::is_nan);
    let count = values.clone().count() as f64;
    match op {
        Op::Sum => values.sum(),
        Op::Mean => values.sum::<f64>() / count,
        Op::Prod => values.product(),
        _ if nan => f64::NAN,
        Op::Max => values.fold(f64::NEG_INFINITY, f64::max),
        Op::Min => values.fold(f64::INFINITY, f64::min),
    }
}

fn shapes() -> Vec<[usize; 3]> {
    vec![
        [0, 3, 2],
        [2, 0, 3],
        [3, 2, 0],
        [1, 1, 1],
        [1, 1_000_003, 1],
        [5, 10, 1],
        [20_000, 10, 1],
        [1, 50_000, 6],
        [4, 999, 64],
        [1, 2, 300_001],
        [2, 1001, 1500],
        [300, 7, 3],
        [2, 70_000, 1],
        [1, 300, 5000],
        [3, 257, 256],
    ]
}

fn check<T: Real + Number>(tolerance: f64) {
    let mut rng = Rng(6);
    for [outer, mid, inner] in shapes() {
        for op in OPS {
            let mut x: Vec<T> = rng.vec(outer * mid * inner);
            if op == Op::Prod {
                // Mostly signs, or long products vanish.
                for v in &mut x {
                    let size = if rng.below(500) == 0 { 0.1 } else { 0.0 };
                    *v = T::of((1.0 + v.wide() * size).copysign(v.wide()));
                }
            } else if op == Op::Sum {
                x.iter_mut().for_each(|v| *v = T::of(1.0 + v.wide()));
            }
            if x.len() > 2 && op != Op::Prod {
                let at = rng.below(x.len());
                x[at] = T::nan();
            }
            let at = |o: usize, m: usize, i: usize| x[(o * mid + m) * inner + i].wide();
            let want: Vec<f64> =
                (0..outer * inner).map(|k| plain(op, (0..mid).map(|m| at(k / inner, m, k % inner)))).collect();
            let mut y = vec![T::of(-7.0); outer * inner];
            run(&Reduce::<T, T>::new(op, outer, mid, inner), &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
            let loose = if op == Op::Prod { 100.0 } else { 1.0 };
            close(&y, &want, tolerance * loose);
        }
    }
}

#[test]
fn agrees_with_plain_loops() {
    check::<f32>(1e-6);
    check::<f64>(1e-13);
}

#[test]
fn whole_numbers() {
    let mut rng = Rng(7);
    for [outer, mid, inner] in shapes() {
        let mut bytes: Vec<u8> = (0..outer * mid * inner).map(|_| rng.below(256) as u8).collect();
        let mut longs: Vec<i64> = bytes.iter().map(|&b| i64::from(b) - 100).collect();
        let sum = |o: usize, i: usize| -> i64 { (0..mid).map(|m| i64::from(bytes[(o * mid + m) * inner + i])).sum() };
        let want: Vec<i64> = (0..outer * inner).map(|k| sum(k / inner, k % inner)).collect();
        let (mut a, mut b) = (want.clone(), want.clone());
        a.fill(-1);
        b.fill(-1);
        run(&Reduce::<u8, i64>::new(Op::Sum, outer, mid, inner), &[Buf::over(&mut bytes)], &[Buf::over(&mut a)]);
        run(&Reduce::<i64, i64>::new(Op::Sum, outer, mid, inner), &[Buf::over(&mut longs)], &[Buf::over(&mut b)]);
        assert_eq!(a, want);
        assert!(b.iter().zip(&want).all(|(b, w)| b + 100 * mid as i64 == *w));
    }
}

#[test]
fn places() {
    let mut rng = Rng(8);
    for [outer, mid, inner] in shapes().into_iter().filter(|s| s.iter().product::<usize>() < 1 << 20) {
        let mut x: Vec<f32> = (0..outer * mid * inner)
            .map(|_| match rng.below(2000) {
                0 => f32::NAN,
                v => (v % 50) as f32,
            })
            .collect();
        for least in [false, true] {
            let want: Vec<i64> = (0..outer * inner)
                .map(|k| {
                    let at = |m: usize| x[(k / inner * mid + m) * inner + k % inner];
                    let mut best = 0;
                    for m in 1..mid {
                        let (v, b) = (at(m), at(best));
                        let better = if least { v < b } else { v > b };
                        if !b.is_nan() && (better || v.is_nan()) {
                            best = m;
                        }
                    }
                    best as i64
                })
                .collect();
            let mut y = vec![-1i64; outer * inner];
            let kernel = if least { Arg::<f32>::min(outer, mid, inner) } else { Arg::<f32>::max(outer, mid, inner) };
            run(&kernel, &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
            assert_eq!(y, want);
        }
    }
}

/// Strides of a contiguous tensor whose dimensions lie in `order`, slowest first.
fn strides(shape: &[usize], order: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for &d in order.iter().rev() {
        strides[d] = step;
        step *= shape[d];
    }
    strides
}

#[test]
fn any_dimensions_in_any_order() {
    let mut rng = Rng(10);
    let orders = [[0, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2]];
    for shape in [[2, 3, 4, 5], [1, 6, 1, 7], [3, 20, 30, 40], [2, 0, 3, 1]] {
        for order in orders {
            for mask in 0..16usize {
                let reduced: Vec<bool> = (0..4).map(|d| mask >> d & 1 == 1).collect();
                let kept: Vec<usize> = (0..4).map(|d| if reduced[d] { 1 } else { shape[d] }).collect();
                let (from, to) = (strides(&shape, &order), strides(&kept, &order));
                let total = shape.iter().product();
                let mut x: Vec<f64> = rng.vec(total);
                let mut want = vec![0.0; kept.iter().product()];
                for i in 0..total {
                    let (mut i, mut a, mut b) = (i, 0, 0);
                    for d in (0..4).rev() {
                        let k = i % shape[d];
                        a += k * from[d];
                        b += if reduced[d] { 0 } else { k * to[d] };
                        i /= shape[d];
                    }
                    want[b] += x[a];
                }
                let mut y = vec![f64::NAN; want.len()];
                let kernel = over::<f64, f64>(Op::Sum, &shape, &from, &to, &reduced);
                run(&*kernel, &[Buf::over(&mut x)], &[Buf::over(&mut y)]);
                close(&y, &want, 1e-11);
            }
        }
    }
}
