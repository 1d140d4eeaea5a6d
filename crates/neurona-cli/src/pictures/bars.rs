//! Bars on a scale where every step is ten times the last: what differs a thousandfold fits on one picture.

use super::canvas::{Area, BLUE, Drawn, FAINT, GRID, INK, Picture, VERMILLION, short, text};
use crate::failure::{Failure, Outcome};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Numbers in groups: for each row one bar of every series.
pub struct Bars {
    /// What they are of.
    pub about: String,
    /// What the bars of a row stand for.
    pub series: Vec<String>,
    /// Names with their numbers, which must be above zero to be drawn.
    pub rows: Vec<(String, Vec<f64>)>,
}

const WIDTH: usize = 1100;
const TOP: i32 = 110;
const LEFT: i32 = 300;
const ACROSS: i32 = 660;
const BAR: i32 = 26;
const GAP: i32 = 22;
const COLOURS: [RGBColor; 3] = [BLUE, VERMILLION, super::canvas::GREEN];

/// Draws them; a PNG file.
pub fn bars(bars: &Bars) -> Outcome<Vec<u8>> {
    let height = TOP + bars.rows.len() as i32 * row_height(bars) + 50;
    let picture = Picture::paint(WIDTH, height as usize, |area| draw(area, bars));
    picture.and_then(|p| p.png()).map_err(|e| Failure::Told(format!("cannot draw the bars: {e}")))
}

fn row_height(bars: &Bars) -> i32 {
    bars.series.len() as i32 * BAR + GAP
}

fn draw(area: &Area<'_>, bars: &Bars) -> Drawn {
    area.draw_text(&bars.about, &text(24, INK, HPos::Left, VPos::Top), (30, 18))?;
    for (i, series) in bars.series.iter().enumerate() {
        let x = 30 + i as i32 * 330;
        area.draw(&Rectangle::new([(x, 66), (x + 22, 78)], COLOURS[i % COLOURS.len()].filled()))?;
        area.draw_text(&short(series, 34), &text(16, INK, HPos::Left, VPos::Center), (x + 30, 72))?;
    }
    let values = bars.rows.iter().flat_map(|(_, values)| values).copied().filter(|v| v.is_finite() && *v > 0.0);
    let (least, most) = values.fold((f64::INFINITY, 1.0f64), |(least, most), v| (least.min(v), most.max(v)));
    // From the power of ten below the least, so that every bar can be seen.
    let first = if least.is_finite() { (least / 1.5).log10().floor() } else { 0.0 };
    let last = most.log10().ceil().max(first + 1.0);
    let across = |v: f64| LEFT + (((v.log10() - first) / (last - first)).clamp(0.0, 1.0) * f64::from(ACROSS)) as i32;
    let bottom = TOP + bars.rows.len() as i32 * row_height(bars);
    for power in first as i32..=last as i32 {
        let x = across(10f64.powi(power));
        area.draw(&PathElement::new([(x, TOP), (x, bottom)], GRID))?;
        area.draw_text(&amount(10f64.powi(power)), &text(14, FAINT, HPos::Center, VPos::Top), (x, bottom + 8))?;
    }
    for (i, (name, values)) in bars.rows.iter().enumerate() {
        let y = TOP + i as i32 * row_height(bars) + GAP / 2;
        let middle = y + bars.series.len() as i32 * BAR / 2;
        area.draw_text(&short(name, 32), &text(16, INK, HPos::Right, VPos::Center), (LEFT - 12, middle))?;
        for (j, value) in values.iter().copied().enumerate().filter(|(_, v)| v.is_finite() && *v > 0.0) {
            let (top, end) = (y + j as i32 * BAR, across(value));
            area.draw(&Rectangle::new([(LEFT, top + 2), (end, top + BAR - 2)], COLOURS[j % COLOURS.len()].filled()))?;
            area.draw_text(&amount(value), &text(15, INK, HPos::Left, VPos::Center), (end + 8, top + BAR / 2))?;
        }
    }
    Ok(())
}

/// A number as people read it: 950, 12.3 k, 4.56 M.
fn amount(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 999_500.0 => (v / 1e6, " M"),
        v if v >= 9_995.0 => (v / 1e3, " k"),
        v => return format!("{v:.0}"),
    };
    let digits = if scaled >= 100.0 { 0 } else { 1 };
    let text = format!("{scaled:.digits$}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let said: Vec<String> = [7.0, 950.4, 9_000.0, 12_345.0, 100_000.0, 1e6, 4.56e6].map(amount).to_vec();
        assert_eq!(said, ["7", "950", "9000", "12.3 k", "100 k", "1 M", "4.6 M"]);
    }

    #[test]
    fn drawn_whatever_the_numbers() {
        for values in [vec![], vec![0.5], vec![76_000.0, 3_500.0], vec![f64::NAN, 0.0], vec![1.0, 1e12]] {
            let rows = vec![
                ("one core".to_string(), values.clone()),
                ("a GPU of a long, long name indeed".to_string(), values),
            ];
            let series = vec!["fully connected".to_string(), "convolutional".to_string()];
            let file = bars(&Bars { about: "images a second".to_string(), series, rows }).unwrap();
            assert!(file.starts_with(b"\x89PNG"));
            if let Ok(folder) = std::env::var("NEURONA_KEEP_PICTURES") {
                std::fs::write(format!("{folder}/bars-{}.png", file.len()), file).unwrap();
            }
        }
    }
}
