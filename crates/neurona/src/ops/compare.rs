//! Comparisons, element by element, with bool results.

use super::{Elementwise, Op, Operation, Run, arithmetic::broadcast};
use crate::Result;
use crate::cpu::elementwise::{TileFn, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Number, Tensor};

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Operation for Compare {
    fn name(&self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
        }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let mut metas = broadcast(self.name(), inputs)?;
        metas[0].dtype = DType::Bool;
        Ok(metas)
    }
    /// A comparison is constant almost everywhere.
    fn gradient(&self, _at: &super::At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None, None])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(op: &Op, inputs: &[DType], _output: DType) -> Option<TileFn> {
    let Op::Compare(compare) = op else { return None };
    macro_rules! of {
        ($t:ty) => {
            match compare {
                Compare::Eq => tile!(|a: $t, b: $t| -> u8 { (a == b) as u8 }),
                Compare::Ne => tile!(|a: $t, b: $t| -> u8 { (a != b) as u8 }),
                Compare::Lt => tile!(|a: $t, b: $t| -> u8 { (a < b) as u8 }),
                Compare::Le => tile!(|a: $t, b: $t| -> u8 { (a <= b) as u8 }),
                Compare::Gt => tile!(|a: $t, b: $t| -> u8 { (a > b) as u8 }),
                Compare::Ge => tile!(|a: $t, b: $t| -> u8 { (a >= b) as u8 }),
            }
        };
    }
    match inputs[0] {
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        DType::I64 => of!(i64),
        _ => of!(u8),
    }
}

fn cuda(op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    match op {
        Op::Compare(Compare::Eq) => "a == b",
        Op::Compare(Compare::Ne) => "a != b",
        Op::Compare(Compare::Lt) => "a < b",
        Op::Compare(Compare::Le) => "a <= b",
        Op::Compare(Compare::Gt) => "a > b",
        _ => "a >= b",
    }
}

macro_rules! methods { ($($(#[$doc:meta])* $method:ident $with_number:ident $which:ident)*) => { impl Tensor { $(
    $(#[$doc])*
    #[track_caller]
    pub fn $method(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = self.promoted(other, Op::from(Compare::$which))?;
        Tensor::apply(Compare::$which, &[&a, &b])
    }

    /// The same against a plain number.
    #[track_caller]
    pub fn $with_number(&self, other: impl Into<Number>) -> Result<Tensor> {
        let other = self.number(other.into());
        self.$method(&other)
    }
)* } } }
methods! {
    /// Whether elements are equal.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([1i64, 2]).eq_scalar(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    eq eq_scalar Eq
    /// Whether elements differ.
    ne ne_scalar Ne
    /// Whether left is less than right.
    lt lt_scalar Lt
    /// Whether left is at most right.
    le le_scalar Le
    /// Whether left is greater than right.
    gt gt_scalar Gt
    /// Whether left is at least right.
    ge ge_scalar Ge
}
