//! The launches around a vendor's plan: see pack.cu.

use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Launch};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::tensor::DType;

const SOURCE: Source = Source::embedded("pack.cu", include_str!("pack.cu"));

fn types(from: DType, to: DType) -> Vec<(&'static str, String)> {
    vec![("FROM", cuda_type(from).into()), ("TO", cuda_type(to).into())]
}

/// Filters `[k, c, taps]` as `[k, taps, c]`, times a scale each where there is one.
pub(crate) fn filters(
    [k, c, taps]: [usize; 3],
    (filters, from): (Argument, DType),
    scale: Option<(Argument, DType)>,
    (packed, to): (Argument, DType),
    gpu: &Gpu,
) -> Result<Launch> {
    let mut macros = types(from, to);
    macros.extend(scale.as_ref().map(|(_, dtype)| ("SCALE", cuda_type(*dtype).to_string())));
    let elements = k * c * taps;
    Ok(Launch {
        function: gpu.function(&SOURCE, "pack_filters", &macros)?,
        grid: Grid::over(elements),
        arguments: vec![
            filters,
            scale.map_or(Argument::Null, |(scale, _)| scale),
            packed,
            Argument::I32(c as i32),
            Argument::I32(taps as i32),
            Argument::I64(elements as i64),
        ],
    })
}

/// Filters `[k, taps, c]` back as `[k, c, taps]`.
pub(crate) fn unpacked(
    [k, c, taps]: [usize; 3],
    (packed, from): (Argument, DType),
    (filters, to): (Argument, DType),
    gpu: &Gpu,
) -> Result<Launch> {
    let elements = k * c * taps;
    Ok(Launch {
        function: gpu.function(&SOURCE, "unpack_filters", &types(from, to))?,
        grid: Grid::over(elements),
        arguments: vec![
            packed,
            filters,
            Argument::I32(c as i32),
            Argument::I32(taps as i32),
            Argument::I64(elements as i64),
        ],
    })
}

/// Numbers in another type.
pub(crate) fn converted(
    elements: usize,
    (from, from_type): (Argument, DType),
    (to, to_type): (Argument, DType),
    gpu: &Gpu,
) -> Result<Launch> {
    Ok(Launch {
        function: gpu.function(&SOURCE, "convert", &types(from_type, to_type))?,
        grid: Grid::over(elements),
        arguments: vec![from, to, Argument::I64(elements as i64)],
    })
}

/// Relu of what has been computed, in place.
pub(crate) fn relu(elements: usize, (y, dtype): (Argument, DType), gpu: &Gpu) -> Result<Launch> {
    Ok(Launch {
        function: gpu.function(&SOURCE, "add_bias", &types(dtype, dtype))?,
        grid: Grid::over(elements),
        arguments: vec![Argument::Null, y, Argument::I32(1), Argument::I32(1), Argument::I64(elements as i64)],
    })
}

/// Zeros, in place, where a relu's result of the same shape and type is not above zero.
pub(crate) fn mask(elements: usize, relu: Argument, (y, dtype): (Argument, DType), gpu: &Gpu) -> Result<Launch> {
    Ok(Launch {
        function: gpu.function(&SOURCE, "mask", &types(dtype, dtype))?,
        grid: Grid::over(elements),
        arguments: vec![relu, y, Argument::I64(elements as i64)],
    })
}

/// How many blocks share the rows of a sum over rows.
pub(crate) fn sum_parts(rows: usize) -> usize {
    rows.div_ceil(256).clamp(1, 64)
}

/// Sums over rows of `k` channels, through `sum_parts(rows) * k` partial sums (f32) in the workspace.
pub(crate) fn sums(
    [rows, k]: [usize; 2],
    (dy, from): (Argument, DType),
    parts: Argument,
    (sums, to): (Argument, DType),
    gpu: &Gpu,
) -> Result<[Launch; 2]> {
    let count = sum_parts(rows);
    let macros = types(from, to);
    Ok([
        Launch {
            function: gpu.function(&SOURCE, "sum_rows", &macros)?,
            grid: Grid { blocks: [k.div_ceil(32) as u32, count as u32, 1], threads: [256, 1, 1], shared: 0 },
            arguments: vec![dy, parts.clone(), Argument::I32(k as i32), Argument::I64(rows as i64)],
        },
        Launch {
            function: gpu.function(&SOURCE, "sum_parts", &macros)?,
            grid: Grid::line(k.div_ceil(128), 128),
            arguments: vec![parts, sums, Argument::I32(k as i32), Argument::I32(count as i32)],
        },
    ])
}
