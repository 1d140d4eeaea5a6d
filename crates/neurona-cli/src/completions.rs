//! `neurona completions`: what a shell needs to complete the command's words.

use crate::failure::{Failure, Outcome};
use clap_complete::Shell;
use std::io::{self, Write};

/// Prints the script that lets a shell complete commands and flags.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona completions bash > ~/.local/share/bash-completion/completions/neurona
  neurona completions zsh > ~/.zfunc/_neurona            with fpath+=~/.zfunc before compinit
  neurona completions fish > ~/.config/fish/completions/neurona.fish")]
pub struct Args {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Runs the command, for all that `cli` knows.
pub fn run(args: &Args, mut cli: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "neurona", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyListens,
        _ => Failure::Told(format!("cannot print: {e}")),
    })
}
