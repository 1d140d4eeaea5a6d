//! Batch normalisation as layers.

use super::{Buffer, Forward, Mode, Module, ModulePath, Parameter};
use crate::{DType, Result, RunningStats, Tensor};

macro_rules! batch_norm { ($($(#[$doc:meta])* $Type:ident ($ranks:pat, $input:literal);)*) => { $(
    $(#[$doc])*
    #[derive(Debug, Module)]
    pub struct $Type {
        /// Scale of each channel; starts as 1.
        pub weight: Option<Parameter>,
        /// Shift of each channel; starts as 0.
        pub bias: Option<Parameter>,
        /// Mean of each channel over the batches seen.
        pub running_mean: Option<Buffer>,
        /// Variance of each channel over the batches seen.
        pub running_var: Option<Buffer>,
        /// How many batches were seen.
        pub num_batches_tracked: Option<Buffer>,
        /// Added to the variance, so that a constant channel is not divided by zero.
        pub eps: f64,
        /// The weight of a batch in the running statistics; `None` counts all batches alike.
        pub momentum: Option<f64>,
        mode: Mode,
        path: ModulePath,
    }

    impl $Type {
        /// A layer for this many channels.
        #[track_caller]
        pub fn new(channels: usize) -> Result<Self> {
            let (zeros, ones) = (Tensor::zeros([channels], DType::F32)?, Tensor::ones([channels], DType::F32)?);
            Ok($Type {
                weight: Some(Parameter::new(&ones)?),
                bias: Some(Parameter::new(&zeros)?),
                running_mean: Some(Buffer::new(&zeros)?),
                running_var: Some(Buffer::new(&ones)?),
                num_batches_tracked: Some(Buffer::new(&Tensor::scalar(0i64))?),
                eps: 1e-5,
                momentum: Some(0.1),
                mode: Mode::default(),
                path: ModulePath::default(),
            })
        }

        /// The same layer with this momentum; `None` counts all batches alike.
        pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
            self.momentum = momentum.into();
            self
        }

        /// The same layer with this much added to the variance.
        pub fn eps(mut self, eps: f64) -> Self {
            self.eps = eps;
            self
        }

        /// The same layer without scale and shift: PyTorch's `affine=False`.
        pub fn without_affine(mut self) -> Self {
            (self.weight, self.bias) = (None, None);
            self
        }

        /// The same layer without running statistics: it uses the batch's own in evaluation too.
        pub fn without_running_stats(mut self) -> Self {
            (self.running_mean, self.running_var, self.num_batches_tracked) = (None, None, None);
            self
        }
    }

    impl Forward for $Type {
        #[track_caller]
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let _scope = self.path.enter();
            if !matches!(x.rank(), $ranks) {
                return Err(x.error("batch_norm", concat!("needs an input ", $input)));
            }
            let affine = match (&self.weight, &self.bias) {
                (Some(weight), Some(bias)) => Some((weight.get()?, bias.get()?)),
                _ => None,
            };
            let affine = affine.as_ref().map(|(weight, bias)| (weight, bias));
            let (Some(mean), Some(var), Some(batches)) =
                (&self.running_mean, &self.running_var, &self.num_batches_tracked)
            else {
                return Ok(x.batch_norm_train(affine, None, self.momentum, self.eps)?.output);
            };
            let (old_mean, old_var) = (mean.get()?, var.get()?);
            if !self.mode.training() {
                return x.batch_norm_eval(&old_mean, &old_var, affine, self.eps);
            }
            let old = RunningStats { mean: &old_mean, var: &old_var, batches: &batches.get()? };
            let result = x.batch_norm_train(affine, Some(old), self.momentum, self.eps)?;
            for (buffer, value) in [mean, var, batches].into_iter().zip(result.stats.into_iter().flatten()) {
                buffer.cell().stage(value)?;
            }
            Ok(result.output)
        }
    }
)* } }

batch_norm! {
    /// Normalises each channel of images `[n, c, h, w]` to mean 0 and variance 1, then scales and shifts it.
    ///
    /// In training by the batch's own statistics, which also enter the running ones; in evaluation by those.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{BatchNorm2d, Forward, Module}};
    /// let layer = BatchNorm2d::new(1)?;
    /// let x = Tensor::from([1.0f32, 3.0]).reshape([2, 1, 1, 1])?;
    /// layer.forward(&x)?.to_vec::<f32>()?;
    /// assert_eq!(layer.running_mean.as_ref().unwrap().get()?.to_vec::<f32>()?, [0.2]);
    /// layer.eval();
    /// let y = layer.forward(&x)?.to_vec::<f32>()?;
    /// assert!((y[0] - 0.8 / (1.1f32 + 1e-5).sqrt()).abs() < 1e-6);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    BatchNorm2d (4, "[n, c, h, w]; use BatchNorm1d for [n, c]");
    /// Normalises each column of `[n, c]`, or each channel of `[n, c, l]`, as [`BatchNorm2d`] does each channel.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{BatchNorm1d, Forward}};
    /// let y = BatchNorm1d::new(1)?.eps(0.0).forward(&Tensor::from([[1.0f32], [3.0]]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    BatchNorm1d (2 | 3, "[n, c] or [n, c, l]; use BatchNorm2d for images");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: [f32; 4]) -> Result<Tensor> {
        Tensor::from(values).reshape([4, 1])
    }

    fn stats(layer: &BatchNorm1d) -> Result<[f64; 3]> {
        let buffers = layer.named_buffers();
        let value = |i: usize| buffers[i].1.get()?.item::<f64>();
        Ok([value(0)?, value(1)?, value(2)?])
    }

    fn close(a: [f64; 3], b: [f64; 3]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }

    #[test]
    fn momentum_and_cumulative() -> Result<()> {
        // Mean 2.5, unbiased variance 5/3; then mean 0, variance 4/3.
        let batches = [column([1.0, 2.0, 3.0, 4.0])?, column([-1.0, 1.0, -1.0, 1.0])?];
        let layer = BatchNorm1d::new(1)?;
        layer.forward(&batches[0])?.to_vec::<f32>()?;
        close(stats(&layer)?, [0.25, 0.9 + 0.1 * 5.0 / 3.0, 1.0]);
        layer.forward(&batches[1])?.to_vec::<f32>()?;
        close(stats(&layer)?, [0.225, 0.9 * (0.9 + 0.1 * 5.0 / 3.0) + 0.1 * 4.0 / 3.0, 2.0]);
        let layer = BatchNorm1d::new(1)?.momentum(None);
        for x in &batches {
            layer.forward(x)?.to_vec::<f32>()?;
        }
        close(stats(&layer)?, [1.25, 1.5, 2.0]);
        Ok(())
    }

    #[test]
    fn without_running_stats_the_batch_decides() -> Result<()> {
        let layer = BatchNorm1d::new(1)?.without_running_stats().without_affine().eps(0.0);
        layer.eval();
        assert!(layer.named_buffers().is_empty() && layer.parameters().is_empty());
        assert_eq!(layer.forward(&column([-1.0, 1.0, -1.0, 1.0])?)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
        Ok(())
    }

    #[test]
    fn ranks_are_checked() -> Result<()> {
        let images = Tensor::zeros([2, 3, 4, 4], DType::F32)?;
        let error = BatchNorm1d::new(3)?.forward(&images).unwrap_err().to_string();
        assert!(error.contains("use BatchNorm2d") && error.contains("[2, 3, 4, 4]"), "{error}");
        assert!(BatchNorm2d::new(3)?.forward(&images.flatten(1, -1)?).is_err());
        assert!(BatchNorm2d::new(4)?.forward(&images).is_err());
        assert!(BatchNorm1d::new(3)?.forward(&images.flatten(2, -1)?).is_ok());
        assert!(BatchNorm1d::new(4)?.forward(&images.flatten(2, -1)?).is_err());
        Ok(())
    }

    #[test]
    fn frozen_affine_stays_and_the_rest_trains() -> Result<()> {
        let layer = BatchNorm1d::new(1)?;
        layer.freeze();
        let before = Parameter::new(&Tensor::from([[2.0f32]]))?;
        let x = column([1.0, 2.0, 3.0, 5.0])?.matmul(&before.get()?)?;
        (&layer.forward(&x)? * &column([1.0, -1.0, 2.0, 1.0])?)?.sum()?.backward()?;
        assert!(layer.parameters().iter().all(|p| p.grad().is_none()));
        assert!(before.grad().is_some());
        assert_eq!(stats(&layer)?[2], 1.0);
        Ok(())
    }

    #[test]
    fn one_layer_twice_in_one_loss() -> Result<()> {
        let layer = BatchNorm1d::new(1)?;
        let (a, b) = (column([1.0, 2.0, 3.0, 5.0])?, column([-1.0, 1.0, -1.0, 2.0])?);
        let ya = layer.forward(&a)?;
        let yb = layer.forward(&b)?;
        let loss = ((&ya * &a)?.sum()? + (&yb * &b)?.sum()?)?;
        loss.backward()?;
        let gradient = layer.parameters()[0].grad().map(|g| g.item::<f32>()).transpose()?.unwrap_or(0.0);
        let want: f32 = [(&ya * &a)?, (&yb * &b)?]
            .iter()
            .map(|t| t.to_vec::<f32>().map(|v| v.iter().sum::<f32>()))
            .sum::<Result<f32>>()?;
        assert!((gradient - want).abs() < 1e-5, "{gradient} {want}");
        assert_eq!(stats(&layer)?[2], 2.0);
        Ok(())
    }
}
