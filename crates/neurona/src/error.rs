//! What can go wrong, as data: a message says what was attempted, where, with what, and what to do.

use crate::module_name::ModuleName;
use crate::tensor::{DType, Shape};
use std::fmt;
use std::panic::Location;
use std::path::PathBuf;

/// The result of everything in Neurona that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op was given operands or options that do not fit together.
    #[error("{0}")]
    Op(Box<OpError>),

    /// The device is not there.
    #[error("device '{asked}' is not available; available: {}", available.join(", "))]
    Device {
        /// What was asked for.
        asked: String,
        /// What there is.
        available: Vec<String>,
    },

    /// A state dict and a model do not match.
    #[error("{}", describe_keys(missing, unexpected, mismatched))]
    StateDict {
        /// In the model, not in the state dict.
        missing: Vec<String>,
        /// In the state dict, not in the model.
        unexpected: Vec<String>,
        /// In both, with different shapes: name, shape in the model, shape in the state dict.
        mismatched: Vec<(String, Shape, Shape)>,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was attempted: "read", "write", …
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A file is there but does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// Something could not be fetched from the network.
    #[error("cannot download {url}: {problem}")]
    Download {
        /// The address.
        url: String,
        /// What went wrong, and what to do.
        problem: String,
    },

    /// The check for NaN and infinity found one.
    #[error("{op}{place} produced {count} values that are NaN or infinite, the first at index {first} ({value}){}", place.line())]
    NotFinite {
        /// The op that produced it first.
        op: String,
        /// Where it stands in the model and in the program.
        place: Place,
        /// How many values.
        count: usize,
        /// Flat index of the first.
        first: usize,
        /// The first.
        value: f64,
    },

    /// Training went astray.
    #[error("the loss became {loss} in epoch {epoch}, step {step}; try a lower learning rate")]
    Diverged {
        /// The loss: NaN or infinite.
        loss: f64,
        /// The epoch; the first is 1.
        epoch: usize,
        /// The batch in the epoch; the first is 1.
        step: usize,
    },

    /// The GPU, its driver or its compiler refused something.
    #[error("cannot {what}: {problem}")]
    Cuda {
        /// What was attempted, with the kernel and the op where there is one.
        what: String,
        /// What the driver said.
        problem: String,
    },

    /// The GPU's memory is full.
    #[error("the GPU is out of memory: {} were asked for, {} of {} are free{}{advice}", size(*asked), size(*free), size(*total), describe_largest(largest))]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes free.
        free: usize,
        /// Bytes of the GPU.
        total: usize,
        /// The largest tensors of the plan: op, place and shape, bytes.
        largest: Vec<(String, usize)>,
        /// What to do.
        advice: String,
    },

    /// An option has a value that it cannot have.
    #[error("{0}")]
    Argument(String),
}

/// An op that could not be built: which, where, why and with what.
#[derive(Debug)]
pub struct OpError {
    /// The op's name, as in `conv2d`.
    pub op: &'static str,
    /// What does not fit.
    pub problem: String,
    /// The operands by role.
    pub operands: Vec<(&'static str, Shape, DType)>,
    /// Where it was called.
    pub place: Place,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.op, self.place, self.problem)?;
        let mixed = self.operands.windows(2).any(|w| w[0].2 != w[1].2);
        for (i, (role, shape, dtype)) in self.operands.iter().enumerate() {
            let open = if i == 0 { " (" } else { ", " };
            write!(f, "{open}{role} {shape}")?;
            if mixed {
                write!(f, " {dtype}")?;
            }
        }
        if !self.operands.is_empty() {
            f.write_str(")")?;
        }
        f.write_str(&self.place.line())
    }
}

/// Where an op stands: in the model, and in the program that called it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The module.
    pub module: Option<ModuleName>,
    /// The line of the program.
    pub caller: Option<&'static Location<'static>>,
}

impl Place {
    /// ` (called at src/main.rs:12:9)`, or nothing.
    pub fn line(&self) -> String {
        self.caller.map_or_else(String::new, |l| format!(" (called at {}:{}:{})", l.file(), l.line(), l.column()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.module {
            Some(path) if !path.is_empty() => write!(f, " at {path}"),
            _ => Ok(()),
        }
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl Error {
    /// An op error without operands; the place is filled in where the op was called.
    pub(crate) fn op(op: &'static str, problem: impl Into<String>) -> Self {
        Error::operands(op, problem, &[])
    }

    /// An op error that names its operands by role.
    pub(crate) fn operands(
        op: &'static str,
        problem: impl Into<String>,
        operands: &[(&'static str, &crate::tensor::Meta)],
    ) -> Self {
        let operands = operands.iter().map(|(role, m)| (*role, m.shape.clone(), m.dtype)).collect();
        Error::Op(Box::new(OpError { op, problem: problem.into(), operands, place: Place::default() }))
    }

    /// The same error, with its place when it had none.
    pub(crate) fn at(mut self, place: Place) -> Self {
        if let Error::Op(e) = &mut self
            && e.place.caller.is_none()
        {
            e.place = place;
        }
        self
    }
}

/// Bytes as people read them.
fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn describe_largest(largest: &[(String, usize)]) -> String {
    match largest {
        [] => String::new(),
        list => {
            let list: Vec<String> = list.iter().map(|(what, bytes)| format!("{what} ({})", size(*bytes))).collect();
            format!("; the largest tensors: {}", list.join(", "))
        }
    }
}

fn describe_keys(missing: &[String], unexpected: &[String], mismatched: &[(String, Shape, Shape)]) -> String {
    let mut text = String::from("the state dict does not fit the model");
    let mut list = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            text += &format!("; {title}: {}", items.join(", "));
        }
    };
    list("missing", missing.to_vec());
    list("unexpected", unexpected.to_vec());
    list(
        "of another shape",
        mismatched.iter().map(|(n, want, got)| format!("{n} (model {want}, file {got})")).collect(),
    );
    text
}
