//! `neurona train`: from images to a classifier, with everything about it in one folder.

mod finish;
mod optimizer;
mod progress;
mod resume;
mod session;

use crate::config::{self, Choice, Settings};
use crate::device;
use crate::failure::{Failure, Outcome, say};
use crate::pipeline::{self, Parts};
use crate::run::environment;
use neurona::data::sets::Opened;
use neurona::train::RunDir;
use session::Session;
use std::path::PathBuf;

/// Trains a network on images, and says how well it went.
///
/// DATA is a folder that has a folder of images for each class (or train, val and test folders of such folders), or
/// one of cifar10, cifar100, mnist, fashion-mnist, which `neurona data get` fetches. Without it, 5,000 images of
/// Fashion-MNIST are used, which are built in.
///
/// What is not said is chosen by the data, and each choice is printed. Everything goes to a new folder: settings,
/// metrics, checkpoints, the model, pictures and report.html. The same settings give the same model, whatever the
/// number of threads. Control-C saves the run, and --resume goes on with it.
#[derive(clap::Args)]
#[command(
    allow_negative_numbers = true,
    // A script's defaults can be overridden at the end of its line.
    args_override_self = true,
    after_help = "\
Example:
  neurona train
  neurona train path/to/folder
  neurona train cifar10 --model resnet18 --epochs 30 --device auto
  neurona train --config runs/cifar10-1/config.toml --lr 0.05
  neurona train --resume runs/cifar10-1"
)]
pub struct Args {
    /// What to learn from.
    #[arg(value_name = "DATA", conflicts_with = "data")]
    place: Option<String>,
    /// Settings from a file: keys are the flags below; flags go over it.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    config: Option<PathBuf>,
    /// Go on with a run: its folder, or one of its checkpoints.
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let mut asked = args.settings.clone();
    asked.data = asked.data.or_else(|| args.place.clone());
    if let Some(what) = &args.resume {
        return resume::run(what, &asked);
    }
    if let Some(file) = &args.config {
        asked = config::merge(&config::read(file)?, &asked)?;
    }
    apply_threads(asked.threads);
    // First of all: training for minutes and then not being able to save would be a pity.
    let early = asked.data.clone().unwrap_or_else(|| "embedded".to_string());
    let opened = pipeline::open(&early)?;
    asked.data = Some(pipeline::lasting_name(&early));
    asked.weights = asked.weights.as_deref().map(pipeline::absolute);
    let parts = Parts::new(&opened, &asked)?;
    let (config, choices) = config::choose(asked, &pipeline::facts(&opened, &parts)?)?;
    if args.settings.momentum.is_some() && !config.opt.has_momentum() {
        return Err(Failure::Usage(format!("--momentum has no effect on {}; leave it out", config.opt)));
    }
    let session = Session::new(&opened, parts, config)?;
    session.take_weights()?;
    let folder = RunDir::create(&session.config.output, &session.config.name)?;
    folder.write("config.toml", config::write(&session.config)?)?;
    folder.write("environment.json", format!("{:#}\n", environment(session.device)))?;
    introduce(&opened, &session, &choices)?;
    session.train(&folder, None)
}

/// Computes on as many threads as asked.
fn apply_threads(threads: Option<usize>) {
    if let Some(threads) = threads {
        neurona::set_num_threads(threads);
    }
}

/// Says what will be done, and what was chosen why.
fn introduce(opened: &Opened, session: &Session, choices: &[Choice]) -> Outcome {
    let parts = &session.parts;
    let test = parts.test.as_ref().map_or(String::new(), |test| format!(", {} test", test.len()));
    say(format!(
        "{}: {} training, {} validation{test} images of {} classes",
        opened.name,
        parts.train.len(),
        parts.val.len(),
        opened.train.classes().len()
    ))?;
    if opened.ignored > 0 {
        say(format!("  {} files that are no images were left out", opened.ignored))?;
    }
    let (model, place) = (&session.config.model, device::describe(session.device));
    say(format!("{model}: {} parameters, on {place}", session.parameters()))?;
    if !choices.is_empty() {
        say("Chosen (a flag of that name changes it):")?;
    }
    let width = |text: fn(&Choice) -> &str| choices.iter().map(|c| text(c).len()).max().unwrap_or(0);
    let (keys, values) = (width(|c| c.key), width(|c| &c.value));
    choices.iter().try_for_each(|c| say(format!("  --{:<keys$} {:<values$}  {}", c.key, c.value, c.reason)))
}

/// What can be told of a broken run.
fn told(error: neurona::Error) -> Failure {
    match error {
        neurona::Error::Diverged { loss, epoch, step } => Failure::Told(format!(
            "the loss became {loss} in epoch {epoch}, step {step}; try a smaller --lr, or --clip-grad 1"
        )),
        other => other.into(),
    }
}
