//! Charts as SVG. Colours come from the page's style, so that they fit light and dark.

use crate::results::Calibration;
use crate::run::Epoch;
use serde_json::{Value, json};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// A line: its name, its class in the style, its values.
pub struct Line {
    /// What it shows.
    pub name: &'static str,
    /// Its class.
    pub class: &'static str,
    /// A value an epoch; what is not a number is a gap.
    pub values: Vec<f64>,
}

/// The chart's ids and lines, by which the script finds the values.
pub fn lines_of(history: &[Epoch]) -> [(&'static str, &'static str, &'static str, Vec<Line>); 2] {
    let line =
        |name, class, value: fn(&Epoch) -> f64| Line { name, class, values: history.iter().map(value).collect() };
    [
        (
            "loss",
            "Loss",
            "",
            vec![line("training", "train", |e| e.train_loss), line("validation", "val", |e| e.val_loss)],
        ),
        (
            "accuracy",
            "Accuracy",
            " %",
            vec![
                line("training", "train", |e| 100.0 * e.train_accuracy),
                line("validation", "val", |e| 100.0 * e.val_accuracy),
            ],
        ),
    ]
}

/// What the script needs to show values.
pub fn data(history: &[Epoch]) -> Value {
    let charts = lines_of(history).map(|(id, title, unit, lines)| {
        let (low, high) = range(&lines, unit);
        let series: Vec<Value> =
            lines.iter().map(|l| json!({ "name": l.name, "class": l.class, "values": l.values })).collect();
        json!({ "id": id, "title": title, "unit": unit, "low": low, "high": high, "series": series })
    });
    let frame = json!({ "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM });
    json!({ "epochs": history.iter().map(|e| e.epoch).collect::<Vec<_>>(), "frame": frame, "charts": charts })
}

/// Lines over the epochs.
pub fn lines(id: &str, title: &str, unit: &str, lines: &[Line], epochs: usize) -> String {
    let (low, high) = range(lines, unit);
    let (x, y) = (|i: usize| across(i, epochs), |v: f64| down(v, low, high));
    let mut svg = format!(
        "<svg class=\"chart\" id=\"chart-{id}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title} by epoch\">"
    );
    for value in ticks(low, high) {
        let (at, label) = (y(value), number(value, high - low));
        svg += &format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", WIDTH - RIGHT);
        svg += &format!(
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let step = epochs.div_ceil(10).max(1);
    for i in (0..epochs).filter(|i| (i + 1) % step == 0 || epochs <= 10) {
        let at = HEIGHT - BOTTOM + 18.0;
        svg += &format!("<text class=\"tick\" x=\"{:.1}\" y=\"{at}\" text-anchor=\"middle\">{}</text>", x(i), i + 1);
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg += &format!("<text class=\"tick\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">epoch</text>", HEIGHT - 4.0);
    for line in lines {
        let mut path = String::new();
        let mut pen = 'M';
        for (i, value) in line.values.iter().enumerate() {
            if !value.is_finite() {
                pen = 'M';
                continue;
            }
            path += &format!("{pen}{:.1} {:.1}", x(i), y(*value));
            pen = 'L';
        }
        svg += &format!("<path class=\"line {}\" d=\"{path}\"/>", line.class);
        // A line needs two points; a single epoch is a dot.
        for (i, value) in line.values.iter().enumerate().filter(|(_, v)| epochs <= 40 && v.is_finite()) {
            svg +=
                &format!("<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", line.class, x(i), y(*value));
        }
    }
    svg + "</svg>"
}

/// How sure against how right: bars that would follow the diagonal if both agreed.
pub fn reliability(calibration: &Calibration) -> String {
    let n = calibration.bins.len().max(1);
    let most = calibration.bins.iter().map(|b| b.count).max().unwrap_or(0).max(1) as f64;
    let side = WIDTH - RIGHT - LEFT;
    let (x, y) = (|share: f64| LEFT + share * side, |share: f64| down(share, 0.0, 1.0));
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Share of right answers by confidence; the table below has the figures\">"
    );
    for percent in [0, 25, 50, 75, 100] {
        let share = percent as f64 / 100.0;
        let at = y(share);
        svg += &format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", WIDTH - RIGHT);
        svg += &format!(
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            LEFT - 8.0,
            at + 4.0
        );
        let below = HEIGHT - BOTTOM + 18.0;
        svg += &format!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{percent} %</text>",
            x(share)
        );
    }
    for (i, bin) in calibration.bins.iter().enumerate().filter(|(_, b)| b.count > 0) {
        let (left, wide) = (x(i as f64 / n as f64) + 2.0, side / n as f64 - 4.0);
        let top = y(bin.accuracy.clamp(0.0, 1.0));
        // Few answers, faint bar.
        let strength = 0.35 + 0.65 * (bin.count as f64 / most).sqrt();
        svg += &format!(
            "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" opacity=\"{strength:.2}\"/>",
            (HEIGHT - BOTTOM - top).max(1.0)
        );
    }
    svg += &format!("<path class=\"ideal\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", x(0.0), y(0.0), x(1.0), y(1.0));
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg +=
        &format!("<text class=\"tick\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">confidence</text>", HEIGHT - 4.0);
    svg + "</svg>"
}

fn across(i: usize, n: usize) -> f64 {
    let part = if n > 1 { i as f64 / (n - 1) as f64 } else { 0.5 };
    LEFT + part * (WIDTH - RIGHT - LEFT)
}

fn down(value: f64, low: f64, high: f64) -> f64 {
    TOP + (high - value) / (high - low) * (HEIGHT - BOTTOM - TOP)
}

/// Round ends for the axis, whatever the values are.
fn range(lines: &[Line], unit: &str) -> (f64, f64) {
    let values = || lines.iter().flat_map(|l| l.values.iter().copied()).filter(|v| v.is_finite());
    if unit == " %" {
        let low = values().fold(100.0, f64::min);
        return (((low / 10.0).floor() * 10.0).clamp(0.0, 90.0), 100.0);
    }
    (0.0, (values().fold(0.0, f64::max) * 1.05).max(1e-6))
}

/// About five round numbers.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|v| *v <= high + step * 1e-9).take(20).collect()
}

fn number(value: f64, spread: f64) -> String {
    let decimals = (1.0 - spread.log10()).ceil().clamp(0.0, 6.0) as usize;
    format!("{value:.*}", if spread >= 10.0 { 0 } else { decimals })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(0.0, 1.05), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(50.0, 100.0), [50.0, 60.0, 70.0, 80.0, 90.0, 100.0]);
        assert!(ticks(0.0, 1e-6).len() <= 20);
        assert_eq!((number(0.5, 1.0), number(70.0, 50.0)), ("0.5".into(), "70".into()));
    }
}
