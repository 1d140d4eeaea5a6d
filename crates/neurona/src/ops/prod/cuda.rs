//! Products of all other elements on GPUs.

use crate::Result;
use crate::cuda::cut::Module;
use crate::cuda::kernel::Argument::{I64, Input, Output, Workspace};
use crate::cuda::kernel::{Grid, Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::ops::cumsum::cuda::{alone, block};
use crate::tensor::Meta;

static SOURCE: Source = Source::embedded("prod_others.cu", include_str!("prod_others.cu"));

pub(super) fn kernel(x: &Meta, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (rows, size) = (x.shape[0], x.shape[1]);
    let module = Module::new(gpu, &SOURCE).of("ELEMENT", x.dtype);
    // Products of what is before wait in the result, unless they do not fit there.
    let wide = x.dtype.compute();
    let (before, workspace) = if wide == x.dtype { (Output(0), 0) } else { (Workspace(0), rows * size * wide.size()) };
    let mut arguments = vec![Input(0), before, Output(0)];
    let launch = if alone(rows, size) {
        arguments.extend([I64(rows as i64), I64(size as i64)]);
        module.launch("prod_others_rows", Grid::over(rows), arguments)?
    } else {
        arguments.push(I64(size as i64));
        module.launch("prod_others_row", Grid::line(rows, block(size)), arguments)?
    };
    Ok(Box::new(Launches { launches: vec![launch], workspace, flops: 3 * (rows * size) as u64 }))
}
