//! Matrix products on GPUs.

use super::{MatMul, Sizes};
use crate::cpu::gemm::Activation;
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::{Cut, Products, Units};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::graph::ir::Operand;
use crate::tensor::DType;
use crate::{Error, Result};

const SOURCE: Source = Source::embedded("matmul.cu", include_str!("matmul.cu"));

/// Below this a product leaves tensor cores mostly idle, and ordinary units may be as fast.
const SMALL: usize = 16;

/// Ours: on tensor cores where there are, and on ordinary units where those may be the better ones.
pub(super) fn candidates(
    op: &MatMul,
    s: &Sizes,
    inputs: &[Operand],
    result: DType,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let units = Units::of(gpu, inputs[0].meta.dtype);
    let mut all = vec![matmul(op, s, inputs, result, units, gpu)?];
    if units.tensor_cores && s.m.min(s.n).min(s.k) < SMALL {
        all.push(matmul(op, s, inputs, result, units.ordinary(), gpu)?);
    }
    Ok(all)
}

fn matmul(op: &MatMul, s: &Sizes, inputs: &[Operand], result: DType, units: Units, gpu: &Gpu) -> Result<Candidate> {
    let (a, b) = (&inputs[0].meta, &inputs[1].meta);
    let [m, n, k, batch] = [s.m, s.n, s.k, s.batch].map(i32::try_from);
    let (Ok(m), Ok(n), Ok(k), Ok(batch)) = (m, n, k, batch) else {
        return Err(Error::op("matmul", "a size is larger than kernels for GPUs can count"));
    };
    let products = Products { rows: s.m, columns: s.n, depth: s.k, count: s.batch, always_finished: false };
    let rows = [if op.transpose_a { s.m } else { s.k }, if op.transpose_b { s.k } else { s.n }];
    let Cut { tile, parts, part } = products.cut(units, rows);
    let blocks = u32::try_from(tile.count(s.m, s.n) * s.batch)
        .map_err(|_| Error::op("matmul", "needs more blocks than a GPU can count"))?;
    let mut macros = tile.macros();
    macros.extend([
        ("ELEMENT", cuda_type(a.dtype).into()),
        ("BIAS_ELEMENT", cuda_type(inputs.get(2).map_or(a.dtype, |bias| bias.meta.dtype)).into()),
        ("RESULT_ELEMENT", cuda_type(result).into()),
        ("TRANSPOSE_A", i32::from(op.transpose_a).to_string()),
        ("TRANSPOSE_B", i32::from(op.transpose_b).to_string()),
        ("PIECE_A", tile.piece(rows[0]).to_string()),
        ("PIECE_B", tile.piece(rows[1]).to_string()),
    ]);
    let step = |shape: &[usize], size: usize| if shape.len() == 3 && shape[0] > 1 { size as i64 } else { 0 };
    let relu = i32::from(op.activation == Activation::Relu);
    let mut sizes = Vec::with_capacity(40);
    [m, n, k, part as i32].iter().for_each(|x| sizes.extend(x.to_ne_bytes()));
    [step(&a.shape, s.m * s.k), step(&b.shape, s.k * s.n)].iter().for_each(|x| sizes.extend(x.to_ne_bytes()));
    [batch, relu].iter().for_each(|x| sizes.extend(x.to_ne_bytes()));

    let bias = if inputs.len() > 2 { Argument::Input(2) } else { Argument::Null };
    let sums = if parts > 1 { Argument::Workspace(0) } else { Argument::Null };
    let mut launches = vec![Launch {
        function: gpu.function(&SOURCE, "matmul", &macros)?,
        grid: Grid { blocks: [blocks, parts as u32, 1], threads: [tile.threads(), 1, 1], shared: 0 },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            bias.clone(),
            Argument::Output(0),
            sums.clone(),
            Argument::Bytes(sizes),
        ],
    }];
    let elements = s.batch * s.m * s.n;
    if parts > 1 {
        launches.push(Launch {
            function: gpu.function(&SOURCE, "matmul_finish", &macros)?,
            grid: Grid::over(elements),
            arguments: vec![
                sums,
                bias,
                Argument::Output(0),
                Argument::I64(elements as i64),
                Argument::I32(n),
                Argument::I32(parts as i32),
                Argument::I32(relu),
            ],
        });
    }
    let sum_bytes = if a.dtype == DType::F64 { 8 } else { 4 };
    let kernel = Launches {
        launches,
        workspace: if parts > 1 { parts * elements * sum_bytes } else { 0 },
        flops: 2 * (elements * s.k) as u64,
    };
    Ok(Candidate { name: tile.candidate(), vendor: false, kernel: Box::new(kernel) })
}
