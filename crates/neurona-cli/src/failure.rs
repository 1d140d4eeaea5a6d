//! What ends a command early, and lines for the user.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Something to tell the user.
    Told(String),
    /// The command was called in a way it cannot follow: exit status 2, as for flags.
    Usage(String),
    /// Control-C; what there was to say has been said.
    Interrupted,
    /// Whoever read our output has stopped reading: nothing to tell, and nobody to tell it to.
    NobodyListens,
}

/// What commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Tells the user, and gives the exit status.
    pub fn report(self) -> ExitCode {
        // Standard error may be closed as well.
        let tell = |text: String| drop(writeln!(io::stderr(), "error: {text}"));
        match self {
            Failure::Told(text) => tell(text),
            Failure::Usage(text) => {
                tell(text);
                return ExitCode::from(2);
            }
            // 128 and the signal's number, as shells have it.
            Failure::Interrupted => return ExitCode::from(130),
            Failure::NobodyListens => {}
        }
        ExitCode::FAILURE
    }

    /// A file or folder that could not be made, read or written.
    pub fn file(action: &str, path: &Path, error: impl Display) -> Self {
        Failure::Told(format!("cannot {action} {}: {error}", path.display()))
    }
}

impl From<neurona::Error> for Failure {
    fn from(error: neurona::Error) -> Self {
        Failure::Told(error.to_string())
    }
}

/// Prints a line. Unlike `println!` it does not panic when the reader has gone.
pub fn say(line: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyListens,
        _ => Failure::Told(format!("cannot print: {e}")),
    })
}
