//! Making tensors.

use super::{DType, Device, Element, Meta, Number, Shape, Tensor, with_storage_type};
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
        checked("from_vec", &meta.shape).map_err(|e| e.at(place.clone()))?;
        if meta.shape.numel() != values.len() {
            let problem = format!("{} values do not fill the shape", values.len());
            return Err(Error::operands("from_vec", problem, &[("shape", &meta)]).at(place));
        }
        Ok(Tensor::of_storage(meta, T::store(values)))
    }

    pub(crate) fn of_storage(meta: Meta, storage: Arc<Storage>) -> Tensor {
        Tensor { node: Node::with_value(Source::Data, meta, Device::Cpu, false, storage), out: 0 }
    }

    /// Plain numbers as a tensor whose values are inputs of plans: they may differ from run to run.
    pub(crate) fn numbers(values: impl IntoIterator<Item = Number>, meta: Meta) -> Tensor {
        let values: SmallVec<[Number; 2]> = values.into_iter().collect();
        let outputs = SmallVec::from_elem(meta, 1);
        let node = Node::new(Source::Numbers(values), Inputs::new(), outputs, Device::Cpu, false, super::here());
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

    /// Whole numbers from 0 to n − 1.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::arange(3).to_vec::<i64>()?, [0, 1, 2]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn arange(n: usize) -> Tensor {
        let values: Vec<i64> = (0..n as i64).collect();
        Tensor::of_storage(Meta::new([n], DType::I64), Storage::copy_of(&values))
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
        let storage = crate::cpu::storage::pool().take(values.len() * T::DTYPE.size());
        let buf = storage.buf();
        with_storage_type!(T::DTYPE, S => {
            // SAFETY: fresh from the pool, so nobody else reads or writes it.
            let to = unsafe { buf.slice_mut::<S>(0..values.len()) };
            to.iter_mut().zip(values).for_each(|(t, v)| *t = S::from_number(v.to_number()));
        });
        storage
    }
}
