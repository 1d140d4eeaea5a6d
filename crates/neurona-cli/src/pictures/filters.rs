//! What the first layer looks for.

use super::canvas::{Area, Drawn, FAINT, INK, Picture, text};
use plotters::style::text_anchor::{HPos, VPos};

const COLUMNS: usize = 8;
const SIDE: usize = 72;
const STEP: i32 = 84;
const TOP: i32 = 86;

/// A layer's weights: outputs, inputs, height and width.
#[derive(Clone, Debug, PartialEq)]
pub struct Filters {
    /// Outputs, inputs, height and width.
    pub shape: [usize; 4],
    /// In that order.
    pub weights: Vec<f32>,
}

impl Filters {
    /// The pictures of the filters: in colour when it sees colours, grey otherwise. Grey in the middle is zero.
    pub fn pictures(&self) -> Vec<Picture> {
        let [_, inputs, height, width] = self.shape;
        let size = inputs * height * width;
        if size == 0 {
            return Vec::new();
        }
        self.weights.chunks_exact(size).map(|filter| picture(filter, inputs, height, width)).collect()
    }
}

fn picture(filter: &[f32], inputs: usize, height: usize, width: usize) -> Picture {
    let largest = filter.iter().fold(1e-12f32, |most, w| most.max(w.abs()));
    let level = |w: f32| (127.5 + 127.5 * (w / largest).clamp(-1.0, 1.0)) as u8;
    let plane = height * width;
    let rgb = (0..plane).flat_map(|i| match inputs {
        3 => [0, 1, 2].map(|c| level(filter[c * plane + i])),
        n => [level((0..n).map(|c| filter[c * plane + i]).sum::<f32>() / n as f32); 3],
    });
    Picture { width, height, rgb: rgb.collect() }
}

/// The picture's size for as many filters.
pub fn size(filters: usize) -> (usize, usize) {
    (COLUMNS * STEP as usize + 28, TOP as usize + filters.div_ceil(COLUMNS).max(1) * STEP as usize + 12)
}

/// A grid of them.
pub fn draw(area: &Area<'_>, filters: &[Picture]) -> Drawn {
    area.draw_text("First-layer filters", &text(24, INK, HPos::Left, VPos::Top), (20, 16))?;
    let note = "white: adds; black: takes away; grey: does not look";
    area.draw_text(note, &text(15, FAINT, HPos::Left, VPos::Top), (20, 52))?;
    for (i, filter) in filters.iter().enumerate() {
        let place = (20 + (i % COLUMNS) as i32 * STEP, TOP + (i / COLUMNS) as i32 * STEP);
        filter.fitted(SIDE).paste(area, place)?;
    }
    Ok(())
}
