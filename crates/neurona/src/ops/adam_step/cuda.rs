//! Adam and AdamW over all parameters of a model at once, on GPUs.

use super::Options;
use crate::cuda::Source;
use crate::ops::sweep::cuda::Step;

const SOURCE: Source = Source::embedded("adam_step.cu", include_str!("adam_step.cu"));

/// The kernel of a step with these options.
pub(super) fn step(options: Options) -> Step {
    let Options { amsgrad, decoupled, maximize } = options;
    Step {
        source: SOURCE,
        function: "adam_step",
        flags: vec![("AMSGRAD", amsgrad), ("DECOUPLED", decoupled), ("MAXIMIZE", maximize)],
    }
}
