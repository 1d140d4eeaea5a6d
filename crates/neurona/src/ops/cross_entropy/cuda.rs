//! Cross-entropy on GPUs.

use super::{CrossEntropy, Reduction};
use crate::Result;
use crate::cuda::cut::{Module, Rows, aligned};
use crate::cuda::kernel::Argument::{self, F64, Fault, I32, I64, Input, Null, Output, Own, Workspace};
use crate::cuda::kernel::{Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::Operand;
use crate::tensor::DType;

static SOURCE: Source = Source::embedded("cross_entropy.cu", include_str!("cross_entropy.cu"));

/// Logits that one block takes on alone: a second launch would cost more than the others save.
const SMALL: usize = 32 * 1024;

/// Targets that every block of the gradient counts for itself.
const FEW: usize = 4096;

fn module<'a>(op: &CrossEntropy, cut: &Rows, x: DType, loss: DType, gpu: &'a Gpu) -> Module<'a> {
    let module = Module::new(gpu, &SOURCE).of("ELEMENT", x).of("LOSS", loss);
    let reduction = match op.reduction {
        Reduction::None => 0,
        Reduction::Mean => 1,
        Reduction::Sum => 2,
    };
    module.with("VECTOR", cut.vector).with("LANES", cut.lanes).with("REDUCTION", reduction)
}

pub(super) fn forward(
    op: &CrossEntropy,
    inputs: &[Operand],
    outputs: &[Operand],
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let x = &inputs[0].meta;
    let (rows, n) = (x.shape[0], x.shape[1]);
    let mut cut = Rows::new(x.dtype, rows, n);
    let joins = op.reduction != Reduction::None;
    let grid = if joins && rows * n <= SMALL && cut.lanes <= 32 {
        // As many threads a row as the block has.
        let most = (n / cut.vector).next_power_of_two().min(32);
        cut.lanes = (1024 / rows.next_power_of_two()).clamp(1, most);
        Grid::line(1, (rows * cut.lanes).next_multiple_of(32).clamp(32, 1024) as u32)
    } else {
        let all = cut.grid();
        let most = if joins { 4 * gpu.multiprocessors as u32 } else { u32::MAX };
        Grid { blocks: [all.blocks[0].min(most), 1, 1], ..all }
    };
    let parts = grid.blocks[0];
    let module = module(op, &cut, x.dtype, outputs[0].meta.dtype, gpu);
    let mut arguments = vec![Input(0), Input(1), Output(0), Output(1), Workspace(0), I64(rows as i64), I64(n as i64)];
    let fault = Fault(gpu.fault("cross_entropy", n)?);
    arguments.extend([F64(f64::from_bits(op.label_smoothing)), I64(op.ignore_index), fault]);
    let mut launches = vec![module.launch("cross_entropy", grid, arguments)?];
    if joins && parts > 1 {
        let arguments = vec![Workspace(0), I32(parts as i32), Output(0)];
        launches.push(module.launch("cross_entropy_finish", Grid::line(1, 256), arguments)?);
    }
    Ok(Box::new(Launches { launches, workspace: 16 * parts as usize, flops: (20 * rows * n) as u64 }))
}

pub(super) fn gradient(
    op: &CrossEntropy,
    inputs: &[Operand],
    outputs: &[Operand],
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let x = &inputs[0].meta;
    let (rows, n) = (x.shape[0], x.shape[1]);
    let cut = Rows::new(x.dtype, rows, n);
    let module = module(op, &cut, x.dtype, inputs[3].meta.dtype, gpu).of("GRADIENT", outputs[0].meta.dtype);
    let (mut launches, counted) = count(op, Input(2), rows, &module)?;
    let mut arguments = vec![Input(0), Input(1), Input(2), Input(3), Output(0)];
    arguments.extend(counted.arguments(op, rows, n));
    launches.push(module.launch("cross_entropy_gradient", cut.grid(), arguments)?);
    Ok(Box::new(Launches { launches, workspace: counted.bytes(), flops: (20 * rows * n) as u64 }))
}

/// Loss and gradient. Beside a mean over very many rows, which are counted first, it is one launch: the block that is
/// done last adds up what all have left.
pub(super) fn both(op: &CrossEntropy, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let x = &inputs[0].meta;
    let (rows, n) = (x.shape[0], x.shape[1]);
    let cut = Rows::new(x.dtype, rows, n);
    let [loss, gradient] = [0, 2].map(|i| outputs[i].meta.dtype);
    let module = module(op, &cut, x.dtype, loss, gpu).of("GRADIENT", gradient);
    let (mut launches, counted) = count(op, Input(1), rows, &module)?;
    let all = cut.grid();
    // The mean of no rows is written too.
    let blocks = all.blocks[0].clamp(1, 8 * gpu.multiprocessors as u32);
    let losses = counted.bytes();
    let mut arguments = vec![Input(0), Input(1), Input(2), Output(0), Output(1), Output(2)];
    arguments.extend([Workspace(losses), Own(gpu.zeros(4)?)]);
    arguments.extend(counted.arguments(op, rows, n));
    arguments.push(Fault(gpu.fault("cross_entropy", n)?));
    launches.push(module.launch("cross_entropy_both", Grid { blocks: [blocks, 1, 1], ..all }, arguments)?);
    let workspace = losses + 8 * blocks as usize;
    Ok(Box::new(Launches { launches, workspace, flops: (40 * rows * n) as u64 }))
}

/// Parts of the rows whose targets were counted before, from the workspace's start; none where blocks count themselves.
struct Counted(usize);

impl Counted {
    fn bytes(&self) -> usize {
        aligned(8 * self.0)
    }

    /// The last arguments of a kernel for gradients.
    fn arguments(&self, op: &CrossEntropy, rows: usize, n: usize) -> [Argument; 6] {
        let counted = if self.0 > 0 { Workspace(0) } else { Null };
        let [parts, smoothing] = [I32(self.0 as i32), F64(f64::from_bits(op.label_smoothing))];
        [counted, parts, I64(rows as i64), I64(n as i64), smoothing, I64(op.ignore_index)]
    }
}

/// The launch that counts the rows of a mean, where there are too many for every block to do it.
fn count(op: &CrossEntropy, targets: Argument, rows: usize, module: &Module<'_>) -> Result<(Vec<Launch>, Counted)> {
    if op.reduction != Reduction::Mean || rows <= FEW {
        return Ok((Vec::new(), Counted(0)));
    }
    let parts = rows.div_ceil(FEW).min(128);
    let arguments = vec![targets, I64(rows as i64), I64(op.ignore_index), Workspace(0)];
    Ok((vec![module.launch("cross_entropy_count", Grid::line(parts, 256), arguments)?], Counted(parts)))
}
