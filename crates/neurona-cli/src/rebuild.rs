//! `neurona report`: a run's pictures and page, made again.

use crate::failure::{Failure, Outcome, say};
use crate::results::Results;
use crate::run::write_story;
use neurona::train::RunDir;
use std::path::PathBuf;

/// Draws a run's pictures and its report.html again, from its results.json, metrics.csv and model.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona report runs/cifar10-1")]
pub struct Args {
    /// The folder of the run.
    #[arg(value_name = "RUN")]
    run: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let results = args.run.join("results.json");
    if !results.is_file() {
        let problem = "has no results.json: it is not the folder of a run that ended";
        return Err(Failure::Usage(format!("{}: {problem}", args.run.display())));
    }
    let folder = RunDir::open(&args.run)?;
    write_story(&folder, &Results::read(&results)?)?;
    say(format!("Written: {}", args.run.join("report.html").display()))
}
