//! The largest and smallest elements, with their places: `max`, `min`, `max_dim`, `min_dim`.

use crate::Result;
use crate::tensor::Tensor;

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
        let kept = places.unsqueeze(self.dim("max", dim)? as isize)?;
        let values = self.gather(dim, &kept)?;
        Ok((if keepdim { values } else { values.squeeze(dim)? }, if keepdim { kept } else { places }))
    }
}
