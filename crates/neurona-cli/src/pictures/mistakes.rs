//! The wrong answers that the network was surest of.

use super::canvas::{Area, Drawn, FAINT, GREEN, INK, Picture, VERMILLION, short, text};
use crate::results::{Mistake, Results};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Mistakes in a row.
const COLUMNS: usize = 6;
const SIDE: usize = 132;
const TILE: (i32, i32) = (184, 204);
const TOP: i32 = 64;

/// The picture's size for as many mistakes.
pub fn size(mistakes: usize) -> (usize, usize) {
    let rows = mistakes.div_ceil(COLUMNS).max(1);
    (COLUMNS * TILE.0 as usize + 20, TOP as usize + rows * TILE.1 as usize + 12)
}

/// A grid of them. An image that is not at hand leaves its place empty.
pub fn draw(area: &Area<'_>, results: &Results, images: &[Option<Picture>]) -> Drawn {
    let title = match results.mistakes.is_empty() {
        true => "No mistakes",
        false => "The most confident mistakes",
    };
    area.draw_text(title, &text(24, INK, HPos::Left, VPos::Top), (20, 18))?;
    grid(area, results, images, COLUMNS, TILE.0, TOP)
}

/// A single row, as many as fit.
pub fn row(area: &Area<'_>, results: &Results, images: &[Option<Picture>]) -> Drawn {
    let width = area.dim_in_pixel().0 as i32 - 20;
    let columns = (width / TILE.0).max(1) as usize;
    let first = Results { mistakes: results.mistakes.iter().take(columns).cloned().collect(), ..results.clone() };
    area.draw_text("The most confident mistakes", &text(20, INK, HPos::Left, VPos::Top), (36, 0))?;
    grid(area, &first, images, columns, width / columns as i32, 40)
}

fn grid(area: &Area<'_>, results: &Results, images: &[Option<Picture>], columns: usize, step: i32, top: i32) -> Drawn {
    for (i, mistake) in results.mistakes.iter().enumerate() {
        let place = (10 + (i % columns) as i32 * step, top + (i / columns) as i32 * TILE.1);
        tile(area, results, mistake, images.get(i).and_then(Option::as_ref), place)?;
    }
    Ok(())
}

fn tile(area: &Area<'_>, results: &Results, mistake: &Mistake, image: Option<&Picture>, (x, y): (i32, i32)) -> Drawn {
    let (left, middle) = (x + (TILE.0 - SIDE as i32) / 2, x + TILE.0 / 2);
    match image {
        Some(image) => image.fitted(SIDE).paste(area, (left, y))?,
        None => {
            let box_ = [(left, y), (left + SIDE as i32, y + SIDE as i32)];
            area.draw(&Rectangle::new(box_, FAINT))?;
        }
    }
    let guess = format!("{} {:.0} %", short(&results.classes[mistake.guess], 16), 100.0 * mistake.confidence);
    let truth = format!("is {}", short(&results.classes[mistake.truth], 18));
    let below = y + SIDE as i32 + 8;
    area.draw_text(&guess, &text(16, VERMILLION, HPos::Center, VPos::Top), (middle, below))?;
    area.draw_text(&truth, &text(16, GREEN, HPos::Center, VPos::Top), (middle, below + 24))?;
    Ok(())
}
