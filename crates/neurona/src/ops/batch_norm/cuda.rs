//! Batch normalisation on GPUs.

use super::{BatchNormEval, BatchNormEvalGrad, BatchNormFold, BatchNormTrain, BatchNormTrainGrad, Mask, check};
use crate::cuda::cut::{Columns, Module, aligned};
use crate::cuda::kernel::Argument::{self, F64, I32, I64, Input, Null, Output, Workspace};
use crate::cuda::kernel::{Grid, Kernel, Launch, Launches, Slot};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::Operand;
use crate::tensor::DType;
use crate::{Error, Result};

static FORWARD: Source = Source::embedded("batch_norm.cu", include_str!("batch_norm.cu"));
static GRADIENT: Source = Source::embedded("batch_norm_gradient.cu", include_str!("batch_norm_gradient.cu"));

/// A matrix of rows and channels, and how it is cut.
pub(crate) struct Matrix {
    pub rows: i64,
    pub c: i64,
    pub cut: Columns,
    /// Bytes of the two numbers a run leaves of each channel.
    partial: usize,
}

impl Matrix {
    pub fn new(gpu: &Gpu, x: &Operand) -> Result<Self> {
        let (rows, c) = check(&x.meta, &[])?;
        let dtype = x.meta.dtype;
        Ok(Matrix::of(rows, c, dtype, Columns::new(gpu, dtype, rows, c)))
    }

    pub fn of(rows: usize, c: usize, dtype: DType, cut: Columns) -> Self {
        Matrix { rows: rows as i64, c: c as i64, cut, partial: 2 * c * dtype.compute().size() }
    }

    /// The kernels of training and evaluation for images of `x` and parameters of this type.
    pub fn forward<'a>(&self, gpu: &'a Gpu, x: &Operand, parameter: DType) -> Module<'a> {
        self.module(gpu, &FORWARD, x, parameter)
    }

    /// Likewise, of their gradients.
    pub fn gradient<'a>(&self, gpu: &'a Gpu, x: &Operand, parameter: DType) -> Module<'a> {
        self.module(gpu, &GRADIENT, x, parameter)
    }

    /// The kernels of a file that includes `batch_norm.cuh`.
    fn module<'a>(&self, gpu: &'a Gpu, source: &'static Source, x: &Operand, parameter: DType) -> Module<'a> {
        let module = Module::new(gpu, source).of("ELEMENT", x.meta.dtype).of("PARAMETER", parameter);
        module.with("VECTOR", self.cut.vector)
    }

    /// All runs' numbers, and those of all runs together.
    pub fn workspace(&self) -> usize {
        self.joined() + self.partial
    }

    fn joined(&self) -> usize {
        aligned(self.cut.runs * self.partial)
    }

    fn joins_first(&self) -> bool {
        self.cut.joins_first(self.partial / self.c as usize)
    }

    pub fn run(&self) -> i64 {
        self.cut.run as i64
    }

    fn runs(&self) -> i64 {
        self.cut.runs as i64
    }

    /// Launches (`module` being of [`Matrix::forward`]) that leave the moments of `x` in the workspace and count the batch, and the arguments by which
    /// `join_runs` of `batch_norm.cuh` finds them.
    pub fn moments(&self, op: &BatchNormTrain, module: &Module<'_>) -> Result<(Vec<Launch>, [Argument; 3])> {
        let after = if op.track { Output(5) } else { Null };
        let (rows, c, run) = (I64(self.rows), I64(self.c), I64(self.run()));
        let batches = some(op.track, op.tracked() + 2);
        let arguments = vec![Input(0), Workspace(0), batches, after, rows.clone(), c.clone(), run.clone()];
        let mut launches = vec![module.launch("batch_norm_moments", self.cut.grid(), arguments)?];
        if !self.joins_first() {
            return Ok((launches, [Workspace(0), I64(self.runs()), run]));
        }
        let joined = Workspace(self.joined());
        let arguments = vec![Workspace(0), joined.clone(), I64(self.runs()), run, rows.clone(), c];
        launches.push(module.launch("batch_norm_join_moments", self.cut.strips(), arguments)?);
        Ok((launches, [joined, I64(1), rows]))
    }

    /// The launch (`module` being of [`Matrix::gradient`]) that joins the sums of all runs where that is worth one, and the arguments by which `join_runs` finds
    /// the sums.
    pub fn sums(&self, module: &Module<'_>) -> Result<(Option<Launch>, [Argument; 2])> {
        if !self.joins_first() {
            return Ok((None, [Workspace(0), I64(self.runs())]));
        }
        let joined = Workspace(self.joined());
        let arguments = vec![Workspace(0), joined.clone(), I64(self.runs()), I64(self.c)];
        let launch = module.launch("batch_norm_gradient_join", self.cut.strips(), arguments)?;
        Ok((Some(launch), [joined, I64(1)]))
    }
}

/// `Channels` of `batch_norm.cuh`.
pub(crate) fn channels(op: &BatchNormTrain) -> Argument {
    let input = |there: bool, i: usize| if there { Slot::Input(i) } else { Slot::Null };
    let after = |i: usize| if op.track { Slot::Output(i) } else { Slot::Null };
    let first = op.tracked();
    Argument::Addresses(vec![
        input(op.affine, 1),
        input(op.affine, 2),
        Slot::Output(1),
        Slot::Output(2),
        input(op.track, first),
        input(op.track, first + 1),
        after(3),
        after(4),
        after(5),
        input(op.track && !op.cumulative, first + 3),
    ])
}

/// The macro for the momentum's type, where there is one.
pub(crate) fn with_momentum<'a>(module: Module<'a>, op: &BatchNormTrain, inputs: &[Operand]) -> Module<'a> {
    if op.track && !op.cumulative { module.of("MOMENTUM", inputs[op.tracked() + 3].meta.dtype) } else { module }
}

/// The operand if it is there.
pub(crate) fn some(there: bool, i: usize) -> Argument {
    if there { Input(i) } else { Null }
}

pub(super) fn train(
    op: &BatchNormTrain,
    inputs: &[Operand],
    outputs: &[Operand],
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let m = Matrix::new(gpu, &inputs[0])?;
    let module = with_momentum(m.forward(gpu, &inputs[0], outputs[1].meta.dtype), op, inputs);
    let (mut launches, moments) = m.moments(op, &module)?;
    let module = module.with("ADDED", i32::from(op.added));
    let mut arguments = vec![Input(0), some(op.added, op.other()), Output(0)];
    arguments.extend(moments);
    arguments.extend([channels(op), I64(m.rows), I64(m.c), I64(m.run()), F64(f64::from_bits(op.eps))]);
    arguments.push(I32(op.activation.is_relu("batch_norm")?.into()));
    launches.push(module.launch("batch_norm_normalise", m.cut.grid(), arguments)?);
    Ok(Box::new(Launches { launches, workspace: m.workspace(), flops: (8 * m.rows * m.c) as u64 }))
}

pub(super) fn train_gradient(op: &BatchNormTrainGrad, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let m = Matrix::new(gpu, &inputs[1])?;
    let mask = match op.relu {
        Mask::None => 0,
        Mask::Output => 1,
        Mask::Bias => 2,
        Mask::Limited => return Err(Error::op("batch_norm", "has no relu6 of its own on GPUs")),
    };
    let module = m.gradient(gpu, &inputs[1], inputs[2].meta.dtype).with("MASK", mask);
    let last = if op.affine { 5 } else { 4 };
    let (y, bias) = (some(op.relu == Mask::Output, last), some(op.relu == Mask::Bias, last));
    let (rows, c) = (I64(m.rows), I64(m.c));
    let parameters = [Input(2), Input(3), some(op.affine, 4), bias];
    let mut sums = vec![Input(0), Input(1), y.clone()];
    sums.extend(parameters.clone());
    sums.extend([Workspace(0), rows.clone(), c.clone(), I64(m.run())]);
    let mut launches = vec![module.launch("batch_norm_gradient_sums", m.cut.grid(), sums)?];
    let (join, partial) = m.sums(&module)?;
    launches.extend(join);
    let by = |i: usize| if op.affine { Output(i) } else { Null };
    let mut arguments = vec![Input(0), Input(1), y];
    arguments.extend(parameters);
    arguments.extend(partial);
    arguments.extend([Output(0), by(1), by(2), rows, c, I64(m.run())]);
    launches.push(module.launch("batch_norm_gradient", m.cut.grid(), arguments)?);
    Ok(Box::new(Launches { launches, workspace: m.workspace(), flops: (9 * m.rows * m.c) as u64 }))
}

pub(super) fn eval(op: &BatchNormEval, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let m = Matrix::new(gpu, &inputs[0])?;
    let module = m.forward(gpu, &inputs[0], inputs[1].meta.dtype);
    let mut arguments = vec![Input(0), Output(0), Input(1), Input(2), some(op.affine, 3), some(op.affine, 4)];
    arguments.extend([
        I64(m.rows),
        I64(m.c),
        I64(m.run()),
        F64(f64::from_bits(op.eps)),
        I32(op.activation.is_relu("batch_norm")?.into()),
    ]);
    let launches = vec![module.launch("batch_norm_eval", m.cut.grid(), arguments)?];
    Ok(Box::new(Launches { launches, workspace: 0, flops: (3 * m.rows * m.c) as u64 }))
}

pub(super) fn eval_gradient(op: &BatchNormEvalGrad, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let m = Matrix::new(gpu, &inputs[1])?;
    let module = m.gradient(gpu, &inputs[1], inputs[2].meta.dtype);
    let eps = F64(f64::from_bits(op.eps));
    let mut arguments = vec![Input(0), Input(1), Input(2), Input(3), some(op.affine, 4), Output(0), Workspace(0)];
    arguments.extend([I64(m.rows), I64(m.c), I64(m.run()), eps.clone()]);
    let mut launches = vec![module.launch("batch_norm_eval_gradient", m.cut.grid(), arguments)?];
    if op.affine {
        let arguments = vec![Workspace(0), I64(m.runs()), Input(3), Output(1), Output(2), I64(m.c), eps];
        launches.push(module.launch("batch_norm_eval_affine", m.cut.strips(), arguments)?);
    }
    Ok(Box::new(Launches { launches, workspace: m.workspace(), flops: (5 * m.rows * m.c) as u64 }))
}

pub(super) fn fold(op: &BatchNormFold, inputs: &[Operand], gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let (c, dtype) = (inputs[0].meta.shape.numel(), inputs[0].meta.dtype);
    let module = Module::new(gpu, &FORWARD).of("ELEMENT", dtype).with("VECTOR", 1);
    let bias = some(op.bias, if op.affine { 4 } else { 2 });
    let mut arguments = vec![Input(0), Input(1), some(op.affine, 2), some(op.affine, 3), bias];
    arguments.extend([Output(0), Output(1), I64(c as i64), F64(f64::from_bits(op.eps))]);
    let launches = vec![module.launch("batch_norm_fold", Grid::over(c), arguments)?];
    Ok(Box::new(Launches { launches, workspace: 0, flops: 0 }))
}
