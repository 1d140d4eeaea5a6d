//! The `neurona` command.

mod bench;
mod export;
mod failure;
mod flags;
mod train;

use clap::{Parser, Subcommand};
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
    Train(train::Args),
    Bench(bench::Args),
    Export(export::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Export(args) => export::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
