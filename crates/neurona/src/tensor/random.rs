//! Counter-based random numbers: a key and a position give a number, whatever was drawn before.
//!
//! So a draw can be repeated (dropout in a forward that runs twice), cut into pieces for any number of
//! threads, and resumed from a checkpoint by storing two integers.

use std::sync::Mutex;

/// The state of a generator: what a checkpoint must store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Set by [`manual_seed`].
    pub seed: u64,
    /// How many keys have been drawn.
    pub counter: u64,
}

static GENERATOR: Mutex<Generator> = Mutex::new(Generator { seed: 0, counter: 0 });

fn lock() -> std::sync::MutexGuard<'static, Generator> {
    GENERATOR.lock().unwrap_or_else(|e| e.into_inner())
}

/// Seeds the process's generator. It starts at 0, so runs are reproducible unless they ask for more.
///
/// ```
/// neurona::manual_seed(7);
/// let a = neurona::Tensor::rand([3])?.to_vec::<f32>()?;
/// neurona::manual_seed(7);
/// assert_eq!(a, neurona::Tensor::rand([3])?.to_vec::<f32>()?);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn manual_seed(seed: u64) {
    set_generator(Generator { seed, counter: 0 });
}

/// The generator's state.
pub fn generator() -> Generator {
    *lock()
}

/// Sets the generator to a state that was read before.
pub fn set_generator(state: Generator) {
    *lock() = state;
}

/// A fresh key: no two calls with one seed give the same.
pub fn next_key() -> u64 {
    let mut g = lock();
    g.counter += 1;
    mix(g.seed ^ mix(g.counter))
}

/// The finaliser of splitmix64: a bijection that scatters neighbouring inputs.
#[inline(always)]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The random number of a key at a position.
#[inline(always)]
pub fn at(key: u64, position: u64) -> u64 {
    mix(key.wrapping_add(position.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// From 0 (included) to 1 (excluded), with the 24 bits that f32 can hold.
#[inline(always)]
pub fn unit(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1u32 << 24) as f32
}

/// `n` numbers from 0 to 1.
pub fn uniform(n: usize) -> Vec<f32> {
    let key = next_key();
    (0..n as u64).map(|i| unit(at(key, i))).collect()
}

/// `n` whole numbers from `low` up to but without `high`, which must be greater.
pub fn integers(low: i64, high: i64, n: usize) -> Vec<i64> {
    let (key, span) = (next_key(), high.wrapping_sub(low) as u64);
    // The upper half of the product is even to within span / 2⁶⁴.
    let below = |i: u64| (u128::from(at(key, i)) * u128::from(span)) >> 64;
    (0..n as u64).map(|i| low.wrapping_add(below(i) as i64)).collect()
}

/// `n` normally distributed numbers (Box–Muller, in double precision so that the tails are right).
pub fn normal(n: usize) -> Vec<f32> {
    let key = next_key();
    (0..n as u64)
        .map(|i| {
            let bits = |j: u64| (at(key, 2 * i + j) >> 11) as f64 / (1u64 << 53) as f64;
            ((-2.0 * (1.0 - bits(0)).ln()).sqrt() * (std::f64::consts::TAU * bits(1)).cos()) as f32
        })
        .collect()
}

/// A random order of `0..n` (Fisher–Yates).
pub fn permutation(n: usize) -> Vec<usize> {
    let key = next_key();
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, (at(key, i as u64) % (i as u64 + 1)) as usize);
    }
    order
}
