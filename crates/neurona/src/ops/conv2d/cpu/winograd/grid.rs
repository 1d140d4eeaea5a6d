//! How images are cut into tiles.

use super::transform::{GROUP, OUT, SIDE, Tile, UNLIMITED};
use std::ops::Range;
use std::ptr::null;

/// Tiles of 4×4 output pixels, and the windows of 6×6 input pixels under them.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub n: usize,
    /// Height and width of an input image.
    pub size: [usize; 2],
    /// Height and width of an output image.
    pub out: [usize; 2],
    pub padding: [usize; 2],
}

impl Grid {
    /// Tiles down and across an image.
    fn sides(&self) -> [usize; 2] {
        self.out.map(|size| size.div_ceil(OUT))
    }

    /// Tiles of all images.
    pub fn total(&self) -> usize {
        self.n * self.sides()[0] * self.sides()[1]
    }

    /// Which image a tile is of, and its first output row and column.
    fn place(&self, tile: usize) -> (usize, [usize; 2]) {
        let [down, across] = self.sides();
        (tile / across / down, [tile / across % down * OUT, tile % across * OUT])
    }

    /// The pixels, of all input images, in the rows above which neighbouring tiles stand.
    pub fn taken(&self, tiles: Range<usize>) -> Range<usize> {
        self.rows(tiles, self.size, OUT)
    }

    /// The pixels, of all output images, in the rows that neighbouring tiles cover.
    pub fn given(&self, tiles: Range<usize>) -> Range<usize> {
        self.rows(tiles, self.out, OUT)
    }

    /// The windows of 2 by 2 of these, likewise.
    pub fn pooled(&self, tiles: Range<usize>) -> Range<usize> {
        self.rows(tiles, self.out.map(|size| size / 2), OUT / 2)
    }

    /// Those in rows of images of this height and width, of which a tile covers so many.
    fn rows(&self, tiles: Range<usize>, [h, w]: [usize; 2], covered: usize) -> Range<usize> {
        let row = |tile: usize, more: usize| {
            let (image, [row, _]) = self.place(tile);
            (image * h + (row / OUT * covered + more).min(h)) * w
        };
        row(tiles.start, 0)..row(tiles.end - 1, covered)
    }

    /// The window of a tile in images of so many channels; its transformed values are the caller's to place.
    pub fn window(&self, tile: usize, images: *mut f32, channels: usize) -> Tile {
        let [h, w] = self.size;
        let (image, place) = self.place(tile);
        // Above and to the left of the image lies padding, where the differences wrap around.
        let [top, left] = [0, 1].map(|side| place[side].wrapping_sub(self.padding[side]));
        let first = (image * h).wrapping_add(top).wrapping_mul(w).wrapping_add(left).wrapping_mul(channels);
        let inside = |side: usize| {
            let before = self.padding[side].saturating_sub(place[side]);
            before..(self.size[side] + self.padding[side]).saturating_sub(place[side]).clamp(before, SIDE)
        };
        let (rows, columns) = (inside(0), inside(1));
        Tile { image: images.wrapping_add(first), steps: [w * channels, channels], rows, columns, ..EMPTY }
    }

    /// A tile in output images of so many channels; likewise.
    pub fn pixels(&self, tile: usize, images: *mut f32, channels: usize) -> Tile {
        let [h, w] = self.out;
        let (image, [row, column]) = self.place(tile);
        let first = ((image * h + row) * w + column) * channels;
        let (rows, columns) = (0..OUT.min(h - row), 0..OUT.min(w - column));
        Tile { image: images.wrapping_add(first), steps: [w * channels, channels], rows, columns, ..EMPTY }
    }

    /// The windows of 2 by 2 pixels of a tile, in images of such windows; likewise.
    pub fn windows(&self, tile: usize, images: *mut f32, channels: usize) -> Tile {
        let [down, across] = self.out.map(|size| size / 2);
        let (image, [row, column]) = self.place(tile);
        let pixels = self.pixels(tile, images, channels);
        let first = ((image * down + row / 2) * across + column / 2) * channels;
        let (rows, columns) = (0..pixels.rows.len() / 2, 0..pixels.columns.len() / 2);
        Tile { image: images.wrapping_add(first), steps: [across * channels, channels], rows, columns, ..EMPTY }
    }
}

const EMPTY: Tile = Tile {
    image: std::ptr::null_mut(),
    steps: [0, 0],
    rows: 0..0,
    columns: 0..0,
    channels: 0,
    points: std::ptr::null_mut(),
    plane: 0,
    group: GROUP,
    bias: null(),
    limits: UNLIMITED,
};
