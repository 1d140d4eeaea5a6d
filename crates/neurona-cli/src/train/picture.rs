//! One picture of a run: loss, accuracy, and the confusion matrix.

use super::evaluate::Confusion;
use super::report::Epoch;
use crate::failure::{Failure, Outcome};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, register_font};
use std::ops::Range;
use std::path::Path;

/// Our own font: machines that train often have none.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-Latin.ttf");

const SIZE: (u32, u32) = (1800, 620);
const TRAIN: RGBColor = RGBColor(31, 119, 180);
const TEST: RGBColor = RGBColor(214, 90, 14);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line of a chart: its name, its colour and how to read it from an epoch.
type Curve = (&'static str, RGBColor, fn(&Epoch) -> f64);

/// What a chart shows besides its curves.
struct Frame {
    title: &'static str,
    range: Range<f64>,
    decimals: usize,
    legend: SeriesLabelPosition,
}

/// Draws the picture into a PNG file.
pub fn draw(path: &Path, history: &[Epoch], confusion: &Confusion, classes: &[String]) -> Outcome {
    paint(path, history, confusion, classes).map_err(|e| Failure::file("draw", path, e))
}

fn paint(path: &Path, history: &[Epoch], confusion: &Confusion, classes: &[String]) -> Drawn {
    register_font("sans-serif", FontStyle::Normal, FONT).map_err(|_| "the built-in font is damaged")?;
    let root = BitMapBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (curves, matrix) = root.split_horizontally(1120);
    let (loss, accuracy) = curves.split_horizontally(560);

    let highest = history.iter().flat_map(|e| [e.train_loss, e.test_loss]).fold(0.0, f64::max);
    let curves: [Curve; 2] = [("training", TRAIN, |e| e.train_loss), ("test", TEST, |e| e.test_loss)];
    let range = 0.0..highest.max(1e-3) * 1.05;
    let frame = Frame { title: "Loss", range, decimals: 2, legend: SeriesLabelPosition::UpperRight };
    chart(&loss, frame, history, &curves)?;

    let lowest = history.iter().flat_map(|e| [e.train_accuracy, e.test_accuracy]).fold(1.0, f64::min);
    let floor = (lowest * 10.0).floor() * 10.0;
    let curves: [Curve; 2] =
        [("training", TRAIN, |e| 100.0 * e.train_accuracy), ("test", TEST, |e| 100.0 * e.test_accuracy)];
    let range = floor.min(90.0)..100.0;
    let frame = Frame { title: "Accuracy in %", range, decimals: 0, legend: SeriesLabelPosition::LowerRight };
    chart(&accuracy, frame, history, &curves)?;

    matrix_of(&matrix, confusion, classes)?;
    root.present()?;
    Ok(())
}

fn chart(area: &Area<'_>, frame: Frame, history: &[Epoch], curves: &[Curve]) -> Drawn {
    let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let last = history.len() as f64;
    // A single epoch is a point, in the middle.
    let across = if history.len() > 1 { 1.0..last } else { 0.0..2.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(frame.title, font(24))
        .margin(18)
        .margin_right(28)
        .x_label_area_size(52)
        .y_label_area_size(58)
        .build_cartesian_2d(across, frame.range)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(font(17))
        .axis_desc_style(font(18))
        .x_desc("epoch")
        .x_labels(history.len().clamp(3, 11))
        .x_label_formatter(&|x| {
            if x.fract() == 0.0 && (1.0..=last).contains(x) { format!("{x:.0}") } else { String::new() }
        })
        .y_labels(8)
        .y_label_formatter(&|y| format!("{y:.*}", frame.decimals))
        .draw()?;
    for (name, colour, value) in curves {
        let points = || history.iter().map(|e| (e.epoch as f64, value(e)));
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(3)))?
            .label(*name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 26, y)], colour.stroke_width(3)));
        chart.draw_series(points().map(|point| Circle::new(point, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(frame.legend)
        .margin(14)
        .legend_area_size(34)
        .label_font(font(18))
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .draw()?;
    Ok(())
}

fn matrix_of(area: &Area<'_>, confusion: &Confusion, classes: &[String]) -> Drawn {
    let n = classes.len() as i32;
    let (left, top, cell) = (140, 62, 430 / n.max(1));
    let middle = left + n * cell / 2;
    let title = format!("Test images: {:.1} % recognised", 100.0 * confusion.accuracy());
    area.draw_text(&title, &text(24, INK, HPos::Center, VPos::Top), (middle, 18))?;

    for (class, guesses) in confusion.counts.iter().enumerate() {
        let y = top + class as i32 * cell;
        area.draw_text(&classes[class], &text(16, INK, HPos::Right, VPos::Center), (left - 10, y + cell / 2))?;
        for (guess, count) in guesses.iter().enumerate() {
            let x = left + guess as i32 * cell;
            let share = *count as f64 / confusion.total(class).max(1) as f64;
            let hue = if class == guess { TRAIN } else { TEST };
            area.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], tint(hue, share).filled()))?;
            area.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], GRID))?;
            if *count > 0 {
                let colour = if share > 0.5 { WHITE } else { INK };
                let style = text(15, colour, HPos::Center, VPos::Center);
                area.draw_text(&count.to_string(), &style, (x + cell / 2, y + cell / 2))?;
            }
        }
    }
    let below = top + n * cell;
    for (class, name) in classes.iter().enumerate() {
        let style = text(16, INK, HPos::Right, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text(name, &style, (left + class as i32 * cell + cell / 2, below + 10))?;
    }
    let note = "rows: what it is; columns: what it was taken for";
    area.draw_text(note, &text(16, INK, HPos::Center, VPos::Bottom), (middle, SIZE.1 as i32 - 8))?;
    Ok(())
}

fn text(size: i32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    TextStyle { font: ("sans-serif", size).into_font(), color: colour.to_backend_color(), pos: Pos::new(h, v) }
}

/// White for nothing, the colour itself for all. The root makes single mistakes visible.
fn tint(RGBColor(r, g, b): RGBColor, share: f64) -> RGBColor {
    let mix = |c: u8| (255.0 + (c as f64 - 255.0) * share.clamp(0.0, 1.0).sqrt()) as u8;
    RGBColor(mix(r), mix(g), mix(b))
}
