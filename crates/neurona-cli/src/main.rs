//! The `neurona` command.

mod bench;
mod completions;
mod config;
mod convert;
mod data;
mod device;
mod doctor;
mod eval;
mod export;
mod failure;
mod flags;
mod inspect;
mod judge;
mod model_file;
mod pictures;
mod pipeline;
mod predict;
mod rebuild;
mod report;
mod results;
mod run;
mod summary;
mod together;
mod train;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use std::time::Instant;

/// Trains, evaluates and uses image classifiers.
#[derive(Parser)]
#[command(
    name = "neurona",
    version,
    arg_required_else_help = true,
    after_help = "\
Example:
  neurona train                      trains on the images that are built in and says how well it went
  neurona train path/to/folder       trains on a folder that has a folder of images for each class
  neurona predict runs/folder-1 photo.jpg"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<train::Args>),
    Eval(eval::Args),
    Predict(predict::Args),
    Report(rebuild::Args),
    Summary(summary::Args),
    Data(data::Args),
    Export(export::Args),
    Convert(convert::Args),
    Inspect(inspect::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let begun = Instant::now();
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Report(args) => rebuild::run(&args),
        Command::Summary(args) => summary::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Bench(args) => bench::run(&args, begun),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
