//! Conversion between element types.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::Result;
use crate::cpu::elementwise::{TileFn, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Tensor};

/// To another element type: fractions are cut off, everything but zero is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cast {
    pub to: DType,
}

impl Operation for Cast {
    fn name(&self) -> &'static str {
        "to_dtype"
    }
    fn describe(&self) -> String {
        format!("to_{}", self.to)
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(Meta { shape: inputs[0].shape.clone(), dtype: self.to })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        // Gradients through whole numbers are zero almost everywhere and not defined elsewhere.
        if !self.to.is_float() {
            return Ok(vec![None]);
        }
        Ok(vec![Some(at.dy()?.to_dtype(at.inputs[0].dtype())?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

impl Tensor {
    /// Whole numbers as f32; floating-point numbers as they are.
    #[track_caller]
    pub(crate) fn to_float(&self) -> Result<Tensor> {
        if self.dtype().is_float() { Ok(self.clone()) } else { self.to_dtype(DType::F32) }
    }
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    let Op::Cast(Cast { to }) = op else { return None };
    // 16-bit floats are f32 in registers; rounding to them is the program's business.
    macro_rules! from {
        ($t:ty) => {
            match to.compute() {
                DType::F32 => tile!(|x: $t| -> f32 { x as f32 }),
                DType::F64 => tile!(|x: $t| -> f64 { x as f64 }),
                DType::I64 => tile!(|x: $t| -> i64 { x as i64 }),
                // By way of i64, so that 300 becomes 44 and −1 becomes 255, as in PyTorch.
                DType::U8 => tile!(|x: $t| -> u8 { x as i64 as u8 }),
                _ => tile!(|x: $t| -> u8 { (x != 0 as $t) as u8 }),
            }
        };
    }
    match inputs[0] {
        DType::F32 => from!(f32),
        DType::F64 => from!(f64),
        DType::I64 => from!(i64),
        _ => from!(u8),
    }
}

fn cuda(_op: &Op, inputs: &[DType], output: DType) -> &'static str {
    match (inputs[0].is_float(), output) {
        (_, DType::F32) => "(float)a",
        (_, DType::F64) => "(double)a",
        (true, DType::I64) => "whole(a)",
        (true, DType::U8) => "(u8)whole(a)",
        (false, DType::I64) => "(i64)a",
        (false, DType::U8) => "(u8)a",
        _ => "a != 0",
    }
}
