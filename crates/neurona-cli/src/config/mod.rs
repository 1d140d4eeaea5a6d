//! The settings of a training run: as asked ([`Settings`]: flags over a file), and as it will run ([`Config`]: what
//! was left open is chosen, and each choice has a reason).

mod choose;
mod file;
mod names;
mod resolved;
mod settings;

pub use choose::{Choice, Facts, choose};
pub use file::{merge, pairs, read, write};
pub use names::{Augment, ClassWeights, Opt, Scheduler};
pub use resolved::Config;
pub use settings::Settings;
