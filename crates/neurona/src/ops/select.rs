//! `where`: one of two values, by a condition; and the ops made of it.

use super::{At, Elementwise, Op, Operation, Run, arithmetic::broadcast};
use crate::cpu::elementwise::{TileFn, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor};
use crate::{Error, Result};

/// Operands: condition (bool), value where true, value where false.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Where;

impl Operation for Where {
    fn name(&self) -> &'static str {
        "where"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if inputs[0].dtype != DType::Bool {
            return Err(Error::operands("where", "the condition must be bool", &[("condition", inputs[0])]));
        }
        broadcast("where", inputs)
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (dy, c) = (at.dy()?, &at.inputs[0]);
        let zero = dy.number(Number::Int(0));
        let by_a = at.when(1, || Tensor::apply(Where, &[c, &dy, &zero])?.sum_to(at.inputs[1].shape()))?;
        let by_b = at.when(2, || Tensor::apply(Where, &[c, &zero, &dy])?.sum_to(at.inputs[2].shape()))?;
        Ok(vec![None, by_a, by_b])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(_op: &Op, _inputs: &[DType], output: DType) -> Option<TileFn> {
    macro_rules! of {
        ($t:ty) => {
            tile!(|c: u8, a: $t, b: $t| -> $t { if c != 0 { a } else { b } })
        };
    }
    match output {
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        DType::I64 => of!(i64),
        _ => of!(u8),
    }
}

fn cuda(_op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    "a ? b : c"
}

impl Tensor {
    /// Elements of `a` where this (bool) tensor is true, of `b` where it is false.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::from([true, false]).where_(&Tensor::from([1.0f32, 2.0]), &Tensor::from([0.0f32]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn where_(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let (a, b) = a.promoted(b, Op::from(Where))?;
        Tensor::apply(Where, &[self, &a, &b])
    }

    /// The larger of two, element by element. Where they are equal each gets half the gradient, as in PyTorch.
    #[track_caller]
    pub fn maximum(&self, other: &Tensor) -> Result<Tensor> {
        self.pick(other, Tensor::gt)
    }

    /// The smaller of two, element by element.
    #[track_caller]
    pub fn minimum(&self, other: &Tensor) -> Result<Tensor> {
        self.pick(other, Tensor::lt)
    }

    #[track_caller]
    fn pick(&self, other: &Tensor, wins: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let (a, b) = self.promoted(other, Op::from(Where))?;
        let mean = if a.dtype().is_float() { a.add(&b)?.mul_scalar(0.5)? } else { a.clone() };
        // NaN compares false both ways and passes through the mean.
        wins(&a, &b)?.where_(&a, &wins(&b, &a)?.where_(&b, &mean)?)
    }

    /// Elements limited to a range.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.0f32, 0.5, 2.0]).clamp(0.0, 1.0)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Number>, high: impl Into<Number>) -> Result<Tensor> {
        self.clamp_min(low)?.clamp_max(high)
    }

    /// Elements raised to a least value. At the bound the gradient is 0, as in PyTorch.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.0f32, 0.5, 2.0]).clamp_min(0.0)?.to_vec::<f32>()?, [0.0, 0.5, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp_min(&self, low: impl Into<Number>) -> Result<Tensor> {
        let low = self.number(low.into());
        self.le(&low)?.where_(&low, self)
    }

    /// Elements lowered to a greatest value.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([-1.0f32, 0.5, 2.0]).clamp_max(1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp_max(&self, high: impl Into<Number>) -> Result<Tensor> {
        let high = self.number(high.into());
        self.ge(&high)?.where_(&high, self)
    }
}
