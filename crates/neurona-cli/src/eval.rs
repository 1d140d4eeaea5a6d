//! `neurona eval`: how well a model does on images.

use crate::device::{self, Computing};
use crate::failure::{Failure, Outcome, say};
use crate::pipeline::{self, Parts};
use crate::results::Results;
use crate::run::{Mistakes, write_story};
use crate::{config, flags};
use crate::{judge, model_file};
use clap::ValueEnum;
use neurona::data::Dataset;
use neurona::data::sets::Opened;
use neurona::models::Card;
use neurona::train::{RunDir, evaluate};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Judges a model by images with known classes: accuracy over all and of each class, and what it confuses.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona eval runs/cifar10-1
  neurona eval model.safetensors path/to/folder --split all
  neurona eval runs/cifar10-1 --output judged")]
pub struct Args {
    /// A model file, or the folder of a run.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// A folder of images, or a set's name [default: the data that the run was trained on].
    #[arg(value_name = "DATA")]
    data: Option<String>,
    /// Which part of the data [default: test; where there is none, the run's validation images, or all of other data].
    #[arg(long, value_name = "PART")]
    split: Option<Part>,
    /// A folder for results.json, confusion.csv, pictures and report.html.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Leave out images that cannot be read, and count them, instead of stopping.
    #[arg(long)]
    skip_bad_images: bool,
    /// Threads that read images.
    #[arg(long, value_name = "N", default_value = "2", value_parser = flags::workers)]
    workers: usize,
    #[command(flatten)]
    computing: Computing,
    /// One JSON object instead of words.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The training images.
    Train,
    /// Those for validation.
    Val,
    /// Those for the final figures.
    Test,
    /// Everything there is: training, validation and test images.
    All,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let device = args.computing.begin()?;
    let (net, card) = model_file::open(&args.model)?;
    net.to_device(device)?;
    let (part, data) = images(args, &card)?;
    let loader = pipeline::plain_loader(&data, &card, args.workers, args.skip_bad_images)?;
    let results = judge::results(&evaluate(&net, &loader)?, data.as_ref(), &part.to_string());
    match args.json {
        true => say(results.json()?.trim_end())?,
        false => {
            say(report(&results, loader.skipped().len()).trim_end())?;
            say(format!("Computed on {}", device::describe(device)))?;
        }
    }
    let Some(output) = &args.output else { return Ok(()) };
    std::fs::create_dir_all(output).map_err(|e| Failure::file("make the folder", output, e))?;
    let folder = RunDir::open(output)?;
    folder.write("results.json", results.json()?)?;
    folder.write("confusion.csv", results.confusion_csv())?;
    Mistakes::keep(&folder, &results, data.as_ref())?;
    write_story(&folder, &results)?;
    if !args.json {
        say(format!("Saved in {}: results.json, confusion.csv, pictures, report.html", output.display()))?;
    }
    Ok(())
}

fn report(results: &Results, skipped: usize) -> String {
    let mut text = judge::summary(results);
    text += &format!(
        "Loss {:.4}, F1 {:.1} %, top 5 {:.1} %, calibration error {:.1} %\n",
        results.loss,
        100.0 * results.mean.f1,
        100.0 * results.top5,
        100.0 * results.calibration.error
    );
    if skipped > 0 {
        text += &format!("{skipped} images could not be read and were left out\n");
    }
    text
}

/// The images that were asked for, whose classes must be the model's.
fn images(args: &Args, card: &Card) -> Outcome<(Part, Arc<dyn Dataset>)> {
    let saved = args.model.join("config.toml");
    let settings = if args.model.is_dir() && saved.is_file() { Some(config::read(&saved)?) } else { None };
    let name = match (&args.data, settings.as_ref().and_then(|s| s.data.clone())) {
        (Some(data), _) => data.clone(),
        (None, Some(data)) => data,
        (None, None) => {
            let problem = "which images? Give a folder or a set's name after the model";
            return Err(Failure::Usage(problem.to_string()));
        }
    };
    let opened = pipeline::open(&name)?;
    let own_data = args.data.is_none();
    let (part, data) = part_of(args.split, &opened, || Parts::new(&opened, &settings.unwrap_or_default()), own_data)?;
    match data.classes() == card.classes {
        true => Ok((part, data)),
        false => Err(Failure::Told(format!(
            "{name} has the classes {}, but the model tells apart {}",
            list(data.classes()),
            list(&card.classes)
        ))),
    }
}

fn list(classes: &[String]) -> String {
    match classes.len() {
        n @ 9.. => format!("{} and {} more", classes[..8].join(", "), n - 8),
        _ => classes.join(", "),
    }
}

/// Parts as they were when the run was trained, where the run is known; else as the data has them.
fn part_of(
    asked: Option<Part>,
    opened: &Opened,
    parts: impl FnOnce() -> Outcome<Parts>,
    own_data: bool,
) -> Outcome<(Part, Arc<dyn Dataset>)> {
    let missing =
        |what: &str| Failure::Usage(format!("the data has no {what} images; --split all takes what there is"));
    Ok(match asked {
        Some(Part::All) => (Part::All, pipeline::everything(opened)),
        Some(Part::Train) if own_data => (Part::Train, parts()?.train),
        Some(Part::Train) => (Part::Train, opened.train.clone()),
        Some(Part::Val) if own_data => (Part::Val, parts()?.val),
        Some(Part::Val) => (Part::Val, opened.val.clone().ok_or_else(|| missing("validation"))?),
        Some(Part::Test) => (Part::Test, opened.test.clone().ok_or_else(|| missing("test"))?),
        None => match &opened.test {
            Some(test) => (Part::Test, test.clone()),
            None if own_data => (Part::Val, parts()?.val),
            None => (Part::All, pipeline::everything(opened)),
        },
    })
}
