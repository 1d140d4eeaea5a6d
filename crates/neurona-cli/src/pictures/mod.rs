//! The pictures of a run, as PNG files. They are drawn from plain data: [`Results`], [`Epoch`]s and [`Filters`].

mod bars;
mod canvas;
mod classes;
mod confusion;
mod curves;
mod filters;
mod mistakes;

pub use bars::{Bars, bars};
pub use canvas::Picture;
pub use filters::Filters;

use crate::failure::{Failure, Outcome};
use crate::results::Results;
use crate::run::Epoch;
use canvas::{Area, Drawn};

/// What pictures are drawn from.
pub struct Story<'a> {
    /// The epochs.
    pub history: &'a [Epoch],
    /// The final evaluation.
    pub results: &'a Results,
    /// The images of the mistakes, as far as they are at hand.
    pub images: &'a [Option<Picture>],
    /// The first layer, when it is a convolution.
    pub filters: Option<&'a Filters>,
}

/// All pictures as PNG files, each with its name.
pub fn all(story: &Story<'_>) -> Outcome<Vec<(&'static str, Vec<u8>)>> {
    let Story { history, results, images, filters } = story;
    let (mut pictures, mut add) = (Vec::new(), Vec::<(&'static str, Drawn<Picture>)>::new());
    let paint =
        |(width, height): (usize, usize), draw: &dyn Fn(&Area<'_>) -> Drawn| Picture::paint(width, height, draw);
    if !history.is_empty() {
        add.push(("curves.png", paint((1800, 560), &|area| three_curves(area, history))));
        add.push(("result.png", paint((1800, 890), &|area| overview(area, story))));
    }
    add.push(("confusion.png", paint(confusion::size(results), &|area| confusion::draw(area, results))));
    add.push(("classes.png", paint(classes::size(results), &|area| classes::draw(area, results))));
    let grid = mistakes::size(results.mistakes.len());
    add.push(("mistakes.png", paint(grid, &|area| mistakes::draw(area, results, images))));
    if let Some(filters) = filters {
        let filters = filters.pictures();
        add.push(("filters.png", paint(filters::size(filters.len()), &|area| filters::draw(area, &filters))));
    }
    for (name, picture) in add {
        let file = picture.and_then(|p| p.png()).map_err(|e| Failure::Told(format!("cannot draw {name}: {e}")))?;
        pictures.push((name, file));
    }
    Ok(pictures)
}

fn three_curves(area: &Area<'_>, history: &[Epoch]) -> Drawn {
    let (loss, rest) = area.split_horizontally(600);
    let (accuracy, rate) = rest.split_horizontally(600);
    curves::loss(&loss, history)?;
    curves::accuracy(&accuracy, history)?;
    curves::learning_rate(&rate, history)
}

/// Everything at a glance: how it learned, what it confuses, where it is wrong.
fn overview(area: &Area<'_>, story: &Story<'_>) -> Drawn {
    let (above, below) = area.split_vertically(650);
    let (charts, matrix) = above.split_horizontally(1120);
    let (loss, accuracy) = charts.split_horizontally(560);
    curves::loss(&loss, story.history)?;
    curves::accuracy(&accuracy, story.history)?;
    confusion::draw_within(&matrix, story.results)?;
    mistakes::row(&below, story.results, story.images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;
    use crate::run::history::tests::epochs;

    #[test]
    fn every_picture_is_drawn_whatever_the_sizes() {
        let filters = Filters { shape: [5, 3, 3, 3], weights: (0..135).map(|i| (i as f32).sin()).collect() };
        for (classes, length) in [(1, 0), (2, 1), (10, 12), (100, 300), (700, 2)] {
            let (history, results) = (epochs(length), sample(classes));
            let image = Picture { width: 28, height: 20, rgb: vec![90; 28 * 20 * 3] };
            let images: Vec<_> = (0..24).map(|i| (i % 3 > 0).then(|| image.clone())).collect();
            let story = Story { history: &history, results: &results, images: &images, filters: Some(&filters) };
            let pictures = all(&story).unwrap();
            assert_eq!(pictures.len(), if length == 0 { 4 } else { 6 });
            for (name, file) in pictures {
                assert!(file.starts_with(b"\x89PNG") && file.len() > 2000, "{name}");
                if let Ok(folder) = std::env::var("NEURONA_KEEP_PICTURES") {
                    std::fs::write(format!("{folder}/{classes}-{name}"), file).unwrap();
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_none_are_left_out() {
        let mut history = epochs(4);
        history[2].val_loss = f64::NAN;
        history[1].train_loss = f64::INFINITY;
        let results = sample(3);
        all(&Story { history: &history, results: &results, images: &[], filters: None }).unwrap();
    }

    #[test]
    fn a_filter_of_zeros_is_grey() {
        let filters = Filters { shape: [1, 1, 2, 2], weights: vec![0.0; 4] };
        assert_eq!(filters.pictures()[0].rgb, [127; 12]);
        assert_eq!(Filters { shape: [0, 1, 0, 2], weights: vec![] }.pictures(), []);
    }
}
