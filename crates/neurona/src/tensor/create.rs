//! Making tensors.

use super::{DType, Element, Meta, Number, Shape, Tensor, with_storage_type};
use crate::cpu::kernel::Plain;
use crate::cpu::storage::Storage;
use crate::graph::node::{Inputs, Node, Source};
use crate::ops::expand::Expand;
use crate::{Error, Result};
use smallvec::SmallVec;
use std::sync::Arc;

/// Shapes beyond this many elements are refused before anything is allocated: 256 GiB of f32.
const MOST: usize = 1 << 36;

impl Tensor {
    /// A tensor of these elements in row-major order.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    /// assert_eq!(x.shape().to_string(), "[2, 3]");
    /// assert!(Tensor::from_vec(vec![1.0f32], [2, 3]).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(&values, shape)
    }

    /// A tensor of a copy of these elements in row-major order.
    #[track_caller]
    pub fn from_slice<T: Element>(values: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        let meta = Meta::new(shape, T::DTYPE);
        let place = super::here();
        checked("from_vec", &meta.shape).map_err(|e| e.at(place))?;
        if meta.shape.numel() != values.len() {
            let problem = format!("{} values do not fill the shape", values.len());
            return Err(Error::operands("from_vec", problem, &[("shape", &meta)]).at(place));
        }
        Ok(Tensor::of_storage(meta, T::store(values)))
    }

    pub(crate) fn of_storage(meta: Meta, storage: Arc<Storage>) -> Tensor {
        let device = storage.device();
        Tensor { node: Node::with_value(Source::Data, meta, device, false, storage), out: 0 }
    }

    /// A tensor whose elements `fill` writes where they will stay, and what `fill` gives; no tensor when it fails.
    #[track_caller]
    pub(crate) fn filled<T: Element + Plain, R>(
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [T]) -> Result<R>,
    ) -> Result<(Tensor, R)> {
        let meta = Meta::new(shape, T::DTYPE);
        checked("filled", &meta.shape).map_err(|e| e.at(super::here()))?;
        let (storage, result) = Storage::filled(meta.shape.numel(), fill);
        Ok((Tensor::of_storage(meta, storage), result?))
    }

    /// Plain numbers as a tensor whose values are inputs of plans: they may differ from run to run.
    pub(crate) fn numbers(values: impl IntoIterator<Item = Number>, meta: Meta) -> Tensor {
        let values: SmallVec<[Number; 2]> = values.into_iter().collect();
        let outputs = SmallVec::from_elem(meta, 1);
        let node = Node::new(Source::Numbers(values), Inputs::new(), outputs, None, false, super::here());
        Tensor { node, out: 0 }
    }

    /// A tensor of no dimensions.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::scalar(2.5f32).item::<f32>()?, 2.5);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::numbers([value.to_number()], Meta::new((), T::DTYPE))
    }

    /// A tensor filled with one value.
    ///
    /// ```
    /// use neurona::{DType, Tensor};
    /// assert_eq!(Tensor::full([2], 7.0, DType::F32)?.to_vec::<f32>()?, [7.0, 7.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, value: impl Into<Number>, dtype: DType) -> Result<Tensor> {
        let (shape, place) = (shape.into(), super::here());
        checked("full", &shape).map_err(|e| e.at(place))?;
        let scalar = Tensor::numbers([value.into()], Meta::new((), dtype));
        if shape.is_empty() { Ok(scalar) } else { Tensor::apply(Expand { shape }, &[&scalar]) }
    }

    /// Zeros.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(shape, 0, dtype)
    }

    /// Ones.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(shape, 1, dtype)
    }

    /// Zeros of another tensor's shape and type.
    #[track_caller]
    pub fn zeros_like(other: &Tensor) -> Result<Tensor> {
        Tensor::zeros(other.shape(), other.dtype())
    }

    /// Ones of another tensor's shape and type.
    #[track_caller]
    pub fn ones_like(other: &Tensor) -> Result<Tensor> {
        Tensor::ones(other.shape(), other.dtype())
    }

    /// One value in another tensor's shape and type.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::full_like(&Tensor::from([1i64, 2]), 7)?.to_vec::<i64>()?, [7, 7]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(other: &Tensor, value: impl Into<Number>) -> Result<Tensor> {
        Tensor::full(other.shape(), value, other.dtype())
    }

    /// Ones on the diagonal of a matrix, zeros elsewhere.
    ///
    /// ```
    /// use neurona::{DType, Tensor};
    /// assert_eq!(Tensor::eye(2, 3, DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
        let place = super::here();
        checked("eye", &Shape::from([rows, columns])).map_err(|e| e.at(place))?;
        Tensor::arange(rows)?.reshape([rows, 1])?.eq(&Tensor::arange(columns)?)?.to_dtype(dtype)
    }

    /// Numbers from `start` up to but without `end`, `step` apart: i64 when all three are whole, else f32.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::arange_step(7, 0, -3)?.to_vec::<i64>()?, [7, 4, 1]);
    /// assert_eq!(Tensor::arange_step(0, 1.0, 0.25)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75]);
    /// assert!(Tensor::arange_step(0, 3, 0).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_step(start: impl Into<Number>, end: impl Into<Number>, step: impl Into<Number>) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let place = super::here();
        let wrong = |problem: &str| Err(Error::op("arange", problem).at(place));
        let (from, to, by) = (start.as_f64(), end.as_f64(), step.as_f64());
        if by == 0.0 || ![from, to, by].iter().all(|v| v.is_finite()) {
            return wrong("start, end and step must be finite, and the step not 0");
        }
        if (to - from) * by.signum() < 0.0 {
            return wrong("the step leads away from the end");
        }
        if let (Number::Int(from), Number::Int(to), Number::Int(by)) = (start, end, step) {
            let (from, to, by) = (i128::from(from), i128::from(to), i128::from(by));
            let n = (to - from + by - by.signum()) / by;
            if n > MOST as i128 {
                return wrong("has too many elements");
            }
            let values: Vec<i64> = (0..n).map(|i| (from + i * by) as i64).collect();
            return Tensor::from_vec(values, [n as usize]);
        }
        let n = ((to - from) / by).ceil();
        if n > MOST as f64 {
            return wrong("has too many elements");
        }
        let values: Vec<f32> = (0..n as usize).map(|i| (from + i as f64 * by) as f32).collect();
        Tensor::from_vec(values, [n as usize])
    }

    /// `steps` numbers (f32) at even distances from `start` to `end`, both included.
    ///
    /// ```
    /// use neurona::Tensor;
    /// assert_eq!(Tensor::linspace(-1.0, 1.0, 5)?.to_vec::<f32>()?, [-1.0, -0.5, 0.0, 0.5, 1.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, end: f64, steps: usize) -> Result<Tensor> {
        let place = super::here();
        checked("linspace", &Shape::from([steps])).map_err(|e| e.at(place))?;
        let step = (end - start) / steps.saturating_sub(1).max(1) as f64;
        // From both ends, so that both are exact.
        let value = |i: usize| {
            if i < steps / 2 || steps == 1 { start + step * i as f64 } else { end - step * (steps - 1 - i) as f64 }
        };
        Tensor::from_vec((0..steps).map(|i| value(i) as f32).collect(), [steps])
    }

    /// Whole random numbers (i64) from `low` up to but without `high`, from the process's generator.
    ///
    /// ```
    /// let dice = neurona::Tensor::randint(1, 7, [100])?.to_vec::<i64>()?;
    /// assert!(dice.iter().all(|n| (1..7).contains(n)));
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn randint(low: i64, high: i64, shape: impl Into<Shape>) -> Result<Tensor> {
        let (shape, place) = (shape.into(), super::here());
        checked("randint", &shape).map_err(|e| e.at(place))?;
        if low >= high {
            return Err(
                Error::op("randint", format!("there is no number from {low} up to but without {high}")).at(place)
            );
        }
        let values = super::random::integers(low, high, shape.numel());
        Tensor::from_vec(values, shape)
    }

    /// Whole numbers from 0 to n − 1.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::arange(3)?.to_vec::<i64>()?, [0, 1, 2]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn arange(n: usize) -> Result<Tensor> {
        let place = super::here();
        checked("arange", &Shape::from([n])).map_err(|e| e.at(place))?;
        let values: Vec<i64> = (0..n as i64).collect();
        Ok(Tensor::of_storage(Meta::new([n], DType::I64), Storage::copy_of(&values)))
    }

    /// Uniform random numbers from 0 to 1, from the process's generator (see [`manual_seed`](super::manual_seed)).
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>) -> Result<Tensor> {
        let (shape, place) = (shape.into(), super::here());
        checked("rand", &shape).map_err(|e| e.at(place))?;
        let values = super::random::uniform(shape.numel());
        Tensor::from_slice(&values, shape)
    }

    /// Normally distributed random numbers with mean 0 and deviation 1, from the process's generator.
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>) -> Result<Tensor> {
        let (shape, place) = (shape.into(), super::here());
        checked("randn", &shape).map_err(|e| e.at(place))?;
        let values = super::random::normal(shape.numel());
        Tensor::from_slice(&values, shape)
    }
}

/// Refuses shapes whose number of elements overflows or is beyond any machine.
pub(crate) fn checked(op: &'static str, shape: &Shape) -> Result<()> {
    let total = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    if total.is_none_or(|n| n > MOST) {
        return Err(Error::op(op, format!("a tensor of shape {shape} is too large")));
    }
    Ok(())
}

/// Nested arrays become tensors: `Tensor::from([[1.0, 2.0], [3.0, 4.0]])`.
macro_rules! from_arrays { ($($t:ty),*) => { $(
    impl From<$t> for Tensor {
        fn from(x: $t) -> Self { Tensor::scalar(x) }
    }
    impl<const A: usize> From<[$t; A]> for Tensor {
        fn from(x: [$t; A]) -> Self { Tensor::of_storage(Meta::new([A], <$t>::DTYPE), <$t>::store(&x)) }
    }
    impl<const A: usize, const B: usize> From<[[$t; B]; A]> for Tensor {
        fn from(x: [[$t; B]; A]) -> Self {
            Tensor::of_storage(Meta::new([A, B], <$t>::DTYPE), <$t>::store(x.as_flattened()))
        }
    }
    impl<const A: usize, const B: usize, const C: usize> From<[[[$t; C]; B]; A]> for Tensor {
        fn from(x: [[[$t; C]; B]; A]) -> Self {
            Tensor::of_storage(Meta::new([A, B, C], <$t>::DTYPE), <$t>::store(x.as_flattened().as_flattened()))
        }
    }
)* } }
from_arrays!(f32, f64, i64, u8, bool);

/// Copies elements into storage; bools are stored as bytes.
pub(crate) trait Store: Sized {
    fn store(values: &[Self]) -> Arc<Storage>;
}

impl<T: Element> Store for T {
    fn store(values: &[T]) -> Arc<Storage> {
        with_storage_type!(T::DTYPE, S => Storage::of(values.iter().map(|v| S::from_number(v.to_number()))))
    }
}
