//! Loss, accuracy and learning rate over the epochs.

use super::canvas::{Area, BLUE, Drawn, GREEN, GRID, INK, VERMILLION};
use crate::run::Epoch;
use plotters::prelude::*;
use std::ops::Range;

/// A line of a chart: its name, its colour and how to read it from an epoch.
type Curve = (&'static str, RGBColor, fn(&Epoch) -> f64);

/// What a chart shows besides its curves.
struct Frame {
    title: &'static str,
    range: Range<f64>,
    decimals: usize,
    legend: SeriesLabelPosition,
}

/// The loss of training and validation.
pub fn loss(area: &Area<'_>, history: &[Epoch]) -> Drawn {
    let curves: [Curve; 2] = [("training", BLUE, |e| e.train_loss), ("validation", VERMILLION, |e| e.val_loss)];
    let range = 0.0..highest(history, &curves) * 1.05;
    chart(area, Frame { title: "Loss", range, decimals: 2, legend: SeriesLabelPosition::UpperRight }, history, &curves)
}

/// The accuracy of training and validation.
pub fn accuracy(area: &Area<'_>, history: &[Epoch]) -> Drawn {
    let curves: [Curve; 2] =
        [("training", BLUE, |e| 100.0 * e.train_accuracy), ("validation", VERMILLION, |e| 100.0 * e.val_accuracy)];
    let values = history.iter().flat_map(|e| [e.train_accuracy, e.val_accuracy]).filter(|v| v.is_finite());
    let floor = (values.fold(1.0, f64::min) * 10.0).floor() * 10.0;
    let range = floor.clamp(0.0, 90.0)..100.0;
    let frame = Frame { title: "Accuracy in %", range, decimals: 0, legend: SeriesLabelPosition::LowerRight };
    chart(area, frame, history, &curves)
}

/// The learning rate at the end of each epoch.
pub fn learning_rate(area: &Area<'_>, history: &[Epoch]) -> Drawn {
    let curves: [Curve; 1] = [("learning rate", GREEN, |e| e.lr)];
    let top = highest(history, &curves);
    let decimals = (1.0 - top.log10()).ceil().clamp(1.0, 7.0) as usize;
    let legend = SeriesLabelPosition::UpperRight;
    chart(area, Frame { title: "Learning rate", range: 0.0..top * 1.05, decimals, legend }, history, &curves)
}

fn highest(history: &[Epoch], curves: &[Curve]) -> f64 {
    let values = history.iter().flat_map(|e| curves.iter().map(|c| c.2(e))).filter(|v| v.is_finite());
    values.fold(0.0, f64::max).max(1e-6)
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
        .y_label_area_size(62)
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
        let points = || history.iter().map(|e| (e.epoch as f64, value(e))).filter(|(_, y)| y.is_finite());
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(3)))?
            .label(*name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 26, y)], colour.stroke_width(3)));
        if history.len() <= 60 {
            chart.draw_series(points().map(|point| Circle::new(point, 4, colour.filled())))?;
        }
    }
    if curves.len() > 1 {
        chart
            .configure_series_labels()
            .position(frame.legend)
            .margin(14)
            .legend_area_size(34)
            .label_font(font(18))
            .background_style(WHITE.mix(0.85))
            .border_style(GRID)
            .draw()?;
    }
    Ok(())
}
