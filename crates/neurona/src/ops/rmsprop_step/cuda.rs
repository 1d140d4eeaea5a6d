//! RMSprop over all parameters of a model at once, on GPUs.

use super::Options;
use crate::cuda::Source;
use crate::ops::sweep::cuda::Step;

const SOURCE: Source = Source::embedded("rmsprop_step.cu", include_str!("rmsprop_step.cu"));

/// The kernel of a step with these options.
pub(super) fn step(options: Options) -> Step {
    let Options { centered, momentum, maximize } = options;
    Step {
        source: SOURCE,
        function: "rmsprop_step",
        flags: vec![("CENTERED", centered), ("MOMENTUM", momentum), ("MAXIMIZE", maximize)],
    }
}
