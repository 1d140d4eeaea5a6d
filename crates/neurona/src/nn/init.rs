//! Initialisers, with PyTorch's names and formulas. Each draws a tensor of f32; the same seed gives the same one.
//!
//! ```
//! use neurona::nn::{Conv2d, init::{self, Fan, Nonlinearity}};
//! let layer = Conv2d::new(3, 64, 3)?;
//! layer.weight.set(&init::kaiming_normal(layer.weight.shape(), Fan::Out, Nonlinearity::Relu)?)?;
//! # Ok::<(), neurona::Error>(())
//! ```

use crate::tensor::{here, random};
use crate::{DType, Error, Result, Shape, Tensor};

/// Whether the forward pass keeps its variance, or the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fan {
    /// Inputs of one output.
    In,
    /// Outputs of one input.
    Out,
}

/// What follows a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// Nothing, or a convolution.
    Linear,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// max(x, 0).
    Relu,
    /// With this slope where the input is negative.
    LeakyRelu(f64),
    /// The self-normalising exponential unit.
    Selu,
}

impl Nonlinearity {
    /// By how much weights are to be larger to make up for what the function takes away.
    ///
    /// ```
    /// use neurona::nn::init::Nonlinearity;
    /// assert_eq!(Nonlinearity::Relu.gain(), 2f64.sqrt());
    /// ```
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::Relu => 2f64.sqrt(),
            Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::Selu => 0.75,
        }
    }
}

/// Inputs of one output and outputs of one input, for a weight `[out, in, …]`.
///
/// ```
/// assert_eq!(neurona::nn::init::fans([64, 3, 5, 2])?, (30, 640));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn fans(shape: impl Into<Shape>) -> Result<(usize, usize)> {
    let shape = shape.into();
    let &[outputs, inputs, ref window @ ..] = &shape[..] else {
        let problem = format!("a shape {shape} has no fan: it needs at least two dimensions");
        return Err(Error::op("init", problem).at(here()));
    };
    let window = window.iter().product::<usize>();
    Ok((inputs * window, outputs * window))
}

thread_local! {
    /// How many more numbers may be left empty; `None` where they are drawn.
    static ROOM: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Builds a network whose parameters are about to be replaced: what would be drawn stays zero, no random numbers
/// are used up, and more than `room` numbers in all are refused.
pub(crate) fn left_empty<T>(room: usize, build: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Restore(Option<usize>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ROOM.set(self.0);
        }
    }
    let _restore = Restore(ROOM.replace(Some(room)));
    build()
}

/// Whether [`left_empty`] is at work.
pub(crate) fn leaves_empty() -> bool {
    ROOM.get().is_some()
}

/// Numbers made of a shape, after sizes that no machine has room for were refused.
#[track_caller]
fn drawn(shape: Shape, draw: impl FnOnce(usize) -> Vec<f32>) -> Result<Tensor> {
    let zeros = Tensor::zeros(&shape, DType::F32)?;
    if let Some(room) = ROOM.get() {
        let left = room.checked_sub(shape.numel()).ok_or_else(|| {
            Error::op("init", format!("a parameter {shape} is larger than what is there for it")).at(here())
        })?;
        ROOM.set(Some(left));
        return Ok(zeros);
    }
    Tensor::from_vec(draw(shape.numel()), shape)
}

/// Uniform from −bound to bound.
#[track_caller]
pub fn uniform(shape: impl Into<Shape>, bound: f64) -> Result<Tensor> {
    let scaled = |u: f32| ((2.0 * u as f64 - 1.0) * bound) as f32;
    drawn(shape.into(), |n| random::uniform(n).into_iter().map(scaled).collect())
}

/// Normal with this mean and standard deviation.
///
/// ```
/// neurona::manual_seed(1);
/// let w = neurona::nn::init::normal([1000], 0.0, 0.02)?.to_vec::<f32>()?;
/// assert!(w.iter().all(|v| v.abs() < 0.2));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64) -> Result<Tensor> {
    drawn(shape.into(), |n| random::normal(n).into_iter().map(|v| (v as f64 * std + mean) as f32).collect())
}

/// Normal, cut off below `low` and above `high`: what lies outside is drawn again.
///
/// ```
/// let w = neurona::nn::init::trunc_normal([1000], 0.0, 1.0, -2.0, 2.0)?.to_vec::<f32>()?;
/// assert!(w.iter().all(|v| v.abs() <= 2.0));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn trunc_normal(shape: impl Into<Shape>, mean: f64, std: f64, low: f64, high: f64) -> Result<Tensor> {
    use crate::cpu::math::Real;
    let below = |x: f64| 0.5 * (1.0 + ((x - mean) / std * std::f64::consts::FRAC_1_SQRT_2).verf());
    let (from, to) = (below(low), below(high));
    if !(std > 0.0 && low < high && from < to) {
        let problem = format!("a normal distribution ({mean}, {std}) has nothing between {low} and {high}");
        return Err(Error::op("trunc_normal", problem).at(here()));
    }
    // The share below a value is uniform; its inverse gives the value.
    let value = |u: f32| {
        let share = from + (to - from) * (u as f64 + 0.5 / (1u32 << 24) as f64);
        (mean + std * quantile(share)).clamp(low, high) as f32
    };
    drawn(shape.into(), |n| random::uniform(n).into_iter().map(value).collect())
}

/// The value below which this share of a normal distribution lies: Acklam's fractions, good to 1.2e-9.
fn quantile(share: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    let polynomial = |c: &[f64], x: f64| c.iter().fold(0.0, |p, c| p * x + c);
    let tail = |share: f64| {
        let q = (-2.0 * share.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    match share {
        s if s < 0.02425 => tail(s),
        s if s > 1.0 - 0.02425 => -tail(1.0 - s),
        s => (s - 0.5) * polynomial(&A, (s - 0.5).powi(2)) / polynomial(&B, (s - 0.5).powi(2)),
    }
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

/// The standard deviation of Kaiming's initialisers.
#[track_caller]
fn kaiming(shape: &Shape, fan: Fan, nonlinearity: Nonlinearity) -> Result<f64> {
    let (inputs, outputs) = fans(shape)?;
    let fan = if fan == Fan::In { inputs } else { outputs };
    Ok(nonlinearity.gain() / (fan.max(1) as f64).sqrt())
}

/// Kaiming's (He's) uniform: within √3 · gain / √fan.
///
/// ```
/// use neurona::nn::init::{Fan, Nonlinearity, kaiming_uniform};
/// let w = kaiming_uniform([8, 6], Fan::In, Nonlinearity::Relu)?.to_vec::<f32>()?;
/// assert!(w.iter().all(|v| v.abs() <= 1.0));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn kaiming_uniform(shape: impl Into<Shape>, fan: Fan, nonlinearity: Nonlinearity) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming(&shape, fan, nonlinearity)?;
    uniform(shape, 3f64.sqrt() * std)
}

/// Kaiming's (He's) normal: standard deviation gain / √fan.
///
/// ```
/// use neurona::nn::init::{Fan, Nonlinearity, kaiming_normal};
/// assert_eq!(kaiming_normal([8, 3, 5, 5], Fan::Out, Nonlinearity::Relu)?.shape().to_string(), "[8, 3, 5, 5]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn kaiming_normal(shape: impl Into<Shape>, fan: Fan, nonlinearity: Nonlinearity) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming(&shape, fan, nonlinearity)?;
    normal(shape, 0.0, std)
}

/// The standard deviation of Xavier's initialisers.
#[track_caller]
fn xavier(shape: &Shape, gain: f64) -> Result<f64> {
    let (inputs, outputs) = fans(shape)?;
    Ok(gain * (2.0 / (inputs + outputs).max(1) as f64).sqrt())
}

/// Xavier's (Glorot's) uniform: within gain · √(6 / (fan_in + fan_out)).
///
/// ```
/// let w = neurona::nn::init::xavier_uniform([2, 4], 1.0)?.to_vec::<f32>()?;
/// assert!(w.iter().all(|v| v.abs() <= 1.0));
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64) -> Result<Tensor> {
    let shape = shape.into();
    let std = xavier(&shape, gain)?;
    uniform(shape, 3f64.sqrt() * std)
}

/// Xavier's (Glorot's) normal: standard deviation gain · √(2 / (fan_in + fan_out)).
#[track_caller]
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64) -> Result<Tensor> {
    let shape = shape.into();
    let std = xavier(&shape, gain)?;
    normal(shape, 0.0, std)
}

/// A convolution's weight `[out, in / groups, …]` that passes its input on: 1 in the middle of filter i for
/// channel i of each group, 0 elsewhere.
///
/// ```
/// use neurona::{Conv2dOptions, Tensor, nn::init};
/// let x = Tensor::rand([1, 2, 4, 4])?;
/// let y = x.conv2d(&init::dirac([2, 2, 3, 3], 1)?, None, Conv2dOptions { padding: [1, 1], ..Default::default() })?;
/// assert_eq!(y.to_vec::<f32>()?, x.to_vec::<f32>()?);
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn dirac(shape: impl Into<Shape>, groups: usize) -> Result<Tensor> {
    let shape = shape.into();
    let &[outputs, inputs, ref window @ ..] = &shape[..] else {
        return Err(Error::op("dirac", format!("needs filters [out, in, …], not {shape}")).at(here()));
    };
    if groups == 0 || outputs % groups != 0 {
        return Err(Error::op("dirac", format!("{outputs} filters do not divide into {groups} groups")).at(here()));
    }
    let (cells, per_group) = (window.iter().product::<usize>(), outputs / groups);
    let middle = window.iter().fold(0, |at, size| at * size + size / 2);
    drawn(shape.clone(), |n| {
        let mut values = vec![0.0; n];
        for filter in (0..outputs).filter(|f| f % per_group < inputs && cells > 0) {
            values[(filter * inputs + filter % per_group) * cells + middle] = 1.0;
        }
        values
    })
}

/// A matrix `[rows, columns · …]` whose rows, or columns where they are fewer, are orthogonal and have length `gain`.
///
/// ```
/// let w = neurona::nn::init::orthogonal([2, 3], 1.0)?;
/// let product = w.matmul(&w.t()?)?.to_vec::<f32>()?;
/// assert!((product[0] - 1.0).abs() < 1e-6 && product[1].abs() < 1e-6);
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn orthogonal(shape: impl Into<Shape>, gain: f64) -> Result<Tensor> {
    let shape = shape.into();
    let &[rows, ref rest @ ..] = &shape[..] else {
        return Err(Error::op("orthogonal", "needs a matrix").at(here()));
    };
    if rest.is_empty() {
        return Err(Error::op("orthogonal", format!("needs a matrix, not {shape}")).at(here()));
    }
    let columns = rest.iter().product::<usize>();
    let (count, length) = (rows.min(columns), rows.max(columns));
    drawn(shape.clone(), |n| {
        let draw = random::normal(n);
        let mut vectors: Vec<Vec<f64>> =
            draw.chunks(length.max(1)).map(|v| v.iter().map(|&v| v as f64).collect()).collect();
        for i in 0..vectors.len() {
            let (done, rest) = vectors.split_at_mut(i);
            let v = &mut rest[0];
            // Twice: what rounding leaves of the other directions the first time.
            for other in done.iter().chain(done.iter()) {
                let along: f64 = v.iter().zip(other).map(|(a, b)| a * b).sum();
                v.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
            let size = v.iter().map(|a| a * a).sum::<f64>().sqrt();
            v.iter_mut().for_each(|a| *a /= size);
        }
        let mut values = vec![0.0; n];
        for (i, v) in vectors.iter().enumerate().take(count) {
            for (j, x) in v.iter().enumerate() {
                let at = if rows <= columns { i * columns + j } else { j * columns + i };
                values[at] = (gain * x) as f32;
            }
        }
        values
    })
}

/// One number everywhere.
#[track_caller]
pub fn constant(shape: impl Into<Shape>, value: f64) -> Result<Tensor> {
    Tensor::full(shape, value, DType::F32)
}

/// Zeros.
#[track_caller]
pub fn zeros(shape: impl Into<Shape>) -> Result<Tensor> {
    constant(shape, 0.0)
}

/// Ones.
#[track_caller]
pub fn ones(shape: impl Into<Shape>) -> Result<Tensor> {
    constant(shape, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::math::Real;

    #[test]
    fn quantiles_undo_shares() {
        for i in 1..1000 {
            let share = i as f64 / 1000.0;
            let back = 0.5 * (1.0 + (quantile(share) * std::f64::consts::FRAC_1_SQRT_2).verf());
            assert!((back - share).abs() < 1e-9, "{share}: {back}");
        }
        assert!((quantile(1e-8) + 5.612001244174789).abs() < 1e-8);
    }

    #[test]
    fn mistakes_are_errors() {
        assert!(fans([3]).is_err() && kaiming_normal([3], Fan::In, Nonlinearity::Relu).is_err());
        assert!(dirac([3], 1).is_err() && dirac([3, 3, 3], 2).is_err() && dirac([3, 3, 3], 0).is_err());
        assert!(orthogonal([3], 1.0).is_err() && orthogonal((), 1.0).is_err());
        assert!(trunc_normal([3], 0.0, 1.0, 2.0, 1.0).is_err() && trunc_normal([3], 0.0, 0.0, -1.0, 1.0).is_err());
        assert!(normal([1 << 40], 0.0, 1.0).is_err());
    }

    #[test]
    fn empty_shapes() -> Result<()> {
        for shape in [[0, 3], [3, 0]] {
            assert_eq!(orthogonal(shape, 1.0)?.numel() + xavier_normal(shape, 1.0)?.numel(), 0);
            assert_eq!(dirac(shape, 1)?.numel(), 0);
        }
        Ok(())
    }
}
