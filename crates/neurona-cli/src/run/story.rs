//! The pictures and the page of a run, from what its folder holds.

use super::{Epoch, read_history};
use crate::config;
use crate::failure::Outcome;
use crate::pictures::{self, Filters, Picture, Story};
use crate::report::{self, Report};
use crate::results::Results;
use neurona::data::{Dataset, Image};
use neurona::io::safetensors;
use neurona::models::Card;
use neurona::train::RunDir;
use serde_json::Value;
use std::path::Path;

/// Larger images are shrunk to this many pixels a side before they are kept.
const KEPT_SIDE: usize = 160;

/// The images of the mistakes, kept as small files so that a report can be made again without the data.
pub struct Mistakes;

impl Mistakes {
    fn name(place: usize) -> String {
        format!("pictures/mistakes/{:02}.png", place + 1)
    }

    /// Keeps them. One that cannot be read any more has no picture.
    pub fn keep(run: &RunDir, results: &Results, data: &dyn Dataset) -> Outcome {
        let mut image = Image::default();
        for (place, mistake) in results.mistakes.iter().enumerate() {
            if data.read(mistake.index, &mut image).is_err() {
                continue;
            }
            let picture = Picture::of(&image);
            let small = if picture.width.max(picture.height) > KEPT_SIDE { picture.fitted(KEPT_SIDE) } else { picture };
            run.write(&Mistakes::name(place), small.png_file()?)?;
        }
        Ok(())
    }

    fn read(run: &RunDir, results: &Results) -> Vec<Option<Picture>> {
        let open = |place| Image::open(run.path().join(Mistakes::name(place))).ok();
        (0..results.mistakes.len()).map(|place| open(place).map(|image| Picture::of(&image))).collect()
    }
}

/// Draws the pictures and writes report.html, from results.json, metrics.csv and the model of the run.
pub fn write_story(run: &RunDir, results: &Results) -> Outcome {
    let metrics = run.path().join("metrics.csv");
    let history: Vec<Epoch> = if metrics.exists() { read_history(&metrics)? } else { Vec::new() };
    let images = Mistakes::read(run, results);
    let filters = first_layer(&run.path().join("model.safetensors"));
    let story = Story { history: &history, results, images: &images, filters: filters.as_ref() };
    let drawn = pictures::all(&story)?;
    for (name, file) in &drawn {
        run.write(&format!("pictures/{name}"), file)?;
    }
    let files =
        images.iter().map(|image| image.as_ref().map(Picture::png_file).transpose()).collect::<Outcome<Vec<_>>>()?;
    let name = run.path().file_name().map_or_else(|| "run".to_string(), |n| n.to_string_lossy().into_owned());
    let page = report::page(&Report {
        name: &name,
        history: &history,
        results,
        images: &files,
        filters: drawn.iter().find(|(name, _)| *name == "filters.png").map(|(_, file)| file.as_slice()),
        settings: &settings(run),
        environment: &machine(run),
    });
    Ok(run.write("report.html", page)?)
}

fn settings(run: &RunDir) -> Vec<(String, String)> {
    config::read(&run.path().join("config.toml")).map(|s| config::pairs(&s)).unwrap_or_default()
}

fn machine(run: &RunDir) -> Vec<(String, String)> {
    let text = run.read("environment.json").unwrap_or_default();
    let Ok(Value::Object(pairs)) = serde_json::from_str(&text) else { return Vec::new() };
    let words = |value: Value| match value {
        Value::String(text) => text,
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    pairs.into_iter().filter(|(_, v)| !v.is_null()).map(|(key, value)| (key, words(value))).collect()
}

/// The filters of a model file's first layer, when it has a card and the layer is a convolution.
fn first_layer(path: &Path) -> Option<Filters> {
    let (state, notes) = safetensors::load_with_metadata(path).ok()?;
    let card = Card::from_metadata(&notes).ok()??;
    let weight = state.get(&format!("{}.weight", card.spec.stem_path().ok()?))?;
    let shape: [usize; 4] = weight.shape().to_vec().try_into().ok()?;
    Some(Filters { shape, weights: weight.to_vec().ok()? })
}
