//! What becomes of a tile of gradients while it is in the L1 cache: with a step, their weights take it; and unless they are
//! in their own place already, they go there past the caches.

use super::{Element, ForRule, Options, Rule};
#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::kernel::{Buf, Io};
use crate::cpu::simd::by_isa;
use crate::ops::sweep::scalars;

/// The step that a matrix of weights takes along its gradients, a tile at a time.
pub(crate) struct Along<'a> {
    /// The weights and, with momentum, their buffer: nothing without a step.
    operands: &'a [Buf],
    updated: &'a [Buf],
    numbers: [f32; 5],
    finish: FinishFn,
}

/// A tile of gradients.
pub(crate) struct Gradients {
    pub rows: usize,
    pub columns: usize,
    /// Where it is, and the floats from one row to the next.
    pub tile: *const f32,
    pub tile_row: usize,
    /// Where gradients are to go, unless the tile is there.
    pub to: Option<*mut f32>,
    /// Its first element's number in the matrix, and the floats of a row of that.
    pub at: usize,
    pub row: usize,
}

impl<'a> Along<'a> {
    /// Of a kernel whose last operands are the weights, with momentum their buffer, and the step's numbers, and whose last
    /// results are weights and buffer, each of so many floats. Without a step it has none of these.
    pub fn new(step: Option<Options>, io: &Io<'a>, floats: usize) -> Self {
        let Some(options) = step else {
            return Along { operands: &[], updated: &[], numbers: [0.0; 5], finish: Choice.with::<Nothing>() };
        };
        let count = options.operands() - 1;
        let operands = &io.inputs[io.inputs.len() - 1 - count..io.inputs.len() - 1];
        let updated = &io.outputs[io.outputs.len() - count..];
        assert!(operands.iter().chain(updated).all(|buf| buf.len::<f32>() >= floats));
        let (numbers, first) = options.numbers(scalars(io));
        Along { operands, updated, numbers, finish: options.rule(first, Choice) }
    }

    /// What the step reads from this element on.
    pub fn reads(&self, at: usize) -> [*const f32; 2] {
        let place =
            |i: usize| self.operands.get(i).map_or(std::ptr::null_mut(), |buf| buf.ptr::<f32>().wrapping_add(at));
        [place(0), place(1)].map(<*mut f32>::cast_const)
    }

    /// Takes the step.
    ///
    /// # Safety
    /// The tile must be readable, and inside the matrix; its elements there belong to this task.
    pub unsafe fn step(&self, gradients: &Gradients) {
        let place = |i: usize| {
            self.updated.get(i).map_or(std::ptr::null_mut(), |buf| buf.ptr::<f32>().wrapping_add(gradients.at))
        };
        let weights = self.reads(gradients.at);
        // SAFETY: the caller's promise; the matrices are as large as `new` has checked.
        unsafe { (self.finish)(&Finish { gradients, weights, updated: [place(0), place(1)], numbers: self.numbers }) }
    }
}

/// A tile of gradients, and where what becomes of them lies.
struct Finish<'a> {
    gradients: &'a Gradients,
    /// The weights, and their buffer.
    weights: [*const f32; 2],
    updated: [*mut f32; 2],
    /// The step's, as [`Rule`] takes them.
    numbers: [f32; 5],
}

/// Does it, for the instruction set in use.
///
/// # Safety
/// All that the tile names must be readable, and all that is not const writable by this task alone.
type FinishFn = unsafe fn(&Finish<'_>);

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
pub(crate) struct Number<V>(pub V);

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
unsafe fn by<V: Vector, R: Rule>(f: &Finish<'_>) {
    let [a, b, c, d, e] = f.numbers;
    let g = f.gradients;
    let whole = g.columns / V::LANES * V::LANES;
    // SAFETY: the caller's promise; rows and columns stay within the tile. The instructions are there, as this is compiled
    // for them.
    unsafe {
        let numbers = [V::splat(a), V::splat(b), V::splat(c), V::splat(d), V::splat(e)];
        for i in 0..g.rows {
            let (from, to) = (g.tile.add(i * g.tile_row), i * g.row);
            for j in (0..whole).step_by(V::LANES) {
                register::<V, R, false>(f, numbers, from.add(j), to + j);
            }
            if whole < g.columns {
                register::<V, R, true>(f, numbers, from.add(whole), to + whole);
            }
        }
    }
}

/// One register of gradients; `PART` at the end of a row, where they do not fill it.
#[inline(always)]
unsafe fn register<V: Vector, R: Rule, const PART: bool>(f: &Finish<'_>, numbers: [V; 5], from: *const f32, to: usize) {
    let part = f.gradients.columns % V::LANES;
    let [a, b, c, d, e] = numbers;
    // SAFETY: the caller's promise.
    unsafe {
        let load = |p: *const f32| if PART { V::load_part(p, part) } else { V::load(p) };
        let store = |v: V, p: *mut f32| if PART { v.store_part(p, part) } else { v.store(p) };
        let gradient = load(from);
        if let Some(place) = f.gradients.to.map(|place| place.add(to)) {
            if !PART && place.addr() % size_of::<V>() == 0 {
                gradient.stream(place);
            } else {
                store(gradient, place);
            }
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
        unsafe fn $name<R: Rule>(f: &Finish<'_>) {
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
