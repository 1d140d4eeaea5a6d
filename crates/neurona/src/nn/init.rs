//! Initialisers, with PyTorch's names and defaults.

use crate::tensor::random;
use crate::{DType, Result, Shape, Tensor};

/// Uniform from −bound to bound.
#[track_caller]
pub fn uniform(shape: impl Into<Shape>, bound: f64) -> Result<Tensor> {
    let shape = shape.into();
    // Refuses sizes that no machine has room for, before any number is drawn.
    Tensor::zeros(&shape, DType::F32)?;
    let values: Vec<f32> =
        random::uniform(shape.numel()).into_iter().map(|u| ((2.0 * u as f64 - 1.0) * bound) as f32).collect();
    Tensor::from_vec(values, shape)
}

/// What PyTorch's Linear and Conv layers start with: Kaiming-uniform with a = √5, which is uniform within
/// 1/√fan_in, for weight and bias alike.
///
/// ```
/// let w = neurona::nn::init::default_uniform([6, 3, 5, 5], 75)?.to_vec::<f32>()?;
/// assert!(w.iter().all(|v| v.abs() <= 1.0 / 75f32.sqrt()));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn default_uniform(shape: impl Into<Shape>, fan_in: usize) -> Result<Tensor> {
    uniform(shape, if fan_in > 0 { 1.0 / (fan_in as f64).sqrt() } else { 0.0 })
}
