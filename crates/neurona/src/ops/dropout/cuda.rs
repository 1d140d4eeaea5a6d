//! Dropout on GPUs.

use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::tensor::Meta;

const SOURCE: Source = Source::embedded("dropout.cu", include_str!("dropout.cu"));

/// Inputs: x, the key, the probability. Output: x with some elements zeroed.
pub(super) fn dropout(x: &Meta, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let count = x.shape.numel();
    if count == 0 {
        return Ok(Box::new(Launches::default()));
    }
    let launch = Launch {
        function: gpu.function(&SOURCE, "dropout", &[("ELEMENT", cuda_type(x.dtype).into())])?,
        grid: Grid::over(count.div_ceil(16 / x.dtype.size())),
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            Argument::Input(2),
            Argument::Output(0),
            Argument::I64(count as i64),
        ],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}
