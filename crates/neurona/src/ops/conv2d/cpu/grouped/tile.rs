//! The inner loops, on registers of channels of one or several groups, compiled for each instruction set.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::by_isa;
use crate::cpu::stream::prefetch;

/// Pixels of a tile at most: with [`BESIDE`] registers each, sums enough to hide the latency of their additions, and few
/// enough for sixteen registers.
const PIXELS: usize = 6;
/// Registers of channels of a tile.
const BESIDE: usize = 2;
/// Filter values at most whose gradients are summed at once, in a register each.
pub(super) const TAPS: usize = 9;
/// Where a filter value, or a row of them, meets the source, and where its weights lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tap {
    pub source: usize,
    pub weight: usize,
}

/// How channels lie in registers: those of a few whole groups, beside each other. Each lane of the result meets the
/// `from` channels of its group one after the other, which a permutation brings to it.
pub(super) struct Registers {
    /// Groups of a register.
    pub held: usize,
    /// Channels of a group in the source, and in the result.
    pub from: usize,
    pub to: usize,
    /// Whether groups fill registers of both source and result.
    whole: bool,
    /// For each channel of a group in the source, the lane that each lane of the result takes.
    pub lanes: Vec<i32>,
    /// Floats of the weights of a register: for each filter value and each channel of a group in the source, all lanes.
    pub weights: usize,
}

impl Registers {
    /// For so many channels a group; nothing where no register holds two groups.
    pub fn new(from: usize, to: usize, taps: usize) -> Option<Self> {
        let lanes = loops().lanes;
        let held = lanes / from.max(to).max(1);
        if held < 2 || from == 0 || to == 0 {
            return None;
        }
        let lane = |i: usize| {
            let (channel, lane) = (i / lanes, i % lanes);
            if lane < held * to { (lane / to * from + channel) as i32 } else { 0 }
        };
        let weights = taps * from * lanes;
        let whole = from == to && held * to == lanes;
        Some(Registers { held, from, to, whole, lanes: (0..from * lanes).map(lane).collect(), weights })
    }

    /// Lanes of a register.
    pub fn width(&self) -> usize {
        self.lanes.len() / self.from
    }

    /// Whether lanes of the source move: a group of one channel is its own.
    pub fn moves(&self) -> bool {
        self.from > 1 || self.to > 1
    }
}

/// Pixels of a line that the same filter values reach.
pub(super) struct Stretch<'a> {
    pub registers: &'a Registers,
    /// Rows and columns of filter values: each pair of them is one.
    pub rows: &'a [Tap],
    pub columns: &'a [Tap],
    /// How many columns there are, where each is one pixel further than the one before; else 0.
    pub sliding: usize,
    pub count: usize,
    /// Groups of a pixel that are computed.
    pub groups: usize,
    pub source: *const f32,
    /// Floats from pixel to pixel.
    pub step: usize,
    pub weight: *const f32,
    /// One value a channel, or null.
    pub bias: *const f32,
    pub limits: Option<[f32; 2]>,
    pub out: *mut f32,
    pub out_step: usize,
    /// Lines of the source that are asked for meanwhile, where they start below the first pixel, and floats of each.
    pub ahead: usize,
    pub next: *const f32,
    pub line: usize,
}

/// Filter values that meet the same pixels of a line, whose products are summed over the pixels.
pub(super) struct Sums<'a> {
    pub registers: &'a Registers,
    /// Where each value's pixels start in the input, and where its sums lie.
    pub taps: &'a [Tap],
    pub count: usize,
    pub groups: usize,
    pub x: *const f32,
    pub x_step: usize,
    pub dy: *const f32,
    pub dy_step: usize,
    pub out: *mut f32,
}

/// Rows of `columns` filter values, each one pixel further than the one before, that meet the same line of output
/// gradients: all pixels of the lines under them.
pub(super) struct Lines<'a> {
    pub registers: &'a Registers,
    /// Where each row's line starts in the input, and where its sums lie.
    pub rows: &'a [Tap],
    pub columns: usize,
    /// Pixels of a line of the input, and of the output.
    pub count: usize,
    pub out_count: usize,
    /// Pixels of padding before a line of the input.
    pub padding: usize,
    pub groups: usize,
    pub x: *const f32,
    pub x_step: usize,
    pub dy: *const f32,
    pub dy_step: usize,
    pub out: *mut f32,
}

/// The inner loops of an instruction set.
pub(super) struct Loops {
    /// Floats of a register.
    pub lanes: usize,
    /// All pixels of a stretch.
    ///
    /// # Safety
    /// What the stretch names must be there to be read, and its pixels this task's to write.
    pub stretch: unsafe fn(&Stretch<'_>),
    /// Adds to the sums of up to [`TAPS`] filter values.
    ///
    /// # Safety
    /// As above, with the sums.
    pub sums: unsafe fn(&Sums<'_>),
    /// Adds to the sums of rows of filter values. Only for so many columns as [`slides`] knows.
    ///
    /// # Safety
    /// As above.
    pub lines: unsafe fn(&Lines<'_>),
}

/// Whether filter rows of so many neighbouring values have loops that load each pixel once for all of them.
pub(super) fn slides(columns: usize) -> bool {
    columns == 3 || columns == 5
}

#[inline(always)]
unsafe fn load<V: Vector, const PART: bool>(p: *const f32, rest: usize) -> V {
    // SAFETY: the caller's promise: with `PART` only `rest` lanes are there.
    unsafe { if PART { V::load_part(p, rest) } else { V::load(p) } }
}

/// For each lane of the result, one channel of its group.
#[inline(always)]
unsafe fn fetch<V: Vector, const PART: bool, const MOVES: bool>(p: *const f32, rest: usize, lanes: *const i32) -> V {
    // SAFETY: the caller's promise, as above; there is a lane for each lane.
    unsafe {
        let x = load::<V, PART>(p, rest);
        if MOVES { x.permute(lanes) } else { x }
    }
}

/// Adds the products of a row of `S` filter values, each one pixel further than the one before: every pixel under them is
/// loaded once, which counts most where registers of channels lie across two lines of the cache.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // `j` is a register of every pixel.
unsafe fn slide<V: Vector, const P: usize, const N: usize, const S: usize, const PART: bool, const MOVES: bool>(
    sum: &mut [[V; N]; P],
    t: &Stretch<'_>,
    source: *const f32,
    weight: *const f32,
    rest: usize,
) {
    // SAFETY: the caller's promise; there are `S` columns.
    unsafe {
        let source = source.add(t.columns[0].source);
        for j in 0..N {
            for channel in 0..if MOVES { t.registers.from } else { 1 } {
                let weight = weight.add(j * t.registers.weights + channel * V::LANES);
                let lanes = t.registers.lanes.as_ptr().add(channel * V::LANES);
                let values: [V; S] = std::array::from_fn(|s| V::load(weight.add(t.columns[s].weight)));
                for i in 0..P + S - 1 {
                    let x = fetch::<V, PART, MOVES>(source.add(i * t.step + j * V::LANES), rest, lanes);
                    for (s, value) in values.iter().enumerate() {
                        if i >= s && i - s < P {
                            sum[i - s][j] = value.mul_add(x, sum[i - s][j]);
                        }
                    }
                }
            }
        }
    }
}

/// `P` pixels from `first` on, `N` registers of channels from `register` on; with `PART` one that has only so many
/// `groups`, or that groups do not fill.
#[inline(always)]
unsafe fn tile<V: Vector, const P: usize, const N: usize, const PART: bool, const MOVES: bool>(
    t: &Stretch<'_>,
    first: usize,
    register: usize,
    groups: usize,
) {
    let Registers { held, from, to, ref lanes, weights, .. } = *t.registers;
    let (rest, out_rest) = (groups * from, groups * to);
    // SAFETY: the caller's promise; pixels, channels and filter values are inside the stretch.
    unsafe {
        let mut sum = [[V::splat(0.0); N]; P];
        if !t.bias.is_null() {
            let bias = t.bias.add(register * held * to);
            let bias: [V; N] = std::array::from_fn(|j| load::<V, PART>(bias.add(j * V::LANES), out_rest));
            sum.fill(bias);
        }
        let source = t.source.add(first * t.step + register * held * from);
        let weight = t.weight.add(register * weights);
        for row in t.rows {
            let (source, weight) = (source.add(row.source), weight.add(row.weight));
            match t.sliding {
                3 => {
                    slide::<V, P, N, 3, PART, MOVES>(&mut sum, t, source, weight, rest);
                    continue;
                }
                5 => {
                    slide::<V, P, N, 5, PART, MOVES>(&mut sum, t, source, weight, rest);
                    continue;
                }
                _ => {}
            }
            for column in t.columns {
                let (source, weight) = (source.add(column.source), weight.add(column.weight));
                for channel in 0..if MOVES { from } else { 1 } {
                    let weight = weight.add(channel * V::LANES);
                    let lanes = lanes.as_ptr().add(channel * V::LANES);
                    let weight: [V; N] = std::array::from_fn(|j| V::load(weight.add(j * weights)));
                    for (i, sum) in sum.iter_mut().enumerate() {
                        for (j, sum) in sum.iter_mut().enumerate() {
                            let x = fetch::<V, PART, MOVES>(source.add(i * t.step + j * V::LANES), rest, lanes);
                            *sum = weight[j].mul_add(x, *sum);
                        }
                    }
                }
            }
        }
        for (i, sum) in sum.iter().enumerate() {
            let out = t.out.add((first + i) * t.out_step + register * held * to);
            for (j, sum) in sum.iter().enumerate() {
                let sum = match t.limits {
                    Some([least, most]) => V::splat(most).min(V::splat(least).max(*sum)),
                    None => *sum,
                };
                if PART { sum.store_part(out, out_rest) } else { sum.store(out.add(j * V::LANES)) }
            }
        }
    }
}

/// All channels of `P` pixels.
#[inline(always)]
unsafe fn pixels<V: Vector, const P: usize, const MOVES: bool>(t: &Stretch<'_>, first: usize) {
    let Registers { held, whole, .. } = *t.registers;
    let mut register = 0;
    // SAFETY: the caller's promise; registers stay inside the pixel.
    unsafe {
        while whole && (register + BESIDE) * held <= t.groups {
            tile::<V, P, BESIDE, false, MOVES>(t, first, register, held);
            register += BESIDE;
        }
        if whole && (register + 1) * held <= t.groups {
            tile::<V, P, 1, false, MOVES>(t, first, register, held);
            register += 1;
        }
        while register * held < t.groups {
            tile::<V, P, 1, true, MOVES>(t, first, register, held.min(t.groups - register * held));
            register += 1;
        }
    }
}

#[inline(always)]
unsafe fn stretch<V: Vector, const MOVES: bool>(t: &Stretch<'_>) {
    let mut first = 0;
    // SAFETY: the caller's promise; pixels stay inside the stretch.
    unsafe {
        while first < t.count {
            // Few kinds of rests: what a line's end may lose is less than the compiler takes for more of them.
            let count = match t.count - first {
                PIXELS.. => PIXELS,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
            for line in 0..t.ahead {
                prefetch(t.next.wrapping_add(line * t.line + first * t.step), count * t.step);
            }
            match count {
                1 => pixels::<V, 1, MOVES>(t, first),
                2 => pixels::<V, 2, MOVES>(t, first),
                4 => pixels::<V, 4, MOVES>(t, first),
                _ => pixels::<V, PIXELS, MOVES>(t, first),
            }
            first += count;
        }
    }
}

/// Calls `run` for each register of some groups, with whether all its lanes are there, and how many groups it has.
#[inline(always)]
fn each_register(registers: &Registers, groups: usize, mut run: impl FnMut(bool, usize, usize)) {
    for register in 0..groups.div_ceil(registers.held) {
        let held = registers.held.min(groups - register * registers.held);
        run(registers.whole && held == registers.held, register, held);
    }
}

/// A register of `T` filter values' gradients.
#[inline(always)]
unsafe fn taps<V: Vector, const T: usize, const PART: bool, const MOVES: bool>(
    t: &Sums<'_>,
    register: usize,
    groups: usize,
) {
    let Registers { held, from, to, ref lanes, weights, .. } = *t.registers;
    let (rest, out_rest) = (groups * from, groups * to);
    // SAFETY: the caller's promise; there are `T` filter values.
    unsafe {
        let source: [*const f32; T] = std::array::from_fn(|i| t.x.add(t.taps[i].source + register * held * from));
        let dy = t.dy.add(register * held * to);
        for channel in 0..if MOVES { from } else { 1 } {
            let lanes = lanes.as_ptr().add(channel * V::LANES);
            let out = t.out.add(register * weights + channel * V::LANES);
            let out: [*mut f32; T] = std::array::from_fn(|i| out.add(t.taps[i].weight));
            let mut sum: [V; T] = std::array::from_fn(|i| V::load(out[i]));
            for pixel in 0..t.count {
                let dy = load::<V, PART>(dy.add(pixel * t.dy_step), out_rest);
                for (sum, source) in sum.iter_mut().zip(&source) {
                    let x = fetch::<V, PART, MOVES>(source.add(pixel * t.x_step), rest, lanes);
                    *sum = dy.mul_add(x, *sum);
                }
            }
            for (sum, out) in sum.iter().zip(out) {
                sum.store(out);
            }
        }
    }
}

#[inline(always)]
unsafe fn all_taps<V: Vector, const T: usize, const MOVES: bool>(t: &Sums<'_>) {
    each_register(
        t.registers,
        t.groups,
        #[inline(always)]
        |whole, register, groups| {
            // SAFETY: the caller's promise; registers stay inside the pixel.
            unsafe {
                if whole {
                    taps::<V, T, false, MOVES>(t, register, groups)
                } else {
                    taps::<V, T, true, MOVES>(t, register, groups)
                }
            }
        },
    );
}

#[inline(always)]
unsafe fn sums<V: Vector, const MOVES: bool>(t: &Sums<'_>) {
    debug_assert!(t.taps.len() <= TAPS);
    // SAFETY: the caller's promise.
    unsafe {
        match t.taps.len() {
            0 => {}
            1 => all_taps::<V, 1, MOVES>(t),
            2 => all_taps::<V, 2, MOVES>(t),
            3 => all_taps::<V, 3, MOVES>(t),
            4 => all_taps::<V, 4, MOVES>(t),
            5 => all_taps::<V, 5, MOVES>(t),
            6 => all_taps::<V, 6, MOVES>(t),
            7 => all_taps::<V, 7, MOVES>(t),
            8 => all_taps::<V, 8, MOVES>(t),
            _ => all_taps::<V, TAPS, MOVES>(t),
        }
    }
}

/// A register of the gradients of `R` rows of `S` filter values: every pixel is loaded once for a row.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // `r` and `s` are places in the filter.
unsafe fn row_sums<V: Vector, const R: usize, const S: usize, const PART: bool, const MOVES: bool>(
    t: &Lines<'_>,
    rows: &[Tap],
    register: usize,
    groups: usize,
) {
    let Registers { held, from, to, ref lanes, weights, .. } = *t.registers;
    let (rest, out_rest) = (groups * from, groups * to);
    // SAFETY: the caller's promise; there are `R` rows of `S` columns; only pairs of pixels inside both lines are read.
    unsafe {
        let source: [*const f32; R] = std::array::from_fn(|r| t.x.add(rows[r].source + register * held * from));
        let dy = t.dy.add(register * held * to);
        let dy = |pixel: usize| load::<V, PART>(dy.add(pixel * t.dy_step), out_rest);
        for channel in 0..if MOVES { from } else { 1 } {
            let lanes = lanes.as_ptr().add(channel * V::LANES);
            let out = t.out.add(register * weights + channel * V::LANES);
            let out: [[*mut f32; S]; R] =
                std::array::from_fn(|r| std::array::from_fn(|s| out.add(rows[r].weight + s * from * V::LANES)));
            let mut sum: [[V; S]; R] = std::array::from_fn(|r| std::array::from_fn(|s| V::load(out[r][s])));
            for pixel in 0..t.count {
                let x = |r: usize| fetch::<V, PART, MOVES>(source[r].add(pixel * t.x_step), rest, lanes);
                // The first column meets the pixel of the output that is furthest to the right.
                let right = pixel + t.padding;
                if right + 1 >= S && right < t.out_count {
                    let dy: [V; S] = std::array::from_fn(|s| dy(right - s));
                    for r in 0..R {
                        let x = x(r);
                        for s in 0..S {
                            sum[r][s] = dy[s].mul_add(x, sum[r][s]);
                        }
                    }
                    continue;
                }
                for s in 0..S {
                    if right >= s && right - s < t.out_count {
                        let dy = dy(right - s);
                        for r in 0..R {
                            sum[r][s] = dy.mul_add(x(r), sum[r][s]);
                        }
                    }
                }
            }
            for (sum, out) in sum.iter().flatten().zip(out.as_flattened()) {
                sum.store(*out);
            }
        }
    }
}

#[inline(always)]
unsafe fn all_rows<V: Vector, const R: usize, const S: usize, const MOVES: bool>(t: &Lines<'_>, rows: &[Tap]) {
    each_register(
        t.registers,
        t.groups,
        #[inline(always)]
        |whole, register, groups| {
            // SAFETY: the caller's promise; registers stay inside the pixel.
            unsafe {
                if whole {
                    row_sums::<V, R, S, false, MOVES>(t, rows, register, groups)
                } else {
                    row_sums::<V, R, S, true, MOVES>(t, rows, register, groups)
                }
            }
        },
    );
}

#[inline(always)]
unsafe fn lines<V: Vector, const MOVES: bool>(t: &Lines<'_>) {
    debug_assert!(slides(t.columns));
    // So many rows at once that their sums stay in sixteen registers.
    let at_once = if t.columns == 3 { 3 } else { 2 };
    for rows in t.rows.chunks(at_once) {
        // SAFETY: the caller's promise.
        unsafe {
            match (t.columns, rows.len()) {
                (3, 1) => all_rows::<V, 1, 3, MOVES>(t, rows),
                (3, 2) => all_rows::<V, 2, 3, MOVES>(t, rows),
                (3, _) => all_rows::<V, 3, 3, MOVES>(t, rows),
                (_, 1) => all_rows::<V, 1, 5, MOVES>(t, rows),
                _ => all_rows::<V, 2, 5, MOVES>(t, rows),
            }
        }
    }
}

macro_rules! compiled {
    ($loops:ident, $stretch:ident, $sums:ident, $lines:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $stretch(t: &Stretch<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { if t.registers.moves() { stretch::<$vector, true>(t) } else { stretch::<$vector, false>(t) } }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $sums(t: &Sums<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { if t.registers.moves() { sums::<$vector, true>(t) } else { sums::<$vector, false>(t) } }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $lines(t: &Lines<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { if t.registers.moves() { lines::<$vector, true>(t) } else { lines::<$vector, false>(t) } }
        }
        static $loops: Loops = Loops { lanes: <$vector>::LANES, stretch: $stretch, sums: $sums, lines: $lines };
    };
}
compiled!(PORTABLE, stretch_portable, sums_portable, lines_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(AVX2, stretch_avx2, sums_avx2, lines_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(AVX512, stretch_avx512, sums_avx512, lines_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The loops of the instruction set in use.
pub(super) fn loops() -> &'static Loops {
    by_isa!(&AVX512, &AVX2, &PORTABLE)
}
