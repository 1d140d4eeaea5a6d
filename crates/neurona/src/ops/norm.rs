//! `norm` and `logsumexp`: sums with a root or a logarithm around them.

use crate::Result;
use crate::tensor::{DType, Number, Tensor};

impl Tensor {
    /// The norm over some dimensions: the sum of absolute values for `p` = 1, the root of the sum of squares for 2,
    /// the largest absolute value for infinity. At 0 the gradient of the root is 0, as in PyTorch.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[3.0f32, -4.0]]);
    /// assert_eq!(x.norm(1.0, &[1], false)?.to_vec::<f32>()?, [7.0]);
    /// assert_eq!(x.norm(2.0, &[1], false)?.to_vec::<f32>()?, [5.0]);
    /// assert_eq!(x.norm(f64::INFINITY, &[1], false)?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn norm(&self, p: f64, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(self.error("norm", "needs a floating-point tensor"));
        }
        // 16-bit squares would overflow.
        let x = self.to_dtype(self.dtype().compute())?;
        let y = if p == 1.0 {
            x.abs()?.sum_dims(dims, keepdim)
        } else if p == 2.0 {
            // The slope of the root at 0 is infinite, and must not be met.
            let sum = x.square()?.sum_dims(dims, keepdim)?;
            let (zero, number) = (sum.eq_scalar(0)?, |n| sum.number(Number::Int(n)));
            zero.where_(&number(0), &zero.where_(&number(1), &sum)?.sqrt()?)
        } else if p == f64::INFINITY {
            x.abs()?.amax(dims, keepdim)
        } else {
            Err(self.error("norm", format!("is there for p = 1, 2 and infinity, not {p}")))
        };
        y?.to_dtype(self.dtype())
    }

    /// ln Σ eˣ over some dimensions, without overflow; −∞ of nothing.
    ///
    /// ```
    /// let y = neurona::Tensor::from([1000.0f32, 1000.0]).logsumexp(&[0], false)?;
    /// assert_eq!(y.item::<f32>()?, 1000.6932);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let x = self.to_float()?;
        let dtype = x.dtype();
        let x = x.to_dtype(dtype.compute())?;
        if dims.is_empty() {
            return x.to_dtype(dtype);
        }
        let mut nothing = false;
        for &dim in dims {
            nothing |= self.shape()[self.dim("logsumexp", dim)?] == 0;
        }
        if nothing {
            return x.exp()?.sum_dims(dims, keepdim)?.log()?.to_dtype(dtype);
        }
        // A largest element that is infinite is left where it is: ∞ − ∞ would be NaN.
        let largest = x.amax(dims, true)?.detach();
        let finite = largest.abs()?.lt_scalar(f64::INFINITY)?;
        let largest = finite.where_(&largest, &x.number(Number::Int(0)))?;
        let sum = x.sub(&largest)?.exp()?.sum_dims(dims, keepdim)?;
        let y = sum.log()?;
        y.add(&largest.reshape(y.shape())?)?.to_dtype(dtype)
    }

    /// Whether elements are NaN.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([f32::NAN, 1.0]).isnan()?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn isnan(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.ne(self) } else { Tensor::zeros(self.shape(), DType::Bool) }
    }
}
