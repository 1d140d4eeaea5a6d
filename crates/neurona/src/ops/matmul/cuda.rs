//! Matrix products on GPUs.

use super::{MatMul, Sizes};
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::{Cut, Products, Units};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::graph::ir::Operand;
use crate::tensor::DType;
use crate::{Error, Result};

const SOURCE: Source = Source::embedded("matmul.cu", include_str!("matmul.cu"));

/// `Sizes` of the kernel: of the product and a part of its depth, from one product's operands to the next's, and the
/// number of products and whether negative ones become zeros.
fn sizes(product: [i32; 4], steps: [i64; 2], rest: [i32; 2]) -> Argument {
    let mut bytes = Vec::with_capacity(40);
    product.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
    steps.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
    rest.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
    Argument::Bytes(bytes)
}

/// Products of f32 matrices in memory, for ops that are made of them: `count` pairs, one after the other.
pub(crate) struct Batch {
    pub count: usize,
    /// Rows and columns of a product.
    pub size: [usize; 2],
    pub depth: usize,
    /// Whether the left matrices are stored with the depth first, as the right ones are.
    pub transposed: bool,
}

impl Batch {
    /// Multiplies `a` and `b`, cut like this. With several parts of the depth `to` gets `[part][product][m][n]`, which
    /// the caller adds.
    pub fn launch(&self, cut: &Cut, [a, b, to]: [Argument; 3], gpu: &Gpu) -> Result<Launch> {
        let ([m, n], k, Cut { tile, parts, part }) = (self.size, self.depth, *cut);
        let [rows, columns, depth, part, count] = [m, n, k, part, self.count].map(i32::try_from);
        let blocks = u32::try_from(tile.count(m, n) * self.count);
        let (Ok(rows), Ok(columns), Ok(depth), Ok(part), Ok(count), Ok(blocks)) =
            (rows, columns, depth, part, count, blocks)
        else {
            return Err(Error::op("matmul", "a size is larger than kernels for GPUs can count"));
        };
        let mut macros = tile.macros();
        macros.extend([
            ("ELEMENT", cuda_type(DType::F32).into()),
            ("TRANSPOSE_A", i32::from(self.transposed).to_string()),
            ("TRANSPOSE_B", "0".into()),
            ("PIECE_A", tile.piece(if self.transposed { m } else { k }).to_string()),
            ("PIECE_B", tile.piece(n).to_string()),
        ]);
        Ok(Launch {
            function: gpu.function(&SOURCE, "matmul", &macros)?,
            grid: Grid { blocks: [blocks, parts as u32, 1], threads: [tile.threads(), 1, 1], shared: 0 },
            arguments: vec![
                a,
                b,
                Argument::Null,
                Argument::Null,
                to.clone(),
                to,
                sizes([rows, columns, depth, part], [(m * k) as i64, (k * n) as i64], [count, 0]),
            ],
        })
    }
}

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
        ("BIAS_ELEMENT", cuda_type(op.bias(inputs).map_or(a.dtype, |bias| bias.meta.dtype)).into()),
        ("RESULT_ELEMENT", cuda_type(result).into()),
        ("TRANSPOSE_A", i32::from(op.transpose_a).to_string()),
        ("TRANSPOSE_B", i32::from(op.transpose_b).to_string()),
        ("PIECE_A", tile.piece(rows[0]).to_string()),
        ("PIECE_B", tile.piece(rows[1]).to_string()),
    ]);
    let step = |shape: &[usize], size: usize| if shape.len() == 3 && shape[0] > 1 { size as i64 } else { 0 };
    let relu = i32::from(op.activation.is_relu("matmul")?);
    let steps = [step(&a.shape, s.m * s.k), step(&b.shape, s.k * s.n)];
    let sizes = sizes([m, n, k, part as i32], steps, [batch, relu]);

    let bias = op.bias(inputs).map_or(Argument::Null, |_| Argument::Input(2));
    let mask = op.mask(inputs).map_or(Argument::Null, |_| Argument::Input(2));
    let sums = if parts > 1 { Argument::Workspace(0) } else { Argument::Null };
    let mut launches = vec![Launch {
        function: gpu.function(&SOURCE, "matmul", &macros)?,
        grid: Grid { blocks: [blocks, parts as u32, 1], threads: [tile.threads(), 1, 1], shared: 0 },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            bias.clone(),
            mask.clone(),
            Argument::Output(0),
            sums.clone(),
            sizes,
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
                mask,
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
    Ok(Candidate { name: tile.candidate(), kernel: Box::new(kernel) })
}
