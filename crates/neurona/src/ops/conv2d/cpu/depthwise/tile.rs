//! The inner loops, on registers of channels, compiled for each instruction set.

#[cfg(target_arch = "x86_64")]
use crate::cpu::gemm::vector::{Avx2, Avx512};
use crate::cpu::gemm::vector::{Lanes, Vector};
use crate::cpu::simd::{Isa, isa};

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

/// Pixels of a line that the same filter values reach.
pub(super) struct Stretch<'a> {
    /// Rows and columns of filter values: each pair of them is one.
    pub rows: &'a [Tap],
    pub columns: &'a [Tap],
    /// How many columns there are, where each is one pixel further than the one before; else 0.
    pub sliding: usize,
    pub count: usize,
    /// Channels of a pixel that are computed.
    pub channels: usize,
    pub source: *const f32,
    /// Floats from pixel to pixel.
    pub step: usize,
    pub weight: *const f32,
    /// One value a channel, or null.
    pub bias: *const f32,
    pub relu: bool,
    pub out: *mut f32,
    pub out_step: usize,
}

/// Filter values that meet the same pixels of a line, whose products are summed over the pixels.
pub(super) struct Sums<'a> {
    /// Where each value's pixels start in the input.
    pub sources: &'a [usize],
    /// Where its sums lie.
    pub sums: &'a [usize],
    pub count: usize,
    pub channels: usize,
    pub x: *const f32,
    pub x_step: usize,
    pub dy: *const f32,
    pub dy_step: usize,
    pub out: *mut f32,
}

/// The inner loops of an instruction set.
pub(super) struct Loops {
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
}

#[inline(always)]
unsafe fn load<V: Vector, const PART: bool>(p: *const f32, rest: usize) -> V {
    // SAFETY: the caller's promise: with `PART` only `rest` lanes are there.
    unsafe { if PART { V::load_part(p, rest) } else { V::load(p) } }
}

/// Adds the products of a row of `S` filter values, each one pixel further than the one before: every pixel under them is
/// loaded once, which counts most where registers of channels lie across two lines of the cache.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // `j` is a register of every pixel.
unsafe fn slide<V: Vector, const P: usize, const N: usize, const S: usize, const PART: bool>(
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
            let values: [V; S] =
                std::array::from_fn(|s| load::<V, PART>(weight.add(t.columns[s].weight + j * V::LANES), rest));
            for i in 0..P + S - 1 {
                let x = load::<V, PART>(source.add(i * t.step + j * V::LANES), rest);
                for (s, value) in values.iter().enumerate() {
                    if i >= s && i - s < P {
                        sum[i - s][j] = value.mul_add(x, sum[i - s][j]);
                    }
                }
            }
        }
    }
}

/// `P` pixels from `first` on, `N` registers of channels from `channel` on; of the last register only `rest` lanes with
/// `PART`.
#[inline(always)]
unsafe fn tile<V: Vector, const P: usize, const N: usize, const PART: bool>(
    t: &Stretch<'_>,
    first: usize,
    channel: usize,
    rest: usize,
) {
    // SAFETY: the caller's promise; pixels, channels and filter values are inside the stretch.
    unsafe {
        let mut sum = [[V::splat(0.0); N]; P];
        if !t.bias.is_null() {
            let bias: [V; N] = std::array::from_fn(|j| load::<V, PART>(t.bias.add(channel + j * V::LANES), rest));
            sum.fill(bias);
        }
        let source = t.source.add(first * t.step + channel);
        let weight = t.weight.add(channel);
        for row in t.rows {
            let (source, weight) = (source.add(row.source), weight.add(row.weight));
            match t.sliding {
                3 => {
                    slide::<V, P, N, 3, PART>(&mut sum, t, source, weight, rest);
                    continue;
                }
                5 => {
                    slide::<V, P, N, 5, PART>(&mut sum, t, source, weight, rest);
                    continue;
                }
                _ => {}
            }
            for column in t.columns {
                let (source, weight) = (source.add(column.source), weight.add(column.weight));
                let weight: [V; N] = std::array::from_fn(|j| load::<V, PART>(weight.add(j * V::LANES), rest));
                for (i, sum) in sum.iter_mut().enumerate() {
                    for (j, sum) in sum.iter_mut().enumerate() {
                        let x = load::<V, PART>(source.add(i * t.step + j * V::LANES), rest);
                        *sum = weight[j].mul_add(x, *sum);
                    }
                }
            }
        }
        for (i, sum) in sum.iter().enumerate() {
            let out = t.out.add((first + i) * t.out_step + channel);
            for (j, sum) in sum.iter().enumerate() {
                let sum = if t.relu { V::splat(0.0).max(*sum) } else { *sum };
                if PART { sum.store_part(out, rest) } else { sum.store(out.add(j * V::LANES)) }
            }
        }
    }
}

/// All channels of `P` pixels.
#[inline(always)]
unsafe fn pixels<V: Vector, const P: usize>(t: &Stretch<'_>, first: usize) {
    let (mut channel, wide) = (0, BESIDE * V::LANES);
    // SAFETY: the caller's promise; channels stay inside the pixel.
    unsafe {
        while channel + wide <= t.channels {
            tile::<V, P, BESIDE, false>(t, first, channel, 0);
            channel += wide;
        }
        if channel + V::LANES <= t.channels {
            tile::<V, P, 1, false>(t, first, channel, 0);
            channel += V::LANES;
        }
        if channel < t.channels {
            tile::<V, P, 1, true>(t, first, channel, t.channels - channel);
        }
    }
}

#[inline(always)]
unsafe fn stretch<V: Vector>(t: &Stretch<'_>) {
    let mut first = 0;
    // SAFETY: the caller's promise; pixels stay inside the stretch.
    unsafe {
        while first < t.count {
            let count = (t.count - first).min(PIXELS);
            match count {
                1 => pixels::<V, 1>(t, first),
                2 => pixels::<V, 2>(t, first),
                3 => pixels::<V, 3>(t, first),
                4 => pixels::<V, 4>(t, first),
                5 => pixels::<V, 5>(t, first),
                _ => pixels::<V, PIXELS>(t, first),
            }
            first += count;
        }
    }
}

/// A register of channels of `T` filter values' gradients.
#[inline(always)]
unsafe fn taps<V: Vector, const T: usize, const PART: bool>(t: &Sums<'_>, channel: usize, rest: usize) {
    // SAFETY: the caller's promise; there are `T` filter values.
    unsafe {
        let source: [*const f32; T] = std::array::from_fn(|i| t.x.add(t.sources[i] + channel));
        let out: [*mut f32; T] = std::array::from_fn(|i| t.out.add(t.sums[i] + channel));
        let mut sum: [V; T] = std::array::from_fn(|i| load::<V, PART>(out[i], rest));
        for pixel in 0..t.count {
            let dy = load::<V, PART>(t.dy.add(pixel * t.dy_step + channel), rest);
            for (sum, source) in sum.iter_mut().zip(&source) {
                *sum = dy.mul_add(load::<V, PART>(source.add(pixel * t.x_step), rest), *sum);
            }
        }
        for (sum, out) in sum.iter().zip(out) {
            if PART { sum.store_part(out, rest) } else { sum.store(out) }
        }
    }
}

#[inline(always)]
unsafe fn all_channels<V: Vector, const T: usize>(t: &Sums<'_>) {
    let mut channel = 0;
    // SAFETY: the caller's promise; channels stay inside the pixel.
    unsafe {
        while channel + V::LANES <= t.channels {
            taps::<V, T, false>(t, channel, 0);
            channel += V::LANES;
        }
        if channel < t.channels {
            taps::<V, T, true>(t, channel, t.channels - channel);
        }
    }
}

#[inline(always)]
unsafe fn sums<V: Vector>(t: &Sums<'_>) {
    debug_assert!(t.sources.len() == t.sums.len() && t.sources.len() <= TAPS);
    // SAFETY: the caller's promise.
    unsafe {
        match t.sources.len() {
            0 => {}
            1 => all_channels::<V, 1>(t),
            2 => all_channels::<V, 2>(t),
            3 => all_channels::<V, 3>(t),
            4 => all_channels::<V, 4>(t),
            5 => all_channels::<V, 5>(t),
            6 => all_channels::<V, 6>(t),
            7 => all_channels::<V, 7>(t),
            8 => all_channels::<V, 8>(t),
            _ => all_channels::<V, TAPS>(t),
        }
    }
}

macro_rules! compiled {
    ($loops:ident, $stretch:ident, $sums:ident, $vector:ty $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $stretch(t: &Stretch<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { stretch::<$vector>(t) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn $sums(t: &Sums<'_>) {
            // SAFETY: the caller's promise, passed on.
            unsafe { sums::<$vector>(t) }
        }
        static $loops: Loops = Loops { stretch: $stretch, sums: $sums };
    };
}
compiled!(PORTABLE, stretch_portable, sums_portable, Lanes);
#[cfg(target_arch = "x86_64")]
compiled!(AVX2, stretch_avx2, sums_avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(AVX512, stretch_avx512, sums_avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma");

/// The loops of the instruction set in use.
pub(super) fn loops() -> &'static Loops {
    match isa() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2,
        _ => &PORTABLE,
    }
}
