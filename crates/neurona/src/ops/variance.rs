//! `var` and `std`: how far elements are from their mean.

use crate::Result;
use crate::tensor::Tensor;

impl Tensor {
    /// The variance over some dimensions. `correction` is what the count is lowered by: 1 gives PyTorch's
    /// default, the unbiased estimate; 0 the mean square deviation.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 3.0], [2.0, 8.0]]);
    /// assert_eq!(x.var(&[1], 1, false)?.to_vec::<f32>()?, [2.0, 18.0]);
    /// assert_eq!(x.var(&[1], 0, false)?.to_vec::<f32>()?, [1.0, 9.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn var(&self, dims: &[isize], correction: usize, keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(self.error("var", "needs a floating-point tensor"));
        }
        // In two passes: the difference of mean square and squared mean would lose everything far from 0.
        let apart = self.sub(&self.mean_dims(dims, true)?)?;
        let squares = apart.mul(&apart)?.sum_dims(dims, keepdim)?;
        let count = self.numel() / squares.numel().max(1);
        squares.div_scalar(count.saturating_sub(correction) as f64)
    }

    /// The standard deviation over some dimensions: the square root of [`Tensor::var`].
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 3.0], [2.0, 8.0]]);
    /// assert_eq!(x.std(&[1], 0, true)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn std(&self, dims: &[isize], correction: usize, keepdim: bool) -> Result<Tensor> {
        self.var(dims, correction, keepdim)?.sqrt()
    }
}
