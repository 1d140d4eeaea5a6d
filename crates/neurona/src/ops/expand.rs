//! `broadcast_to`: the same elements repeated along new or size-1 dimensions.

use super::{At, Elementwise, Op, Operation, Run, one};
use crate::cpu::elementwise::{TileFn, tile};
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Shape, Tensor};
use crate::{Error, Result};

/// To a larger shape. It is element-wise: broadcasting happens while the operand is read, so an expansion
/// that feeds an element-wise op costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expand {
    pub shape: Shape,
}

impl Operation for Expand {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if inputs[0].shape.broadcast(&self.shape).as_ref() != Some(&self.shape) {
            return Err(Error::operands(
                "broadcast_to",
                format!("does not fit {}", self.shape),
                &[("input", inputs[0])],
            ));
        }
        one(Meta { shape: self.shape.clone(), dtype: inputs[0].dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(at.dy()?.sum_to(at.inputs[0].shape())?)])
    }
    fn run(&self) -> Run {
        Run::Elementwise(Elementwise { tile, cuda })
    }
}

fn tile(_op: &Op, _inputs: &[DType], output: DType) -> Option<TileFn> {
    match output {
        DType::F32 => tile!(|x: f32| -> f32 { x }),
        DType::F64 => tile!(|x: f64| -> f64 { x }),
        DType::I64 => tile!(|x: i64| -> i64 { x }),
        _ => tile!(|x: u8| -> u8 { x }),
    }
}

fn cuda(_op: &Op, _inputs: &[DType], _output: DType) -> &'static str {
    "a"
}

impl Tensor {
    /// Repeated along dimensions of size 1, and along new ones in front, to a larger shape.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32], [2.0]]).broadcast_to([2, 2])?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape == *self.shape() { Ok(self.clone()) } else { Tensor::apply(Expand { shape }, &[self]) }
    }

    /// The same as [`Tensor::broadcast_to`], with −1 for a size that stays as it is.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32], [2.0]]).expand(&[-1, 3])?;
    /// assert_eq!(x.shape().to_string(), "[2, 3]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn expand(&self, sizes: &[isize]) -> Result<Tensor> {
        let wrong = || self.error("expand", format!("does not fit {sizes:?}"));
        let added = sizes.len().checked_sub(self.rank()).ok_or_else(wrong)?;
        let size = |(d, &size): (usize, &isize)| match size {
            -1 => d.checked_sub(added).map(|own| self.shape()[own]),
            _ => usize::try_from(size).ok(),
        };
        let shape = sizes.iter().enumerate().map(size).collect::<Option<Shape>>().ok_or_else(wrong)?;
        self.broadcast_to(shape)
    }

    /// The same as [`Tensor::broadcast_to`], to the shape of another tensor.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]).expand_as(&Tensor::from([[0i64, 0], [0, 0]]))?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.broadcast_to(other.shape())
    }
}
