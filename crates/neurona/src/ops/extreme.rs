//! The largest and smallest elements, with their places: `max`, `min`, `max_dim`, `min_dim`.

use crate::Result;
use crate::tensor::{Number, Tensor};

impl Tensor {
    /// The largest element of all; equal ones share the gradient.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([[1.0f32, 5.0], [9.0, 4.0]]).max()?.item::<f32>()?, 9.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn max(&self) -> Result<Tensor> {
        self.amax(&self.all_dims(), false)
    }

    /// The smallest element of all; equal ones share the gradient.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([[1.0f32, 5.0], [9.0, 4.0]]).min()?.item::<f32>()?, 1.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn min(&self) -> Result<Tensor> {
        self.amin(&self.all_dims(), false)
    }

    /// The largest elements along a dimension and their places. The first of equal ones has the place and gets
    /// all the gradient, as in PyTorch.
    ///
    /// ```
    /// let (values, places) = neurona::Tensor::from([[1.0f32, 5.0], [9.0, 4.0]]).max_dim(1, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [5.0, 9.0]);
    /// assert_eq!(places.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.with_place(dim, keepdim, self.argmax(dim)?)
    }

    /// The smallest elements along a dimension and their places, as [`Tensor::max_dim`].
    ///
    /// ```
    /// let (values, places) = neurona::Tensor::from([[1.0f32, 5.0], [9.0, 4.0]]).min_dim(0, true)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(places.to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.with_place(dim, keepdim, self.argmin(dim)?)
    }

    /// The elements at these places, which are whole numbers without dimension `dim`.
    #[track_caller]
    fn with_place(&self, dim: isize, keepdim: bool, places: Tensor) -> Result<(Tensor, Tensor)> {
        let dim = self.dim("max", dim)?;
        let mut line = vec![1; self.rank()];
        line[dim] = self.shape()[dim];
        let kept = places.unsqueeze(dim as isize)?;
        let here = Tensor::arange(line[dim]).reshape(line)?.eq(&kept)?;
        // Chosen, not multiplied: infinities elsewhere in the line must not show.
        let chosen = here.where_(self, &self.number(Number::Int(0)))?;
        let values = chosen.sum_dims(&[dim as isize], keepdim)?.to_dtype(self.dtype())?;
        Ok((values, if keepdim { kept } else { places }))
    }
}
