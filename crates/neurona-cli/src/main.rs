//! The `neurona` command.

mod bench;
mod config;
mod failure;
mod flags;
mod pictures;
mod report;
mod results;
mod run;
mod completions;
mod data;
mod doctor;
mod failure;
mod flags;
mod summary;
mod train;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Trains and measures image classifiers.
#[derive(Parser)]
#[command(
    name = "neurona",
    version,
    arg_required_else_help = true,
    after_help = "\
Example:
  neurona train --epochs 5    trains on the images that are built in and says how well it went"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
    Completions(completions::Args),
    Data(data::Args),
    Doctor(doctor::Args),
    Summary(summary::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Data(args) => data::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Summary(args) => summary::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
