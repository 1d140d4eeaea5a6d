//! Another shape over the same elements: `reshape`, `flatten`, `squeeze`, `unsqueeze`.

use super::{At, Operation, Run, one};
use crate::graph::node::Metas;
use crate::tensor::{Meta, Shape, Tensor};
use crate::{Error, Result};

/// The same elements in row-major order under another shape; costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reshape {
    pub shape: Shape,
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        if inputs[0].shape.numel() != self.shape.numel() {
            let problem = format!("{} elements do not fit {}", inputs[0].shape.numel(), self.shape);
            return Err(Error::operands("reshape", problem, &[("input", inputs[0])]));
        }
        one(Meta { shape: self.shape.clone(), dtype: inputs[0].dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(at.dy()?.reshape(at.inputs[0].shape())?)])
    }
    fn run(&self) -> Run {
        Run::View
    }
}

impl Tensor {
    /// The same elements under another shape.
    ///
    /// ```
    /// let x = neurona::Tensor::arange(6)?.reshape([2, 3])?;
    /// assert_eq!(x.shape().to_string(), "[2, 3]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::apply(Reshape { shape: shape.into() }, &[self])
    }

    /// The same elements under another shape, of which one size, given as −1, follows from the rest.
    ///
    /// ```
    /// let x = neurona::Tensor::arange(800)?.view([-1, 400])?;
    /// assert_eq!(x.shape().to_string(), "[2, 400]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn view<const N: usize>(&self, sizes: [isize; N]) -> Result<Tensor> {
        let known: usize = sizes.iter().filter(|&&s| s >= 0).map(|&s| s as usize).product();
        let open = sizes.iter().filter(|&&s| s == -1).count();
        if open > 1
            || sizes.iter().any(|&s| s < -1)
            || (open == 1 && (known == 0 || !self.numel().is_multiple_of(known)))
        {
            return Err(self.error("view", format!("{} elements do not fit {sizes:?}", self.numel())));
        }
        let shape: Shape = sizes.iter().map(|&s| if s == -1 { self.numel() / known } else { s as usize }).collect();
        self.reshape(shape)
    }

    /// Joins the dimensions from `start` to `end` (both included) into one.
    ///
    /// ```
    /// use neurona::{DType, Tensor};
    /// let x = Tensor::zeros([4, 16, 5, 5], DType::F32)?.flatten(1, -1)?;
    /// assert_eq!(x.shape().to_string(), "[4, 400]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape([1]);
        }
        let (start, end) = (self.dim("flatten", start)?, self.dim("flatten", end)?);
        if start > end {
            return Err(self.error("flatten", format!("dimension {start} comes after dimension {end}")));
        }
        let s = self.shape();
        let joined = s[start..=end].iter().product();
        self.reshape(s[..start].iter().copied().chain([joined]).chain(s[end + 1..].iter().copied()).collect::<Shape>())
    }

    /// Without a dimension of size 1; a dimension of another size is left as it is.
    #[track_caller]
    pub fn squeeze(&self, dim: isize) -> Result<Tensor> {
        let dim = self.dim("squeeze", dim)?;
        if self.shape()[dim] == 1 { self.reshape(self.shape().without(dim)) } else { Ok(self.clone()) }
    }

    /// With a new dimension of size 1.
    #[track_caller]
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        let rank = self.rank() as isize;
        let at = if dim < 0 { dim + rank + 1 } else { dim };
        if !(0..=rank).contains(&at) {
            return Err(self.error("unsqueeze", format!("there is no place {dim} for a new dimension")));
        }
        let mut sizes = self.shape().to_vec();
        sizes.insert(at as usize, 1);
        self.reshape(sizes)
    }
}
