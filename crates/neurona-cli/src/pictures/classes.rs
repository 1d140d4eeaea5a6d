//! How well each class was told apart, the worst first.

use super::canvas::{Area, BLUE, Drawn, FAINT, GRID, INK, VERMILLION, short, text};
use crate::results::{ClassScores, Results};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

const WIDTH: usize = 1000;
const TOP: i32 = 90;
const BAR_LEFT: i32 = 230;
const BAR_WIDTH: i32 = 600;

fn row_height(classes: usize) -> i32 {
    if classes > 40 { 18 } else { 30 }
}

/// The picture's size.
pub fn size(results: &Results) -> (usize, usize) {
    let n = results.classes.len();
    (WIDTH, TOP as usize + n * row_height(n) as usize + 50)
}

/// A bar for each class.
pub fn draw(area: &Area<'_>, results: &Results) -> Drawn {
    let n = results.classes.len();
    let (row, across) = (row_height(n), |share: f64| BAR_LEFT + (share.clamp(0.0, 1.0) * BAR_WIDTH as f64) as i32);
    let mut classes: Vec<&ClassScores> = results.per_class.iter().collect();
    classes.sort_by(|a, b| a.scores.recall.total_cmp(&b.scores.recall));

    area.draw_text("Accuracy of each class", &text(24, INK, HPos::Left, VPos::Top), (BAR_LEFT, 18))?;
    area.draw(&Rectangle::new([(BAR_LEFT, 58), (BAR_LEFT + 22, 70)], BLUE.filled()))?;
    area.draw_text("recognised (recall)", &text(15, INK, HPos::Left, VPos::Center), (BAR_LEFT + 30, 64))?;
    diamond(area, (BAR_LEFT + 220, 64))?;
    area.draw_text(
        "right when it says so (precision)",
        &text(15, INK, HPos::Left, VPos::Center),
        (BAR_LEFT + 234, 64),
    )?;

    let bottom = TOP + n as i32 * row;
    for percent in (0..=100).step_by(20) {
        let x = across(percent as f64 / 100.0);
        area.draw(&PathElement::new([(x, TOP), (x, bottom)], GRID))?;
        area.draw_text(&format!("{percent} %"), &text(14, FAINT, HPos::Center, VPos::Top), (x, bottom + 8))?;
    }
    for (i, class) in classes.iter().enumerate() {
        let (y, gap) = (TOP + i as i32 * row, (row / 6).max(2));
        let middle = y + row / 2;
        let font = (row - 4).min(16);
        area.draw_text(&short(&class.name, 24), &text(font, INK, HPos::Right, VPos::Center), (BAR_LEFT - 10, middle))?;
        let bar = [(BAR_LEFT, y + gap), (across(class.scores.recall), y + row - gap)];
        area.draw(&Rectangle::new(bar, BLUE.filled()))?;
        diamond(area, (across(class.scores.precision), middle))?;
        let note = format!("{:.1} %  of {}", 100.0 * class.scores.recall, class.count);
        area.draw_text(&note, &text(font, INK, HPos::Left, VPos::Center), (BAR_LEFT + BAR_WIDTH + 14, middle))?;
    }
    Ok(())
}

fn diamond(area: &Area<'_>, (x, y): (i32, i32)) -> Drawn {
    let points = |r: i32| vec![(x, y - r), (x + r, y), (x, y + r), (x - r, y)];
    // A white edge keeps it visible on its bar.
    area.draw(&Polygon::new(points(8), WHITE.filled()))?;
    area.draw(&Polygon::new(points(6), VERMILLION.filled()))?;
    Ok(())
}
