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
}
