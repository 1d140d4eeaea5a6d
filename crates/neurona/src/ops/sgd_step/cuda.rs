//! Stochastic gradient descent over all parameters of a model at once, on GPUs.

use super::Options;
use crate::cuda::Source;
use crate::ops::sweep::cuda::Step;

const SOURCE: Source = Source::embedded("sgd_step.cu", include_str!("sgd_step.cu"));

/// The kernel of a step with these options.
pub(super) fn step(options: Options) -> Step {
    let Options { momentum, nesterov, maximize } = options;
    Step {
        source: SOURCE,
        function: "sgd_step",
        flags: vec![("MOMENTUM", momentum), ("NESTEROV", nesterov), ("MAXIMIZE", maximize)],
    }
}
