//! Gradients cut down to size between `backward` and `step`, as part of the step's plan.

use crate::nn::Parameter;
use crate::tensor::no_grad;
use crate::{DType, Result, Tensor};

/// Scales all gradients by one factor so that their norm is at most `max_norm`, and gives the norm they had:
/// `torch.nn.utils.clip_grad_norm_`. Nothing is computed before the step (or before the norm is read).
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::{Optimizer, Sgd, clip_grad_norm}};
/// let w = Parameter::new(&Tensor::from([0.0f32, 0.0]))?;
/// let mut sgd = Sgd::new(vec![w.clone()], 1.0);
/// (&w.get()? * &Tensor::from([3.0f32, 4.0]))?.sum()?.backward()?;
/// let norm = clip_grad_norm(sgd.parameters(), 1.0)?;
/// sgd.step()?;
/// assert_eq!(norm.item::<f32>()?, 5.0);
/// assert!((w.get()?.to_vec::<f32>()?[1] + 0.8).abs() < 1e-5);
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    clip_grad_norm_with(parameters, max_norm, 2.0)
}

/// The same with another norm: the sum of absolute values (1), the largest absolute value (`f64::INFINITY`), or
/// the p-th root of the sum of p-th powers.
#[track_caller]
pub fn clip_grad_norm_with(parameters: &[Parameter], max_norm: f64, p: f64) -> Result<Tensor> {
    no_grad(|| {
        let gradients: Vec<(&Parameter, Tensor)> = parameters.iter().filter_map(|w| Some((w, w.grad()?))).collect();
        let mut total: Option<Tensor> = None;
        for (_, gradient) in &gradients {
            let one = match p {
                2.0 => gradient.mul(gradient)?.sum()?,
                1.0 => gradient.abs()?.sum()?,
                f64::INFINITY => gradient.abs()?.max()?,
                _ => gradient.abs()?.pow(p)?.sum()?,
            };
            total = Some(match total {
                Some(total) if p == f64::INFINITY => total.maximum(&one)?,
                Some(total) => total.add(&one)?,
                None => one,
            });
        }
        let norm = match total {
            None => return Tensor::zeros((), DType::F32),
            Some(total) if p == 2.0 => total.sqrt()?,
            Some(total) if p == 1.0 || p == f64::INFINITY => total,
            Some(total) => total.pow(1.0 / p)?,
        };
        // PyTorch's: never divided by zero, and never scaled up.
        let factor = (max_norm / &norm.add_scalar(1e-6)?)?.clamp_max(1.0)?;
        for (parameter, gradient) in &gradients {
            parameter.set_grad(&gradient.mul(&factor)?)?;
        }
        Ok(norm)
    })
}

/// Cuts every element of every gradient to lie between `-limit` and `limit`: `torch.nn.utils.clip_grad_value_`.
///
/// ```
/// use neurona::{Tensor, nn::Parameter, optim::clip_grad_value};
/// let w = Parameter::new(&Tensor::from([0.0f32, 0.0]))?;
/// (&w.get()? * &Tensor::from([3.0f32, -0.5]))?.sum()?.backward()?;
/// clip_grad_value(&[w.clone()], 1.0)?;
/// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [1.0, -0.5]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn clip_grad_value(parameters: &[Parameter], limit: f64) -> Result<()> {
    no_grad(|| {
        for parameter in parameters {
            if let Some(gradient) = parameter.grad() {
                parameter.set_grad(&gradient.clamp(-limit, limit)?)?;
            }
        }
        Ok(())
    })
}
