//! Who was taken for whom.

use super::canvas::{Area, BLUE, Drawn, FAINT, GRID, INK, VERMILLION, legible_on, short, text, tint};
use crate::results::Results;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, VPos};

/// Cells smaller than this hold no number.
const NUMBERED: i32 = 26;
/// Cells smaller than this have no room for a name beside them.
const NAMED: i32 = 8;
/// A name's letter is about this part of its height wide.
const LETTER: f64 = 0.62;

/// How the matrix is laid out.
struct Layout {
    cell: i32,
    font: i32,
    names: i32,
}

impl Layout {
    /// For a matrix whose cells have at most this room.
    fn new(results: &Results, cell: i32) -> Self {
        let font = (cell - 1).clamp(NAMED - 1, 16);
        let longest = results.classes.iter().map(|c| short(c, 18).chars().count()).max().unwrap_or(0);
        let names = if cell >= NAMED { (longest as f64 * font as f64 * LETTER) as i32 + 16 } else { 24 };
        Layout { cell, font, names }
    }
}

/// The picture's size when it may be as large as it needs.
pub fn size(results: &Results) -> (usize, usize) {
    let layout = layout_for(results);
    let matrix = layout.cell * results.classes.len() as i32;
    ((layout.names + matrix + 40).max(560) as usize, (matrix + layout.names + 120) as usize)
}

fn layout_for(results: &Results) -> Layout {
    let n = results.classes.len().max(1) as i32;
    Layout::new(results, (1240 / n).clamp(2, 56))
}

/// Draws it as large as [`size`] says.
pub fn draw(area: &Area<'_>, results: &Results) -> Drawn {
    matrix(area, results, &layout_for(results))
}

/// Draws it as large as fits.
pub fn draw_within(area: &Area<'_>, results: &Results) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let room = (width as i32).min(height as i32 - 60) - 150;
    matrix(area, results, &Layout::new(results, (room / results.classes.len().max(1) as i32).clamp(1, 56)))
}

fn matrix(area: &Area<'_>, results: &Results, layout: &Layout) -> Drawn {
    let Layout { cell, font, names } = *layout;
    let n = results.classes.len() as i32;
    let width = area.dim_in_pixel().0 as i32;
    let (left, top) = (names.max((width - n * cell + names) / 2 - 10), 62);
    let middle = left + n * cell / 2;
    let title = format!("{:.1} % of {} {} images recognised", 100.0 * results.accuracy, results.images, results.split);
    area.draw_text(&title, &text(22, INK, HPos::Center, VPos::Top), (middle.clamp(260, width - 260), 18))?;

    for (truth, row) in results.confusion.iter().enumerate() {
        let total = row.iter().sum::<usize>().max(1) as f64;
        let y = top + truth as i32 * cell;
        for (guess, count) in row.iter().enumerate() {
            let x = left + guess as i32 * cell;
            let share = *count as f64 / total;
            let ground = tint(if truth == guess { BLUE } else { VERMILLION }, share);
            if *count > 0 {
                area.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], ground.filled()))?;
            }
            if cell >= NUMBERED {
                area.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], GRID))?;
            }
            if *count > 0 && cell >= NUMBERED {
                let digits = count.to_string();
                let size = (cell as f64 / digits.len().max(2) as f64 * 1.3) as i32;
                let style = text(size.clamp(9, 16), legible_on(ground), HPos::Center, VPos::Center);
                area.draw_text(&digits, &style, (x + cell / 2, y + cell / 2))?;
            }
        }
    }
    let (right, below) = (left + n * cell, top + n * cell);
    area.draw(&Rectangle::new([(left, top), (right, below)], FAINT))?;
    if cell >= NAMED {
        for (class, name) in results.classes.iter().enumerate() {
            let (name, half) = (short(name, 18), class as i32 * cell + cell / 2);
            area.draw_text(&name, &text(font, INK, HPos::Right, VPos::Center), (left - 6, top + half))?;
            let upright = text(font, INK, HPos::Right, VPos::Center).transform(FontTransform::Rotate270);
            area.draw_text(&name, &upright, (left + half, below + 6))?;
        }
    }
    let note = "rows: what it is; columns: what it was taken for";
    let bottom = below + if cell >= NAMED { names } else { 8 } + 26;
    area.draw_text(note, &text(15, FAINT, HPos::Center, VPos::Bottom), (middle.clamp(200, width - 200), bottom))?;
    Ok(())
}
