//! cuDNN's ways to do a convolution. It wants filters as `[k, r, s, c]` of the images' type, so they are packed before
//! it and gradients unpacked after it.

use super::{Epilogue, Workspace};
use crate::Result;
use crate::cuda::Gpu;
use crate::cuda::choice::{Candidate, Kernels, kernels};
use crate::cuda::kernel::{Argument, Launch, Slot};
use crate::cuda::vendor::cudnn::{ConvolutionProblem, Cudnn, Direction};
use crate::cuda::vendor::kernel::{self, Operands};
use crate::cuda::vendor::{Limits, pack};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;
use std::sync::Arc;

/// As many as are worth timing; the fastest are among cuDNN's first guesses.
const LIMITS: Limits = Limits { plans: 8, workspace: 1 << 30 };

fn cudnn(g: &Geometry, dtype: DType, gpu: &Gpu) -> Option<Arc<Cudnn>> {
    // It refuses empty batches.
    let some = g.n * g.c * g.k * g.oh() * g.ow() > 0 && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let wanted = kernels() != Kernels::Own && some;
    if wanted { Cudnn::of(gpu).ok() } else { None }
}

/// A step for each of cuDNN's plans, or for the one of a name, with these launches around it.
fn candidates(
    cudnn: &Arc<Cudnn>,
    problem: &ConvolutionProblem,
    operands: Operands<Slot>,
    around: (Vec<Launch>, Vec<Launch>),
    workspace: usize,
    name: Option<&str>,
) -> Result<Vec<Candidate>> {
    let plans = match name {
        Some(name) => cudnn.plan(problem, name)?.into_iter().collect(),
        None => cudnn.plans(problem, LIMITS)?,
    };
    Ok(kernel::candidates(plans, operands, around, workspace, problem.geometry.flops()))
}

fn slot(argument: &Argument) -> Slot {
    match argument {
        Argument::Workspace(offset) => Slot::Workspace(*offset),
        Argument::Input(i) => Slot::Input(*i),
        Argument::Output(i) => Slot::Output(*i),
        _ => Slot::Null,
    }
}

fn shape(g: &Geometry) -> [usize; 3] {
    [g.k, g.c / g.groups, g.r * g.s]
}

fn filter_bytes(g: &Geometry, dtype: DType) -> usize {
    shape(g).iter().product::<usize>() * dtype.size()
}

pub(super) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    name: Option<&str>,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let Some(cudnn) = cudnn(g, image, gpu) else { return Ok(Vec::new()) };
    let mut workspace = Workspace::default();
    let packed = workspace.take(filter_bytes(g, image));
    let scale = epilogue.scale.map(|(i, dtype)| (Argument::Input(i), dtype));
    let mut before = vec![pack::filters(shape(g), (Argument::Input(1), weight), scale, (packed.clone(), image), gpu)?];
    let bias = match epilogue.bias {
        Some((i, dtype)) if dtype != image => {
            let room = workspace.take(g.k * image.size());
            before.push(pack::converted(g.k, (Argument::Input(i), dtype), (room.clone(), image), gpu)?);
            Some(room)
        }
        other => other.map(|(i, _)| Argument::Input(i)),
    };
    // Relu alone would make cuDNN compile a kernel of its own; with a bias it has one.
    let fused = epilogue.relu && bias.is_some();
    let after = match epilogue.relu && !fused {
        true => vec![pack::relu(g.n * g.k * g.oh() * g.ow(), (Argument::Output(0), image), gpu)?],
        false => Vec::new(),
    };
    let problem = ConvolutionProblem {
        direction: Direction::Forward,
        dtype: image,
        geometry: *g,
        bias: bias.is_some(),
        relu: fused,
        deterministic: true,
    };
    let operands = Operands {
        x: Slot::Input(0),
        w: slot(&packed),
        y: Slot::Output(0),
        bias: bias.as_ref().map_or(Slot::Null, slot),
    };
    candidates(&cudnn, &problem, operands, (before, after), workspace.bytes, name)
}

pub(super) fn input_grad(
    g: &Geometry,
    image: DType,
    weight: DType,
    name: Option<&str>,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let Some(cudnn) = cudnn(g, image, gpu) else { return Ok(Vec::new()) };
    let mut workspace = Workspace::default();
    let packed = workspace.take(filter_bytes(g, image));
    let before = vec![pack::filters(shape(g), (Argument::Input(1), weight), None, (packed.clone(), image), gpu)?];
    let problem = ConvolutionProblem {
        direction: Direction::InputGradient,
        dtype: image,
        geometry: *g,
        bias: false,
        relu: false,
        deterministic: true,
    };
    let operands = Operands { x: Slot::Output(0), w: slot(&packed), y: Slot::Input(0), bias: Slot::Null };
    candidates(&cudnn, &problem, operands, (before, Vec::new()), workspace.bytes, name)
}

pub(super) fn weight_grad(
    g: &Geometry,
    image: DType,
    out: DType,
    bias: bool,
    name: Option<&str>,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let Some(cudnn) = cudnn(g, image, gpu) else { return Ok(Vec::new()) };
    let mut workspace = Workspace::default();
    let packed = workspace.take(filter_bytes(g, image));
    let mut after = vec![pack::unpacked(shape(g), (packed.clone(), image), (Argument::Output(0), out), gpu)?];
    if bias {
        let rows = g.n * g.oh() * g.ow();
        let parts = workspace.take(pack::sum_parts(rows) * g.k * 4);
        after.extend(pack::sums([rows, g.k], (Argument::Input(1), image), parts, (Argument::Output(1), out), gpu)?);
    }
    let problem = ConvolutionProblem {
        direction: Direction::WeightGradient,
        dtype: image,
        geometry: *g,
        bias: false,
        relu: false,
        deterministic: true,
    };
    let operands = Operands { x: Slot::Input(0), w: slot(&packed), y: Slot::Input(1), bias: Slot::Null };
    candidates(&cudnn, &problem, operands, (Vec::new(), after), workspace.bytes, name)
}
