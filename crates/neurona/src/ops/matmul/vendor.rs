//! cuBLASLt's ways to do a product.

use super::{MatMul, Sizes};
use crate::Result;
use crate::cuda::Gpu;
use crate::cuda::choice::{Candidate, Kernels, kernels};
use crate::cuda::kernel::{Argument, Slot};
use crate::cuda::vendor::cublaslt::{CublasLt, MatrixProblem};
use crate::cuda::vendor::kernel::{self, Operands};
use crate::cuda::vendor::{Limits, pack};
use crate::graph::ir::Operand;
use crate::tensor::{DType, Meta};

/// As many as are worth timing.
const LIMITS: Limits = Limits { plans: 8, workspace: 64 << 20 };

pub(super) fn candidates(
    op: &MatMul,
    s: &Sizes,
    inputs: &[Operand],
    output: &Operand,
    name: Option<&str>,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let (dtype, out) = (inputs[0].meta.dtype, output.meta.dtype);
    let some = s.batch * s.m * s.n * s.k > 0 && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let wanted = kernels() != Kernels::Own && some;
    let Some(cublas) = wanted.then(|| CublasLt::of(gpu).ok()).flatten() else { return Ok(Vec::new()) };
    let mut problem = MatrixProblem::dense(dtype, [s.batch, s.m, s.n, s.k], [op.transpose_a, op.transpose_b]);
    problem.output = out;
    // A batch of 1 serves all.
    let alone = |m: &Meta| m.shape.len() == 2 || m.shape[0] == 1;
    if alone(&inputs[0].meta) {
        problem.x.step = 0;
    }
    if alone(&inputs[1].meta) {
        problem.w.step = 0;
    }
    let (mut before, mut workspace, mut bias) = (Vec::new(), 0, Slot::Null);
    if let Some(operand) = op.bias(inputs) {
        problem.bias = true;
        bias = Slot::Input(2);
        if operand.meta.dtype != out {
            let room = (Argument::Workspace(0), out);
            before.push(pack::converted(s.n, (Argument::Input(2), operand.meta.dtype), room, gpu)?);
            (workspace, bias) = (s.n * out.size(), Slot::Workspace(0));
        }
    }
    // Its own relu turns NaN into 0, and a network that has gone astray would look well.
    let elements = s.batch * s.m * s.n;
    let after = match op.activation.is_relu("matmul")? {
        true => vec![pack::relu(elements, (Argument::Output(0), out), gpu)?],
        false if op.masked => vec![pack::mask(elements, Argument::Input(2), (Argument::Output(0), out), gpu)?],
        false => Vec::new(),
    };
    let operands = Operands { x: Slot::Input(0), w: Slot::Input(1), y: Slot::Output(0), bias };
    let flops = 2 * (elements * s.k) as u64;
    let plans = match name {
        Some(name) => cublas.plan(&problem, LIMITS, name)?.into_iter().collect(),
        None => cublas.plans(&problem, LIMITS)?,
    };
    Ok(kernel::candidates(plans, operands, (before, after), workspace, flops))
}
