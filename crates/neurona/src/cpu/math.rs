//! Elementary functions that a compiler can vectorise: no branches, no tables, no calls.
//!
//! Multiply and add stay separate operations: a fused one would be a library call on machines
//! without it, and the results would differ between instruction sets.

use num_traits::Float;

use super::block::{self, Block};
use crate::cpu::kernel::Plain;

/// The numbers that kernels compute with: `f32` and `f64`.
///
/// ```
/// use neurona::cpu::math::Real;
/// assert!((1f32.vexp() - 2.7182817).abs() < 1e-6);
/// assert_eq!(f32::NEG_INFINITY.vexp(), 0.0);
/// ```
pub trait Real: Plain + Float {
    /// Sixteen of them, in a register of AVX-512 where that is worth more than a loop.
    #[allow(private_bounds)]
    type Sixteen: Block<Self>;
    /// The nearest number to `x`.
    fn of(x: f64) -> Self;
    /// This number in double precision.
    fn wide(self) -> f64;
    /// A small whole number (0 to 255) as a byte; anything else gives an arbitrary byte.
    fn byte(self) -> u8;
    /// The exponential; relative error below 2e-7 for `f32` and 4e-16 for `f64`.
    fn vexp(self) -> Self;
    /// The natural logarithm; relative error below 2e-7 for `f32`.
    fn vln(self) -> Self;
    /// The hyperbolic tangent; relative error below 3e-7 for `f32`.
    fn vtanh(self) -> Self;

    /// The error function; relative error below 3e-7 for `f32` and 1e-15 for `f64`.
    fn verf(self) -> Self;

    /// The logistic function.
    #[inline(always)]
    fn vsigmoid(self) -> Self {
        Self::one() / (Self::one() + (-self).vexp())
    }

    /// eˣ − 1, with full precision near 0.
    #[inline(always)]
    fn vexpm1(self) -> Self {
        let exp = self.vexp();
        let near = exp - Self::one();
        // What was exponentiated in fact differs from x by rounding; the quotient makes up for it.
        let y = near * (self / exp.vln());
        let y = if near == -Self::one() || exp == Self::infinity() { near } else { y };
        if exp == Self::one() { self } else { y }
    }

    /// log(1 + x), with full precision near 0.
    #[inline(always)]
    fn vlog1p(self) -> Self {
        let sum = Self::one() + self;
        let added = sum - Self::one();
        let y = sum.vln() * (self / added);
        let y = if sum == Self::infinity() { sum } else { y };
        if added == Self::zero() { self } else { y }
    }
}

impl Real for f32 {
    type Sixteen = block::Sixteen;

    #[inline(always)]
    fn of(x: f64) -> Self {
        x as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn byte(self) -> u8 {
        // Adding 2^23 leaves a whole number in the low bits; a conversion would check its range.
        (self + 8_388_608.0).to_bits() as u8
    }

    #[inline(always)]
    fn vexp(self) -> Self {
        // Outside these bounds the result is 0 or infinity anyway; NaN passes.
        let x = if self > 89.0 { 89.0 } else { self };
        let x = if x < -104.0 { -104.0 } else { x };
        // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
        let magic = 12582912.0f32;
        let t = x * std::f32::consts::LOG2_E + magic;
        let n = t - magic;
        // ln 2 in two parts, the first short enough that n times it is exact.
        let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
        let mut p = 1.987_569_1e-4;
        p = p * r + 1.398_2e-3;
        p = p * r + 8.333_452e-3;
        p = p * r + 4.166_579_6e-2;
        p = p * r + 1.666_666_5e-1;
        p = p * r + 0.5;
        p = (p * (r * r) + r) + 1.0;
        // 2^n as two factors: n alone may be outside the exponent's range.
        let e = t.to_bits().wrapping_sub(magic.to_bits() - 254);
        let half = e >> 1;
        let rest = e.wrapping_sub(half);
        p * f32::from_bits(half << 23) * f32::from_bits(rest << 23)
    }

    #[inline(always)]
    fn vln(self) -> Self {
        // Subnormals have no implicit leading bit: scale them up first.
        let tiny = self < f32::MIN_POSITIVE;
        let x = if tiny { self * 8_388_608.0 } else { self };
        // The mantissa moved into [sqrt(1/2), sqrt 2), where ln(1 + f) has a short polynomial.
        let bits = x.to_bits().wrapping_sub(0x3f35_04f3);
        let e = (bits as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
        let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
        let mut p = 7.037_683_6e-2;
        p = p * f - 1.151_461e-1;
        p = p * f + 1.167_699_9e-1;
        p = p * f - 1.242_014_1e-1;
        p = p * f + 1.424_932_3e-1;
        p = p * f - 1.666_805_8e-1;
        p = p * f + 2.000_071_5e-1;
        p = p * f - 2.499_999_4e-1;
        p = p * f + 0.333_333_3;
        let z = f * f;
        let y = f * z * p + e * -2.121_944_4e-4 - 0.5 * z;
        let y = f + y + e * 0.693_359_4;
        let y = if self == f32::INFINITY { self } else { y };
        let y = if self == 0.0 { f32::NEG_INFINITY } else { y };
        if self >= 0.0 { y } else { f32::NAN }
    }

    #[inline(always)]
    fn vtanh(self) -> Self {
        let a = self.abs();
        let z = self * self;
        let mut p = -5.704_988_7e-3;
        p = p * z + 2.063_908_8e-2;
        p = p * z - 5.373_971_5e-2;
        p = p * z + 1.333_144_2e-1;
        p = p * z - 0.333_332_8;
        // Near 0 the exponential form would cancel.
        let near = self + self * (z * p);
        let far = (1.0 - 2.0 / ((a + a).vexp() + 1.0)).copysign(self);
        if a < 0.625 { near } else { far }
    }

    #[inline(always)]
    fn verf(self) -> Self {
        let (a, z) = (self.abs(), self * self);
        let mut p = -5.967_617e-4;
        p = p * z + 4.991_194_3e-3;
        p = p * z - 2.676_813_5e-2;
        p = p * z + 1.128_199_25e-1;
        p = p * z - 3.761_253_4e-1;
        p = p * z + 1.283_791_7e-1;
        let near = self + self * p;
        let mut q = (-1.728_534_7e-5 * a + 3.831_971_3e-4) * z + (-3.883_964_4e-3 * a + 2.425_462_2e-2);
        q = q * a - 1.067_778_8e-1;
        q = q * a - 6.348_467e-1;
        q = q * a - 1.287_175_1e-1;
        let far = (1.0 - (q * a - a).vexp()).copysign(self);
        if a > 0.927_734_4 { far } else { near }
    }
}

impl Real for f64 {
    type Sixteen = [f64; 16];

    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn byte(self) -> u8 {
        (self + 4_503_599_627_370_496.0).to_bits() as u8
    }

    #[inline(always)]
    fn vexp(self) -> Self {
        let x = if self > 710.0 { 710.0 } else { self };
        let x = if x < -746.0 { -746.0 } else { x };
        let magic = 6_755_399_441_055_744.0f64;
        let t = x * std::f64::consts::LOG2_E + magic;
        let n = t - magic;
        let r = x - n * 6.931_471_803_691_238e-1 - n * 1.908_214_929_270_587_7e-10;
        // Taylor's series: at |r| <= ln 2 / 2 the first term left out is below 4e-18.
        let mut p = 1.0 / 6_227_020_800.0;
        p = p * r + 1.0 / 479_001_600.0;
        p = p * r + 1.0 / 39_916_800.0;
        p = p * r + 1.0 / 3_628_800.0;
        p = p * r + 1.0 / 362_880.0;
        p = p * r + 1.0 / 40_320.0;
        p = p * r + 1.0 / 5_040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        p = (p * (r * r) + r) + 1.0;
        let e = t.to_bits().wrapping_sub(magic.to_bits() - 2046);
        let half = e >> 1;
        let rest = e.wrapping_sub(half);
        p * f64::from_bits(half << 52) * f64::from_bits(rest << 52)
    }

    #[inline(always)]
    fn vln(self) -> Self {
        self.ln()
    }

    #[inline(always)]
    fn vtanh(self) -> Self {
        self.tanh()
    }

    fn verf(self) -> Self {
        let (a, z) = (self.abs(), self * self);
        if a < 3.0 {
            // Σ (2x²)ⁿ / (2n + 1)!!: no term is negative, so nothing cancels.
            let (mut term, mut total, mut n) = (self, self, 1.0);
            while term.abs() > total.abs() * 1e-17 {
                n += 2.0;
                term *= 2.0 * z / n;
                total += term;
            }
            return total * (-z).exp() * std::f64::consts::FRAC_2_SQRT_PI;
        }
        // The continued fraction of what is missing from 1.
        let fraction = (1..60).rev().fold(a, |tail, n| a + f64::from(n) / (2.0 * tail));
        let missing = (-z).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0;
        if a > 6.0 { 1f64.copysign(self) } else { (1.0 - missing).copysign(self) }
    }
}

/// The sum of `x` in a fixed tree: 32 running sums over each 2048 elements, halves above that.
/// The rounding error grows with the logarithm of the length.
#[inline(always)]
pub fn sum<T: Real>(x: &[T]) -> T {
    fold(x, T::zero(), |a, b| a + b)
}

/// `join` over all of `x` in the tree of [`sum`]; `start` must not change what it is joined with.
#[inline(always)]
pub fn fold<I: Plain + Into<A>, A: Plain>(x: &[I], start: A, join: impl Fn(A, A) -> A + Copy) -> A {
    if x.len() <= BLOCK {
        return fold_block(x, start, join);
    }
    let mut tree = Tree::new(start);
    for block in x.chunks(BLOCK) {
        tree.push(fold_block(block, start, join), join);
    }
    tree.finish(join)
}

const BLOCK: usize = 2048;

/// Joins any number of partial results in a balanced tree, without a recursion (which would lose
/// the caller's instruction set) and without knowing how many there will be.
pub struct Tree<A> {
    /// Results of 1, 2, 4, … pushes, like the digits of a binary counter.
    levels: [A; usize::BITS as usize],
    count: usize,
}

impl<A: Plain> Tree<A> {
    /// An empty tree; `start` must not change what it is joined with.
    #[inline(always)]
    pub fn new(start: A) -> Self {
        Tree { levels: [start; usize::BITS as usize], count: 0 }
    }

    /// Adds the next partial result.
    #[inline(always)]
    pub fn push(&mut self, mut total: A, join: impl Fn(A, A) -> A) {
        let carries = self.count.trailing_ones() as usize;
        for level in &self.levels[..carries] {
            total = join(*level, total);
        }
        self.levels[carries] = total;
        self.count += 1;
    }

    /// The result of all.
    #[inline(always)]
    pub fn finish(self, join: impl Fn(A, A) -> A) -> A {
        let mut digits = (0..self.levels.len()).filter(|i| self.count >> i & 1 == 1);
        match digits.next() {
            None => self.levels[0],
            Some(first) => digits.fold(self.levels[first], |total, i| join(self.levels[i], total)),
        }
    }
}

#[inline(always)]
fn fold_block<I: Plain + Into<A>, A: Plain>(x: &[I], start: A, join: impl Fn(A, A) -> A + Copy) -> A {
    let mut total = start;
    let mut rest = x;
    if x.len() >= 64 {
        let mut lanes = [start; 32];
        let chunks = x.chunks_exact(32);
        rest = chunks.remainder();
        for chunk in chunks {
            for (lane, &v) in lanes.iter_mut().zip(chunk) {
                *lane = join(*lane, v.into());
            }
        }
        let mut width = 16;
        while width > 0 {
            for i in 0..width {
                lanes[i] = join(lanes[i], lanes[i + width]);
            }
            width /= 2;
        }
        total = lanes[0];
    }
    for &v in rest {
        total = join(total, v.into());
    }
    total
}

/// The greatest element of `x`, NaNs left aside; negative infinity when there is none.
#[inline(always)]
pub fn max<T: Real>(x: &[T]) -> T {
    fold(x, T::neg_infinity(), |a, b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::vectorized;

    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
        let n = 2_000_000;
        let at = |i: usize| (from + (to - from) * i as f64 / n as f64) as f32;
        vectorized(
            #[inline(always)]
            || {
                (0..n)
                    .map(|i| {
                        let want = exact(at(i).into());
                        (f64::from(f(at(i))) - want).abs() / want.abs().max(1.2e-38)
                    })
                    .fold(0.0, f64::max)
            },
        )
    }

    #[test]
    fn single_precision_is_good_to_a_few_ulps() {
        assert!(worst(f32::vexp, f64::exp, -87.0, 88.7) < 1.5e-7);
        assert!(worst(f32::vln, f64::ln, 1e-6, 4.0) < 2e-7);
        assert!(worst(f32::vln, f64::ln, 4.0, 3e38) < 2e-7);
        assert!(worst(f32::vtanh, f64::tanh, -10.0, 10.0) < 3e-7);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(worst(f32::vsigmoid, sigmoid, -80.0, 80.0) < 4e-7);
        assert!(worst(f32::verf, f64::verf, -5.0, 5.0) < 3e-7);
        assert!(worst(f32::vexpm1, f64::exp_m1, -20.0, 80.0) < 5e-7);
        assert!(worst(f32::vlog1p, f64::ln_1p, 0.0, 10.0) < 5e-7);
    }

    #[test]
    fn double_precision_erf() {
        // Those of the C library.
        let known = [
            (1e-8, 1.1283791670955126e-8),
            (0.1, 0.1124629160182849),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (1.75, 0.9866716712191824),
            (2.5, 0.999593047982555),
            (2.999, 0.9999777698314002),
            (3.0, 0.9999779095030014),
            (3.5, 0.9999992569016276),
            (4.5, 0.9999999998033839),
            (6.5, 1.0),
        ];
        for (x, want) in known {
            assert!((x.verf() - want).abs() < 1e-15 * want, "erf {x}: {}", x.verf());
            assert_eq!((-x).verf(), -x.verf());
        }
        assert!(f64::NAN.verf().is_nan() && f64::INFINITY.verf() == 1.0 && 0f64.verf() == 0.0);
    }

    #[test]
    fn double_precision_exp() {
        for i in -74_000..71_000 {
            let x = i as f64 * 0.01 + 0.001234;
            let want = x.exp();
            let error = (x.vexp() - want).abs() / want.max(f64::MIN_POSITIVE);
            assert!(error < 4.5e-16 || x.vexp() == want, "exp {x}: {error}");
        }
    }

    #[test]
    fn special_values() {
        let inf = f32::INFINITY;
        assert_eq!((inf.vexp(), (-inf).vexp(), 0f32.vexp()), (inf, 0.0, 1.0));
        assert_eq!((200f32.vexp(), (-200f32).vexp()), (inf, 0.0));
        assert!((f64::from((-100f32).vexp()) / (-100f64).exp() - 1.0).abs() < 0.02);
        assert!(f32::NAN.vexp().is_nan() && f64::NAN.vexp().is_nan());
        assert_eq!(f64::INFINITY.vexp(), f64::INFINITY);
        assert_eq!((f64::NEG_INFINITY.vexp(), 0f64.vexp()), (0.0, 1.0));
        assert_eq!((inf.vln(), 0f32.vln(), 1f32.vln()), (inf, -inf, 0.0));
        assert!((-1f32).vln().is_nan() && f32::NAN.vln().is_nan());
        assert!((1e-40f32.vln() - 1e-40f32.ln()).abs() < 1e-4);
        assert_eq!((inf.vtanh(), (-inf).vtanh()), (1.0, -1.0));
        assert_eq!((inf.vsigmoid(), (-inf).vsigmoid()), (1.0, 0.0));
        assert!(f32::NAN.vtanh().is_nan() && f32::NAN.vsigmoid().is_nan());
        assert_eq!((inf.verf(), (-inf).verf(), 0f32.verf()), (1.0, -1.0, 0.0));
        assert_eq!((inf.vexpm1(), (-inf).vexpm1(), 0f32.vexpm1()), (inf, -1.0, 0.0));
        assert_eq!((inf.vlog1p(), (-1f32).vlog1p(), 0f32.vlog1p()), (inf, -inf, 0.0));
        assert!(f32::NAN.verf().is_nan() && f32::NAN.vexpm1().is_nan() && f32::NAN.vlog1p().is_nan());
    }

    #[test]
    fn sums_of_any_length() {
        for n in [0, 1, 31, 63, 64, 65, 2047, 2048, 2049, 10_000, 1_000_003] {
            let x: Vec<f32> = (0..n).map(|i| 0.1 + (i % 7) as f32).collect();
            let want: f64 = x.iter().map(|&v| f64::from(v)).sum();
            assert!((f64::from(sum(&x)) - want).abs() <= 1e-6 * want);
            let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max(&x), greatest);
        }
    }
}
