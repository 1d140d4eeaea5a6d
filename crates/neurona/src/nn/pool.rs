//! Pooling layers.

use super::{Forward, Module, ModulePath};
use crate::{PoolOptions, Result, Tensor};

/// The largest element of each window.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Forward, MaxPool2d}};
/// let layer = MaxPool2d::new(3).stride(2).padding(1);
/// let y = layer.forward(&Tensor::zeros([1, 6, 28, 28], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[1, 6, 14, 14]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct MaxPool2d {
    /// How the window looks and moves.
    #[module(skip)]
    pub options: PoolOptions,
    /// Rows and columns from one cell of a window to the next.
    #[module(skip)]
    pub dilation: [usize; 2],
    path: ModulePath,
}

/// The mean of each window.
///
/// ```
/// use neurona::{DType, Tensor, nn::{AvgPool2d, Forward}};
/// let y = AvgPool2d::new(2).forward(&Tensor::ones([1, 1, 4, 4], DType::F32)?)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0; 4]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct AvgPool2d {
    /// How the window looks and moves.
    #[module(skip)]
    pub options: PoolOptions,
    /// Whether zeros of the padding count as elements.
    pub count_include_pad: bool,
    path: ModulePath,
}

macro_rules! window { ($Type:ident { $($more:ident: $start:expr),* }) => {
    impl $Type {
        /// Square windows side by side.
        pub fn new(kernel: usize) -> Self {
            Self::with(PoolOptions::square(kernel))
        }

        /// Windows with all options.
        pub fn with(options: PoolOptions) -> Self {
            $Type { options, $($more: $start,)* path: ModulePath::default() }
        }

        /// The same layer with this many steps between windows in both directions.
        pub fn stride(mut self, stride: usize) -> Self {
            self.options.stride = [stride, stride];
            self
        }

        /// The same layer with this padding on all sides.
        pub fn padding(mut self, padding: usize) -> Self {
            self.options.padding = [padding, padding];
            self
        }

        /// The same layer, keeping a last window that does not fit whole or not.
        pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
            self.options.ceil_mode = ceil_mode;
            self
        }
    }
} }
window!(MaxPool2d { dilation: [1, 1] });
window!(AvgPool2d { count_include_pad: true });

impl MaxPool2d {
    /// The same layer with cells of a window this many rows and columns apart.
    ///
    /// ```
    /// use neurona::{DType, Tensor, nn::{Forward, MaxPool2d}};
    /// let y = MaxPool2d::new(2).stride(1).dilation(3).forward(&Tensor::zeros([1, 6, 28, 28], DType::F32)?)?;
    /// assert_eq!(y.shape().to_string(), "[1, 6, 25, 25]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.dilation = [dilation, dilation];
        self
    }
}

impl AvgPool2d {
    /// The same layer, counting zeros of the padding as elements or not.
    pub fn count_include_pad(mut self, count_include_pad: bool) -> Self {
        self.count_include_pad = count_include_pad;
        self
    }
}

impl Forward for MaxPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        x.max_pool2d_dilated(self.options, self.dilation)
    }
}

impl Forward for AvgPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        x.avg_pool2d_with(self.options, self.count_include_pad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_op() -> Result<()> {
        let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).reshape([1, 1, 3, 3])?;
        assert_eq!(MaxPool2d::new(2).forward(&x)?.to_vec::<f32>()?, [5.0]);
        assert_eq!(MaxPool2d::new(2).ceil_mode(true).forward(&x)?.to_vec::<f32>()?, [5.0, 6.0, 8.0, 9.0]);
        assert_eq!(MaxPool2d::new(2).stride(1).forward(&x)?.to_vec::<f32>()?, [5.0, 6.0, 8.0, 9.0]);
        assert_eq!(AvgPool2d::new(2).stride(3).padding(1).forward(&x)?.to_vec::<f32>()?, [0.25, 0.75, 1.75, 2.25]);
        let inside = AvgPool2d::new(2).stride(3).padding(1).count_include_pad(false);
        assert_eq!(inside.forward(&x)?.to_vec::<f32>()?, [1.0, 3.0, 7.0, 9.0]);
        Ok(())
    }
}
