//! What becomes of a tile of weight gradients while it is in the L1 cache: they go to memory past the caches, and with a
//! step their weights take it.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;
use crate::ops::sgd_step::{Element, ForRule, Options, Rule};

/// A tile of gradients, and where what becomes of them lies.
pub(super) struct Finish {
    pub rows: usize,
    pub columns: usize,
    /// The gradients, and the floats from one row to the next.
    pub tile: *const f32,
    pub tile_row: usize,
    /// Their own place, that of the weights, and that of the weights' buffer, with the floats from one row to the next.
    pub gradients: *mut f32,
    pub weights: [*const f32; 2],
    pub updated: [*mut f32; 2],
    pub row: usize,
    /// The step's, as [`Rule`] takes them.
    pub numbers: [f32; 5],
}

/// Does it, for the instruction set in use.
///
/// # Safety
/// All that the tile names must be readable, and all that is not const writable by this task alone.
pub(super) type FinishFn = unsafe fn(&Finish);

/// The way for gradients alone, or for those that a step follows.
pub(super) fn finish(step: Option<(Options, bool)>) -> FinishFn {
    match step {
        Some((options, first)) => options.rule(first, Choice),
        None => Choice.with::<Nothing>(),
    }
}

struct Choice;

impl ForRule for Choice {
    type Result = FinishFn;

    fn with<R: Rule>(self) -> FinishFn {
        by_isa!(finish_avx512::<R>, finish_avx2::<R>, finish_portable::<R>)
    }
}

/// No step.
struct Nothing;

impl Rule for Nothing {
    const KEEPS: usize = 0;

    #[inline(always)]
    fn apply<E: Element>(_numbers: [E; 5], [weight, _, buffer]: [E; 3]) -> [E; 2] {
        [weight, buffer]
    }
}

/// A register as a number. Such are made where its instructions are.
#[derive(Clone, Copy)]
struct Number<V>(V);

impl<V: Vector> Element for Number<V> {
    #[inline(always)]
    fn plus(self, x: Self) -> Self {
        // SAFETY: the instructions are there, or there would be no such number.
        Number(unsafe { self.0.add(x.0) })
    }
    #[inline(always)]
    fn minus(self, x: Self) -> Self {
        // SAFETY: as above.
        Number(unsafe { self.0.sub(x.0) })
    }
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        // SAFETY: as above.
        Number(unsafe { self.0.mul(x.0) })
    }
}

#[inline(always)]
unsafe fn by<V: Vector, R: Rule>(f: &Finish) {
    let [a, b, c, d, e] = f.numbers;
    let whole = f.columns / V::LANES * V::LANES;
    // SAFETY: the caller's promise; rows and columns stay within the tile. The instructions are there, as this is compiled
    // for them.
    unsafe {
        let numbers = [V::splat(a), V::splat(b), V::splat(c), V::splat(d), V::splat(e)];
        for i in 0..f.rows {
            let (from, to) = (f.tile.add(i * f.tile_row), i * f.row);
            for j in (0..whole).step_by(V::LANES) {
                register::<V, R, false>(f, numbers, from.add(j), to + j);
            }
            if whole < f.columns {
                register::<V, R, true>(f, numbers, from.add(whole), to + whole);
            }
        }
    }
}

/// One register of gradients; `PART` at the end of a row, where they do not fill it.
#[inline(always)]
unsafe fn register<V: Vector, R: Rule, const PART: bool>(f: &Finish, numbers: [V; 5], from: *const f32, to: usize) {
    let part = f.columns % V::LANES;
    let [a, b, c, d, e] = numbers;
    // SAFETY: the caller's promise.
    unsafe {
        let load = |p: *const f32| if PART { V::load_part(p, part) } else { V::load(p) };
        let store = |v: V, p: *mut f32| if PART { v.store_part(p, part) } else { v.store(p) };
        let (gradient, place) = (load(from), f.gradients.add(to));
        if !PART && place.addr() % size_of::<V>() == 0 {
            gradient.stream(place);
        } else {
            store(gradient, place);
        }
        if R::KEEPS > 0 {
            let weight = load(f.weights[0].add(to));
            let buffer = if R::KEEPS > 1 { load(f.weights[1].add(to)) } else { weight };
            let numbers = [Number(a), Number(b), Number(c), Number(d), Number(e)];
            let [weight, buffer] = R::apply(numbers, [Number(weight), Number(gradient), Number(buffer)]);
            store(weight.0, f.updated[0].add(to));
            if R::KEEPS > 1 {
                store(buffer.0, f.updated[1].add(to));
            }
        }
    }
}

macro_rules! compiled {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $name<R: Rule>(f: &Finish) {
            // SAFETY: the caller's promise, passed on.
            unsafe { by::<$vector, R>(f) }
        }
    };
}
compiled!(finish_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(finish_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(finish_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");
