//! Dropout as a layer.

use super::{Forward, Mode, Module, ModulePath};
use crate::{Result, Tensor};

/// In training, zeroes elements at random and scales the rest up; in evaluation does nothing.
///
/// ```
/// use neurona::{Tensor, nn::{Dropout, Forward, Module}};
/// let layer = Dropout::new(0.5);
/// layer.eval();
/// assert_eq!(layer.forward(&Tensor::from([1.0f32, 2.0]))?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Dropout {
    /// The probability of an element to be zeroed.
    pub p: f64,
    mode: Mode,
    path: ModulePath,
}

impl Dropout {
    /// Zeroes with this probability, from 0 to 1.
    pub fn new(p: f64) -> Self {
        Dropout { p, mode: Mode::default(), path: ModulePath::default() }
    }
}

/// With PyTorch's default probability, a half.
impl Default for Dropout {
    fn default() -> Self {
        Dropout::new(0.5)
    }
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        if self.mode.training() { x.dropout(self.p) } else { Ok(x.clone()) }
    }
}

/// In training, zeroes whole channels of images at random and scales the rest up; in evaluation does nothing.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Dropout2d, Forward}};
/// let y = Dropout2d::new(0.5).forward(&Tensor::ones([4, 8, 2, 2], DType::F32)?)?.to_vec::<f32>()?;
/// assert!(y.chunks(4).all(|channel| channel == [0.0; 4] || channel == [2.0; 4]));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Dropout2d {
    /// The probability of a channel to be zeroed.
    pub p: f64,
    mode: Mode,
    path: ModulePath,
}

impl Dropout2d {
    /// Zeroes with this probability, from 0 to 1.
    pub fn new(p: f64) -> Self {
        Dropout2d { p, mode: Mode::default(), path: ModulePath::default() }
    }
}

/// With PyTorch's default probability, a half.
impl Default for Dropout2d {
    fn default() -> Self {
        Dropout2d::new(0.5)
    }
}

impl Forward for Dropout2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let &[n, c, _, _] = &x.shape()[..] else {
            return Err(x.error("dropout2d", "needs images [n, c, h, w]"));
        };
        if !self.mode.training() || self.p == 0.0 {
            return Ok(x.clone());
        }
        x.mul(&Tensor::ones([n, c, 1, 1], x.dtype())?.dropout(self.p)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn drops_in_training_only() -> Result<()> {
        let (layer, x) = (Dropout::new(0.25), Tensor::ones([4000], DType::F32)?);
        let zeros = |y: Tensor| Ok::<_, crate::Error>(y.to_vec::<f32>()?.iter().filter(|v| **v == 0.0).count());
        assert!((800..1200).contains(&zeros(layer.forward(&x)?)?));
        layer.eval();
        assert_eq!(zeros(layer.forward(&x)?)?, 0);
        layer.train();
        assert!(zeros(layer.forward(&x)?)? > 0);
        assert!(Dropout::new(1.5).forward(&x).is_err());
        Ok(())
    }

    #[test]
    fn channels_are_dropped_whole_and_so_are_their_gradients() -> Result<()> {
        let (layer, x) = (Dropout2d::new(0.25), Tensor::ones([40, 25, 2, 3], DType::F32)?.requires_grad()?);
        let y = layer.forward(&x)?;
        y.sum()?.backward()?;
        let (y, dx) = (y.to_vec::<f32>()?, x.grad().map(|g| g.to_vec::<f32>()).transpose()?.unwrap_or_default());
        assert_eq!(y, dx);
        assert!(y.chunks(6).all(|c| c.iter().all(|v| *v == c[0])));
        let zeros = y.chunks(6).filter(|c| c[0] == 0.0).count();
        assert!((190..310).contains(&zeros), "{zeros}");
        layer.eval();
        assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [1.0; 6000]);
        assert!(layer.forward(&x.flatten(1, -1)?).is_err());
        assert!(Dropout2d::new(-0.5).forward(&x).is_err());
        Ok(())
    }
}
