//! Which output pixels meet which filter values in the forward pass. Products with the zeros of the padding can be left
//! out where enough pixels share the values that are left: those of a column near the left and right edges, those of a
//! row near the others.

use super::source::Source;
use super::{Cut, Geometry};
use crate::cpu::gemm::DEPTH;
use crate::cpu::gemm::micro::widths;
use crate::cpu::gemm::panel::Panel;
use std::ops::Range;

/// Rows of a tile that take as long as reading the filters does.
const LEAST: usize = 4;
/// What a tile's results take, in steps of one of its rows.
const TILE: usize = 64;

/// Rows and columns.
type Area = [Range<usize>; 2];

/// Neighbours in a window that lie side by side in memory: a filter row when nothing is skipped in it.
pub(super) fn run(g: &Geometry) -> usize {
    if whole_rows(g) { g.s * g.c } else { g.group_c() }
}

fn whole_rows(g: &Geometry) -> bool {
    g.groups == 1 && g.dilation[1] == 1 && g.s * g.c <= DEPTH
}

/// Pixels of a part that meet the same filter values, for as many images as a part may have.
pub(super) struct Meeting {
    /// Where each pixel's window starts, and where its results go.
    pub a_rows: Vec<usize>,
    pub c_rows: Vec<usize>,
    /// Pixels of one image.
    pub image: usize,
    /// Runs of a window: where they start, and how long each is.
    pub segments: Vec<usize>,
    pub length: usize,
    /// Where they start in each packed panel.
    pub b_segments: Vec<Vec<usize>>,
}

impl Meeting {
    /// All pixels and all filter values.
    pub fn all(source: &Source, cut: &Cut, panels: &[Panel]) -> Self {
        let g = &source.g;
        Meeting::new(source, cut, [0..cut.block_rows(), 0..g.ow()], [0..g.r, 0..g.s], panels)
    }

    /// Some of a part's pixels, and of the filters' values.
    fn new(source: &Source, cut: &Cut, pixels: Area, taps: Area, panels: &[Panel]) -> Self {
        let Source { g, pixel, .. } = *source;
        let (line, image) = (source.line(), source.image(cut.block_rows()));
        let [rows, columns] = &pixels;
        let places = (0..cut.images())
            .flat_map(|i| rows.clone().map(move |row| (i, row)))
            .flat_map(|(i, row)| columns.clone().map(move |column| (i, row, column)));
        let (a_rows, c_rows) = places
            .map(|(i, row, column)| {
                let window = i * image + row * g.stride[0] * line + column * g.stride[1] * pixel;
                (window, ((i * cut.block_rows() + row) * g.ow() + column) * g.k)
            })
            .unzip();

        let [r, s] = taps;
        let (runs, length) = if whole_rows(&g) { (s.start..s.start + 1, s.len() * g.c) } else { (s, g.group_c()) };
        let runs = r.flat_map(|r| runs.clone().map(move |s| (r, s)));
        let segments = runs.clone().map(|(r, s)| r * g.dilation[0] * line + s * g.dilation[1] * pixel).collect();
        let in_panel = |p: &Panel| runs.clone().map(|(r, s)| (r * g.s + s) * g.group_c() * p.width.columns).collect();
        let b_segments = panels.iter().map(in_panel).collect();
        Meeting { a_rows, c_rows, image: rows.len() * columns.len(), segments, length, b_segments }
    }

    /// Parts of the reduction that stay in the caches.
    pub fn steps(&self) -> usize {
        let at_once = (DEPTH / self.length.max(1)).max(1);
        self.segments.len().div_ceil(at_once).max(1)
    }
}

/// The pixels of a block of rows without the products with padding.
pub(super) fn skipping(source: &Source, cut: &Cut, block: usize, panels: &[Panel]) -> Vec<Meeting> {
    let meeting = |(pixels, taps)| Meeting::new(source, cut, pixels, taps, panels);
    classes(&source.g, cut, block).into_iter().map(meeting).collect()
}

/// Pixels of a block that lie over the same filter values, and these.
fn classes(g: &Geometry, cut: &Cut, block: usize) -> Vec<(Area, Area)> {
    let rows = cut.part(block).1;
    let alike = |axis: usize, places: Range<usize>| {
        let first = places.start;
        let places: Vec<usize> = places.collect();
        let groups = places.chunk_by(|&a, &b| g.reach(axis, a) == g.reach(axis, b));
        let group = |group: &[usize]| (group[0] - first..group[0] - first + group.len(), g.reach(axis, group[0]));
        groups.map(group).collect::<Vec<_>>()
    };
    let columns = alike(1, 0..g.ow());
    let pair = |(rows, r): (Range<usize>, Range<usize>)| {
        columns.iter().map(move |(columns, s)| ([rows.clone(), columns.clone()], [r.clone(), s.clone()]))
    };
    alike(0, rows).into_iter().flat_map(pair).collect()
}

/// Whether leaving out the products with padding makes a pass faster when it is cut like this.
pub(super) fn fewer(g: &Geometry, cut: &Cut) -> bool {
    if !g.padded() || cut.parts() == 0 {
        return false;
    }
    let tallest = widths()[widths().len() - 1].rows();
    // A tile takes its time for each row of it, but no less than the filters take to come from the second-level cache; and
    // some for its results.
    let time = |pixels: usize, taps: usize| {
        let tiles = pixels.div_ceil(tallest);
        taps * g.group_c() * (pixels.max(LEAST * tiles) + tiles) + TILE * tiles
    };
    let (mut skipping, mut all) = (0, 0);
    for block in 0..cut.blocks {
        let rows = cut.part(block).1.len();
        all += time(cut.images() * rows * g.ow(), g.taps());
        for ([rows, columns], [r, s]) in classes(g, cut, block) {
            skipping += time(cut.images() * rows.len() * columns.len(), r.len() * s.len());
        }
    }
    skipping * 100 < all * 97
}
