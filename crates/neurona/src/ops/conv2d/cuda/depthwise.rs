//! Convolutions where each channel has a filter of its own.

use super::weight_grad::finish;
use super::{Epilogue, Workspace, flag, sizes};
use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

const DEPTHWISE: Source = Source::embedded("conv2d_depthwise.cu", include_str!("../conv2d_depthwise.cu"));
const WEIGHT_GRAD: Source =
    Source::embedded("conv2d_depthwise_weight_grad.cu", include_str!("../conv2d_depthwise_weight_grad.cu"));

/// Taps that a thread can have in registers.
const MOST_TAPS: usize = 64;
/// Pixels that a block's threads are at, at one time.
const PIXELS: usize = 32;
/// Channels of a block in the gradient by the filters.
const LANES: usize = 32;

fn suits(g: &Geometry) -> bool {
    g.groups == g.c && g.k == g.c && g.c > 1 && g.r * g.s <= MOST_TAPS
}

/// Forward or, with `input_grad`, the gradient by the input, where it suits.
pub(super) fn pass(
    g: &Geometry,
    input_grad: bool,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Option<Box<dyn Kernel>>> {
    if !suits(g) {
        return Ok(None);
    }
    let run = [4, 2, 1].into_iter().find(|run| g.c.is_multiple_of(*run)).unwrap_or(1);
    let name = |dtype: DType| cuda_type(dtype).to_string();
    let macros = [
        ("ELEMENT", name(image)),
        ("WEIGHT_ELEMENT", name(weight)),
        ("SCALE_ELEMENT", name(epilogue.scale.map_or(weight, |(_, dtype)| dtype))),
        ("BIAS_ELEMENT", name(epilogue.bias.map_or(image, |(_, dtype)| dtype))),
        ("R", g.r.to_string()),
        ("S", g.s.to_string()),
        ("V", run.to_string()),
        flag("INPUT_GRAD", input_grad),
    ];
    let pixels = if input_grad { g.n * g.h * g.w } else { g.n * g.oh() * g.ow() };
    let columns = g.c.div_ceil(8 * run);
    // A few pixels for each thread, so that filters are read for many.
    let rows = pixels.div_ceil(PIXELS).min((32 * gpu.multiprocessors()).div_ceil(columns)).max(1);
    let operand = |position: Option<usize>| position.map_or(Argument::Null, Argument::Input);
    let launch = Launch {
        function: gpu.function(&DEPTHWISE, "conv2d_depthwise", &macros)?,
        grid: Grid { blocks: [rows as u32, columns as u32, 1], threads: [256, 1, 1], shared: 0 },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            operand(epilogue.scale.map(|(position, _)| position)),
            operand(epilogue.bias.map(|(position, _)| position)),
            Argument::Output(0),
            sizes(g)?,
            Argument::I32(i32::from(epilogue.relu)),
        ],
    };
    Ok(Some(Box::new(Launches { launches: vec![launch], workspace: 0, flops: g.flops() })))
}

/// The gradients by filters and bias, where it suits.
pub(super) fn weight_grad(
    g: &Geometry,
    image: DType,
    out: DType,
    bias: bool,
    gpu: &Gpu,
) -> Result<Option<Box<dyn Kernel>>> {
    if !suits(g) {
        return Ok(None);
    }
    let pixels = g.n * g.oh() * g.ow();
    let columns = g.c.div_ceil(LANES);
    let parts = pixels.div_ceil(64).min((16 * gpu.multiprocessors()).div_ceil(columns)).max(1);
    let part = pixels.div_ceil(parts).max(1);
    let parts = pixels.div_ceil(part).max(1);
    let sum_bytes = if image == DType::F64 { 8 } else { 4 };
    let mut workspace = Workspace::default();
    let sums = workspace.take(parts * g.c * g.r * g.s * sum_bytes);
    let bias_sums = if bias { workspace.take(parts * g.c * sum_bytes) } else { Argument::Null };
    let macros = [("ELEMENT", cuda_type(image).to_string()), ("R", g.r.to_string()), ("S", g.s.to_string())];
    let launches = vec![
        Launch {
            function: gpu.function(&WEIGHT_GRAD, "conv2d_depthwise_weight_grad", &macros)?,
            grid: Grid { blocks: [parts as u32, columns as u32, 1], threads: [256, 1, 1], shared: 0 },
            arguments: vec![
                Argument::Input(0),
                Argument::Input(1),
                sums.clone(),
                bias_sums.clone(),
                sizes(g)?,
                Argument::I32(part as i32),
            ],
        },
        finish(g, image, out, bias, parts, sums, bias_sums, gpu)?,
    ];
    Ok(Some(Box::new(Launches { launches, workspace: workspace.bytes, flops: g.flops() })))
}
