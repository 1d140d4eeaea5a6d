//! Layer normalisation on GPUs.

use super::{LayerNorm, LayerNormGrad, matrix};
use crate::Result;
use crate::cuda::cut::{Columns, Module, Rows};
use crate::cuda::kernel::Argument::{F64, I64, Input, Null, Output, Workspace};
use crate::cuda::kernel::{Kernel, Launches};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::Operand;

static ROWS: Source = Source::embedded("layer_norm.cu", include_str!("layer_norm.cu"));
static AFFINE: Source = Source::embedded("layer_norm_affine.cu", include_str!("layer_norm_affine.cu"));

pub(super) fn forward(op: &LayerNorm, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let x = &inputs[0].meta;
    let (rows, n) = matrix(x, op.dims);
    let cut = Rows::new(x.dtype, rows, n);
    let module = Module::new(gpu, &ROWS).of("ELEMENT", x.dtype).of("PARAMETER", outputs[1].meta.dtype);
    let module = module.with("VECTOR", cut.vector).with("LANES", cut.lanes);
    let weight = if op.weight { Input(1) } else { Null };
    let bias = if inputs.len() == 2 + usize::from(op.weight) { Input(inputs.len() - 1) } else { Null };
    let mut arguments = vec![Input(0), weight, bias, Output(0), Output(1), Output(2)];
    arguments.extend([I64(rows as i64), I64(n as i64), F64(f64::from_bits(op.eps))]);
    let launches = vec![module.launch("layer_norm", cut.grid(), arguments)?];
    Ok(Box::new(Launches { launches, workspace: 0, flops: (8 * rows * n) as u64 }))
}

pub(super) fn gradient(op: &LayerNormGrad, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (x, parameter) = (&inputs[1].meta, inputs[2].meta.dtype);
    let (rows, n) = matrix(x, op.dims);
    let (height, width) = (I64(rows as i64), I64(n as i64));
    let cut = Rows::new(x.dtype, rows, n);
    let module = Module::new(gpu, &ROWS).of("ELEMENT", x.dtype).of("PARAMETER", parameter);
    let module = module.with("VECTOR", cut.vector).with("LANES", cut.lanes);
    let mut arguments = vec![Input(0), Input(1), Input(2), Input(3), if op.weight { Input(4) } else { Null }];
    arguments.extend([Output(0), height.clone(), width.clone()]);
    let mut launches = Vec::new();
    if rows > 0 {
        launches.push(module.launch("layer_norm_gradient", cut.grid(), arguments)?);
    }
    let mut workspace = 0;
    if op.weight || op.bias {
        let cut = Columns::new(gpu, x.dtype, rows, n);
        workspace = 2 * cut.runs * n * x.dtype.compute().size();
        let module = Module::new(gpu, &AFFINE).of("ELEMENT", x.dtype).of("PARAMETER", parameter);
        let module = module.with("VECTOR", cut.vector);
        let mut arguments = vec![Input(0), Input(1), Input(2), Input(3), Workspace(0)];
        arguments.extend([height, width.clone(), I64(cut.run as i64)]);
        launches.push(module.launch("layer_norm_affine", cut.grid(), arguments)?);
        let dweight = if op.weight { Output(1) } else { Null };
        let dbias = if op.bias { Output(1 + usize::from(op.weight)) } else { Null };
        let arguments = vec![Workspace(0), I64(cut.runs as i64), dweight, dbias, width];
        launches.push(module.launch("layer_norm_affine_finish", cut.strips(), arguments)?);
    }
    Ok(Box::new(Launches { launches, workspace, flops: (16 * rows * n) as u64 }))
}
