//! The gradients by the filters and the bias.

use super::{Workspace, depthwise, direct_weights, sizes};
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::{Cut, Products, Units};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;
use crate::{Error, Result};

const SOURCE: Source = Source::embedded("conv2d_weight_grad.cu", include_str!("../conv2d_weight_grad.cu"));
const FINISH: Source =
    Source::embedded("conv2d_weight_grad_finish.cu", include_str!("../conv2d_weight_grad_finish.cu"));

/// Operands: images, the gradient by the output. Results: gradients by the filters and, with `bias`, by the bias, of
/// type `out`.
pub(in crate::ops::conv2d) fn weight_grad(
    g: &Geometry,
    image: DType,
    out: DType,
    bias: bool,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    if let Some(kernel) = depthwise::weight_grad(g, image, out, bias, gpu)? {
        return Ok(vec![Candidate { name: "own".into(), kernel }]);
    }
    let units = Units::of(gpu, image);
    let mut all = direct_weights::weight_grad(g, image, out, bias, gpu)?;
    all.push(product(g, image, out, bias, units, gpu)?);
    Ok(all)
}

fn product(g: &Geometry, image: DType, out: DType, bias: bool, units: Units, gpu: &Gpu) -> Result<Candidate> {
    let (inner, outer) = (g.c / g.groups, g.k / g.groups);
    let (columns, pixels) = (g.r * g.s * inner, g.n * g.oh() * g.ow());
    let Cut { tile, parts, part } =
        Products { rows: outer, columns, depth: pixels, count: g.groups, always_finished: true }
            .cut(units, [outer, inner]);
    let blocks = u32::try_from(tile.count(outer, columns))
        .map_err(|_| Error::op("conv2d", "needs more blocks than a GPU can count"))?;
    let sum_bytes = if image == DType::F64 { 8 } else { 4 };
    let mut workspace = Workspace::default();
    let sums = workspace.take(parts * g.k * columns * sum_bytes);
    let bias_sums = if bias { workspace.take(parts * g.k * sum_bytes) } else { Argument::Null };
    let mut macros = tile.macros();
    macros.extend([
        ("ELEMENT", cuda_type(image).into()),
        ("PIECE_LEFT", tile.piece(outer).to_string()),
        ("PIECE_RIGHT", tile.piece(inner).to_string()),
    ]);
    let launches = vec![
        Launch {
            function: gpu.function(&SOURCE, "conv2d_weight_grad", &macros)?,
            grid: Grid { blocks: [blocks, parts as u32, g.groups as u32], threads: [tile.threads(), 1, 1], shared: 0 },
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
    let kernel = Launches { launches, workspace: workspace.bytes, flops: g.flops() };
    Ok(Candidate { name: tile.candidate(), kernel: Box::new(kernel) })
}

/// Adds the parts in their order and writes the results.
#[allow(clippy::too_many_arguments)]
pub(super) fn finish(
    g: &Geometry,
    image: DType,
    out: DType,
    bias: bool,
    parts: usize,
    sums: Argument,
    bias_sums: Argument,
    gpu: &Gpu,
) -> Result<Launch> {
    let (inner, taps) = (g.c / g.groups, g.r * g.s);
    let sum = if image == DType::F64 { "double" } else { "float" };
    let macros = [("SUM", sum.to_string()), ("OUT_ELEMENT", cuda_type(out).to_string())];
    let blocks = (g.k * taps * inner).div_ceil(32) + if bias { g.k.div_ceil(32) } else { 0 };
    Ok(Launch {
        function: gpu.function(&FINISH, "conv2d_weight_grad_finish", &macros)?,
        grid: Grid::line(blocks.max(1), 512),
        arguments: vec![
            sums,
            bias_sums,
            Argument::Output(0),
            if bias { Argument::Output(1) } else { Argument::Null },
            Argument::I32(g.k as i32),
            Argument::I32(inner as i32),
            Argument::I32(taps as i32),
            Argument::I32(parts as i32),
        ],
    })
}
