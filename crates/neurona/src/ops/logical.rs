//! Truth values: `logical_not`, `logical_and`, `logical_or`, `logical_xor`, `any`, `all`.

use crate::Result;
use crate::tensor::{DType, Tensor};

impl Tensor {
    /// Whether each element is true: everything but zero is.
    #[track_caller]
    fn truth(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.clone()) } else { self.ne_scalar(0) }
    }

    /// Whether an element is not true. Of numbers everything but zero is true.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([true, false]).logical_not()?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        self.eq_scalar(0)
    }

    /// Whether both are true.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::from([true, false]).logical_and(&Tensor::from([2i64, 1]))?;
    /// assert_eq!(y.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        self.truth()?.mul(&other.truth()?)
    }

    /// Whether at least one is true.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::from([true, false]).logical_or(&Tensor::from([false]))?;
    /// assert_eq!(y.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        self.truth()?.add(&other.truth()?)
    }

    /// Whether just one is true.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let y = Tensor::from([true, false]).logical_xor(&Tensor::from([true]))?;
    /// assert_eq!(y.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        self.truth()?.ne(&other.truth()?)
    }

    /// Whether any element along some dimensions is true; none of nothing is.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[true, false], [false, false]]);
    /// assert_eq!(x.any(&[1], false)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn any(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.truth()?.sum_dims(dims, keepdim)?.gt_scalar(0)
    }

    /// Whether all elements along some dimensions are true; all of nothing are.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[true, true], [false, true]]);
    /// assert_eq!(x.all(&[1], false)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn all(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.logical_not()?.sum_dims(dims, keepdim)?.eq_scalar(0)
    }
}
