//! `add`, `sub`, `mul`, `div`: element by element, with broadcasting and PyTorch's type promotion.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::cpu::elementwise::{TileFn, float_tile, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Shape, Tensor};
use crate::{Error, Result};

macro_rules! arithmetic { ($($(#[$doc:meta])* $Op:ident $name:literal)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct $Op;

    impl Operation for $Op {
        fn name(&self) -> &'static str {
            $name
        }
        fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
            broadcast($name, inputs)
        }
        fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
            self.rule(&at.inputs[0], &at.inputs[1], &at.outputs[0], &at.dy()?, at)
        }
        fn run(&self) -> Run {
            Run::Elementwise(Elementwise { tile, cuda })
        }
    }
)* } }
arithmetic! {
    /// a + b
    Add "add"
    /// a − b
    Sub "sub"
    /// a · b
    Mul "mul"
    /// a / b
    Div "div"
}

type Gradients = Result<Vec<Option<Tensor>>>;

impl Add {
    fn rule(&self, a: &Tensor, b: &Tensor, _y: &Tensor, dy: &Tensor, at: &At<'_>) -> Gradients {
        Ok(vec![at.when(0, || dy.sum_to(a.shape()))?, at.when(1, || dy.sum_to(b.shape()))?])
    }
}
impl Sub {
    fn rule(&self, a: &Tensor, b: &Tensor, _y: &Tensor, dy: &Tensor, at: &At<'_>) -> Gradients {
        Ok(vec![at.when(0, || dy.sum_to(a.shape()))?, at.when(1, || dy.neg()?.sum_to(b.shape()))?])
    }
}
impl Mul {
    fn rule(&self, a: &Tensor, b: &Tensor, _y: &Tensor, dy: &Tensor, at: &At<'_>) -> Gradients {
        Ok(vec![at.when(0, || dy.mul(b)?.sum_to(a.shape()))?, at.when(1, || dy.mul(a)?.sum_to(b.shape()))?])
    }
}
impl Div {
    fn rule(&self, a: &Tensor, b: &Tensor, y: &Tensor, dy: &Tensor, at: &At<'_>) -> Gradients {
        let by_a = at.when(0, || dy.div(b)?.sum_to(a.shape()))?;
        // d(a/b)/db = −a/b² = −y/b: the output spares the square.
        let by_b = at.when(1, || dy.mul(y)?.div(b)?.neg()?.sum_to(b.shape()))?;
        Ok(vec![by_a, by_b])
    }
}

/// Results of an element-wise op on operands of one type.
pub(crate) fn broadcast(name: &'static str, inputs: &[&Meta]) -> Result<Metas> {
    let mut shape = inputs[0].shape.clone();
    for other in &inputs[1..] {
        let roles = ["left", "right", "third"];
        shape = shape.broadcast(&other.shape).ok_or_else(|| {
            let operands: Vec<_> = roles.into_iter().zip(inputs.iter().copied()).collect();
            Error::operands(name, "the shapes do not broadcast to each other", &operands)
        })?;
    }
    one(Meta { shape, dtype: inputs[inputs.len() - 1].dtype })
}

fn tile(op: &Op, _inputs: &[DType], output: DType) -> Option<TileFn> {
    match (op, output) {
        (Op::Add(_), DType::I64) => tile!(|a: i64, b: i64| -> i64 { a.wrapping_add(b) }),
        (Op::Sub(_), DType::I64) => tile!(|a: i64, b: i64| -> i64 { a.wrapping_sub(b) }),
        (Op::Mul(_), DType::I64) => tile!(|a: i64, b: i64| -> i64 { a.wrapping_mul(b) }),
        (Op::Add(_), DType::U8) => tile!(|a: u8, b: u8| -> u8 { a.wrapping_add(b) }),
        (Op::Sub(_), DType::U8) => tile!(|a: u8, b: u8| -> u8 { a.wrapping_sub(b) }),
        (Op::Mul(_), DType::U8) => tile!(|a: u8, b: u8| -> u8 { a.wrapping_mul(b) }),
        (Op::Add(_), DType::Bool) => tile!(|a: u8, b: u8| -> u8 { a | b }),
        (Op::Mul(_), DType::Bool) => tile!(|a: u8, b: u8| -> u8 { a & b }),
        (Op::Add(_), t) => float_tile!(t, |a, b| a + b),
        (Op::Sub(_), t) => float_tile!(t, |a, b| a - b),
        (Op::Mul(_), t) => float_tile!(t, |a, b| a * b),
        (Op::Div(_), t) => float_tile!(t, |a, b| a / b),
        _ => None,
    }
}

fn cuda(op: &Op, _inputs: &[DType], output: DType) -> &'static str {
    match (op, output) {
        // Signed numbers must not overflow in C++; unsigned ones wrap around.
        (Op::Add(_), DType::I64) => "(i64)((u64)a + (u64)b)",
        (Op::Sub(_), DType::I64) => "(i64)((u64)a - (u64)b)",
        (Op::Add(_), DType::Bool) => "a | b",
        (Op::Mul(_), DType::Bool) => "a & b",
        (Op::Add(_), _) => "a + b",
        (Op::Sub(_), _) => "a - b",
        (Op::Mul(_), _) => "product(a, b)",
        _ => "a / b",
    }
}

macro_rules! methods { ($($(#[$doc:meta])* $method:ident $with_number:ident $Op:ident)*) => { impl Tensor { $(
    $(#[$doc])*
    #[track_caller]
    pub fn $method(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = self.promoted(other, Op::from($Op))?;
        Tensor::apply($Op, &[&a, &b])
    }

    /// The same with a plain number, which is an input of the plan: changing it makes no new plan.
    #[track_caller]
    pub fn $with_number(&self, other: impl Into<Number>) -> Result<Tensor> {
        let other = self.number(other.into());
        self.$method(&other)
    }
)* } } }
methods! {
    /// Sum, element by element.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::from([[1.0f32], [2.0]]).add(&Tensor::from([10.0f32, 20.0]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [11.0, 21.0, 12.0, 22.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    add add_scalar Add
    /// Difference, element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([3i64, 5]).sub_scalar(1)?.to_vec::<i64>()?, [2, 4]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    sub sub_scalar Sub
    /// Product, element by element.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([3.0f32, 5.0]).mul_scalar(2)?.to_vec::<f32>()?, [6.0, 10.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    mul mul_scalar Mul
    /// Quotient, element by element; whole numbers give fractions, as in PyTorch.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([3i64, 5]).div_scalar(2)?.to_vec::<f32>()?, [1.5, 2.5]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    div div_scalar Div
}

impl Tensor {
    /// A plain number as an operand beside this tensor, of the type PyTorch would give the result.
    #[track_caller]
    pub(crate) fn number(&self, number: Number) -> Tensor {
        Tensor::numbers([number], Meta::new((), self.dtype().promote_number(number)))
    }

    /// Both operands as the type of the result.
    #[track_caller]
    pub(crate) fn promoted(&self, other: &Tensor, op: Op) -> Result<(Tensor, Tensor)> {
        let mut dtype = self.dtype().promote(other.dtype());
        if matches!(op, Op::Sub(_)) && dtype == DType::Bool {
            return Err(self.error("sub", "is not there for bool; use ne or logical ops"));
        }
        if matches!(op, Op::Div(_)) && !dtype.is_float() {
            dtype = DType::F32;
        }
        // PyTorch lets a tensor with dimensions decide over one without, within one kind.
        for (a, b) in [(self, other), (other, self)] {
            let kind = |d: DType| if d.is_float() { 2 } else { (d != DType::Bool) as u8 };
            if a.rank() > 0
                && b.rank() == 0
                && kind(a.dtype()) >= kind(b.dtype())
                && a.dtype().is_float() == dtype.is_float()
            {
                dtype = a.dtype();
            }
        }
        Ok((self.to_dtype(dtype)?, other.to_dtype(dtype)?))
    }

    /// Sums over the dimensions along which `shape` was broadcast: the gradient of broadcasting.
    pub(crate) fn sum_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let skipped = self.rank() - shape.len();
        let dims: Vec<isize> = (0..self.rank())
            .filter(|&d| d < skipped || (shape[d - skipped] == 1 && self.shape()[d] != 1))
            .map(|d| d as isize)
            .collect();
        self.sum_dims(&dims, true)?.reshape(shape)
    }
}
