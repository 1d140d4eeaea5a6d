//! The transforms of F(4×4, 3×3), for [`LANES`] channels side by side.
//!
//! The interpolation points are 0, ±1, ±2 and infinity: every factor but those of the filter is a small whole
//! number, so that a tile loses about two decimal digits at most.

/// Channels that are transformed at once: one register of AVX-512, two of AVX2.
pub(super) const LANES: usize = 16;
/// Values of a side of a transformed tile.
pub(super) const SIDE: usize = 6;
/// Values of a transformed tile.
pub(super) const POINTS: usize = SIDE * SIDE;
/// Pixels of a side of an output tile.
pub(super) const OUT: usize = 4;
/// Values of a side of a filter.
pub(super) const TAPS: usize = 3;

pub(super) type Lane = [f32; LANES];
pub(super) type Tile = [Lane; POINTS];

/// One dimension of an image tile.
#[inline(always)]
fn image_side(d: [f32; SIDE]) -> [f32; SIDE] {
    let (even, odd) = (d[4] - 4.0 * d[2], d[3] - 4.0 * d[1]);
    let (near, far) = (d[4] - d[2], 2.0 * (d[3] - d[1]));
    [4.0 * d[0] - 5.0 * d[2] + d[4], even + odd, even - odd, near + far, near - far, 4.0 * d[1] - 5.0 * d[3] + d[5]]
}

/// One dimension of a filter.
#[inline(always)]
fn filter_side(g: [f32; TAPS]) -> [f32; SIDE] {
    let (outer, inner) = ((g[0] + g[2]) / -6.0, g[1] / -6.0);
    let (wide, middle) = (g[0] / 24.0 + g[2] / 6.0, g[1] / 12.0);
    [g[0] / 4.0, outer + inner, outer - inner, wide + middle, wide - middle, g[2]]
}

/// One dimension of a product, back to pixels.
#[inline(always)]
fn pixel_side(m: [f32; SIDE]) -> [f32; OUT] {
    let (s1, d1, s2, d2) = (m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]);
    [m[0] + s1 + s2, d1 + 2.0 * d2, s1 + 4.0 * s2, d1 + 8.0 * d2 + m[5]]
}

/// Applies one dimension's transform to values `step` apart.
#[inline(always)]
fn along<const I: usize, const O: usize>(
    from: &[Lane],
    to: &mut [Lane],
    [from_step, to_step]: [usize; 2],
    side: impl Fn([f32; I]) -> [f32; O],
) {
    for lane in 0..LANES {
        let values = side(std::array::from_fn(|i| from[i * from_step][lane]));
        for (o, value) in values.into_iter().enumerate() {
            to[o * to_step][lane] = value;
        }
    }
}

/// An image tile, in place.
#[inline(always)]
pub(super) fn image(tile: &mut Tile) {
    let mut half = [[0.0; LANES]; POINTS];
    for x in 0..SIDE {
        along(&tile[x..], &mut half[x..], [SIDE, SIDE], image_side);
    }
    for y in 0..SIDE {
        along(&half[y * SIDE..], &mut tile[y * SIDE..], [1, 1], image_side);
    }
}

/// A filter's nine values, row by row.
#[inline(always)]
pub(super) fn filter(taps: &[Lane; TAPS * TAPS]) -> Tile {
    let mut half = [[0.0; LANES]; SIDE * TAPS];
    let mut tile = [[0.0; LANES]; POINTS];
    for x in 0..TAPS {
        along(&taps[x..], &mut half[x..], [TAPS, TAPS], filter_side);
    }
    for y in 0..SIDE {
        along(&half[y * TAPS..], &mut tile[y * SIDE..], [1, 1], filter_side);
    }
    tile
}

/// The sums over channels, back to pixels.
#[inline(always)]
pub(super) fn pixels(tile: &Tile) -> [Lane; OUT * OUT] {
    let mut half = [[0.0; LANES]; OUT * SIDE];
    let mut out = [[0.0; LANES]; OUT * OUT];
    for x in 0..SIDE {
        along(&tile[x..], &mut half[x..], [SIDE, SIDE], pixel_side);
    }
    for y in 0..OUT {
        along(&half[y * SIDE..], &mut out[y * OUT..], [1, 1], pixel_side);
    }
    out
}
