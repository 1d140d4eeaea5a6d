//! What a user holds: tensors, their shapes and types, devices, random numbers, printing.

mod create;
mod device;
mod dtype;
mod operators;
mod print;
pub mod random;
mod shape;

pub use device::{Device, GpuInfo};
pub use dtype::{DType, Element, Number};
pub(crate) use dtype::{with_sized_type, with_storage_type};
pub use random::manual_seed;
pub use shape::{Meta, Shape};

use crate::error::Place;
use crate::graph::engine;
use crate::graph::node::{Inputs, Node, Source};
use crate::module_name::ModuleName;
use crate::ops::{Op, backward::Backward, cast::Cast};
use crate::{Error, Result};
use smallvec::SmallVec;
use std::cell::{Cell as StdCell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A node of a graph: its shape and type are known at once, its value is computed when it is needed.
///
/// ```
/// use neurona::Tensor;
/// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// let y = x.matmul(&x)?.relu()?;          // nothing is computed yet
/// assert_eq!(y.shape().to_string(), "[2, 2]");
/// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    pub(crate) node: Arc<Node>,
    pub(crate) out: usize,
}

thread_local! {
    static GRAD: StdCell<bool> = const { StdCell::new(true) };
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// Runs `body` without recording gradients, as `torch.no_grad()` does.
///
/// ```
/// use neurona::{Tensor, no_grad};
/// let w = Tensor::from([2.0f32]).requires_grad()?;
/// let y = no_grad(|| w.exp())?;
/// assert!(y.sum()?.backward().is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            GRAD.set(self.0);
        }
    }
    let _restore = Restore(GRAD.replace(false));
    body()
}

/// Whose ops are being traced; while it lives, errors and plans name it.
pub(crate) struct Scope(bool);

impl Scope {
    /// A module's: its ops keep the lines that called them.
    pub fn enter(module: Option<ModuleName>) -> Scope {
        Scope::push(module.map(|_| Place { module, caller: None }))
    }

    /// A node's: ops that its gradient rule builds stand where it stands.
    pub fn of(place: &Place) -> Scope {
        Scope::push(Some(*place))
    }

    fn push(place: Option<Place>) -> Scope {
        let entered = place.is_some();
        PLACES.with_borrow_mut(|stack| stack.extend(place));
        Scope(entered)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.0 {
            PLACES.with_borrow_mut(|stack| stack.pop());
        }
    }
}

/// The module and line that an op is being built for.
#[track_caller]
pub(crate) fn here() -> Place {
    called_at(Location::caller())
}

/// The same for a line that was noted before. Most ops need it only when they fail.
pub(crate) fn called_at(caller: &'static Location<'static>) -> Place {
    let caller = Some(caller);
    PLACES.with_borrow(|stack| match stack.last() {
        Some(place) => Place { module: place.module, caller: place.caller.or(caller) },
        None => Place { module: None, caller },
    })
}

impl Tensor {
    /// Adds an op's node; its results' shapes are checked now, at the caller's line.
    #[track_caller]
    pub(crate) fn add_node(op: Op, inputs: Inputs) -> Result<Arc<Node>> {
        let place = here();
        let metas: SmallVec<[&Meta; 32]> = inputs.iter().map(|t| t.meta()).collect();
        let outputs = match op.outputs(&metas) {
            Ok(outputs) => outputs,
            Err(e) => return Err(e.at(place)),
        };
        drop(metas);
        if let Err(e) = outputs.iter().try_for_each(|meta| create::checked(op.name(), &meta.shape)) {
            return Err(e.at(place));
        }
        let requires_grad = GRAD.get() && inputs.iter().any(|t| t.node.requires_grad);
        let device = inputs.iter().find_map(|t| t.node.device);
        if let Some(stray) = inputs.iter().find(|t| t.node.device.is_some() && t.node.device != device) {
            let (one, other) = (device.unwrap_or_default(), stray.device());
            let problem = format!("operands are on {one} and on {other}; move one with `to`");
            return Err(Error::op(op.name(), problem).at(place));
        }
        Ok(Node::new(Source::Op(op), inputs, outputs, device, requires_grad, place))
    }

    /// All results of an op.
    #[track_caller]
    pub(crate) fn apply_all(op: impl Into<Op>, inputs: &[&Tensor]) -> Result<SmallVec<[Tensor; 2]>> {
        let node = Self::add_node(op.into(), operands(inputs))?;
        Ok((0..node.outputs.len()).map(|out| Tensor { node: node.clone(), out }).collect())
    }

    /// The first result of an op.
    #[track_caller]
    pub(crate) fn apply(op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor { node: Self::add_node(op.into(), operands(inputs))?, out: 0 })
    }

    /// An error of a method made of several ops, at the caller's line.
    #[track_caller]
    pub(crate) fn error(&self, op: &'static str, problem: impl Into<String>) -> Error {
        Error::operands(op, problem, &[("input", self.meta())]).at(here())
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.node.outputs[self.out]
    }

    /// Sizes along each dimension.
    pub fn shape(&self) -> &Shape {
        &self.meta().shape
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The size along a dimension, counted from the end when negative.
    #[track_caller]
    pub fn size(&self, dim: isize) -> Result<usize> {
        Ok(self.shape()[self.dim("size", dim)?])
    }

    #[track_caller]
    pub(crate) fn dim(&self, op: &'static str, dim: isize) -> Result<usize> {
        match self.shape().dim(dim) {
            Some(dim) => Ok(dim),
            None => Err(self.error(op, format!("there is no dimension {dim}"))),
        }
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape().numel()
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.meta().dtype
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.node.device.unwrap_or_default()
    }

    /// The elements in row-major order, converted to `T`; computes the tensor when that has not happened yet.
    ///
    /// ```
    /// let x = neurona::Tensor::from([1.5f32, -2.0]);
    /// assert_eq!(x.to_vec::<f64>()?, [1.5, -2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let caller = Location::caller();
        let storage = engine::value(self).map_err(|e| e.at(called_at(caller)))?;
        let n = self.numel();
        Ok(with_storage_type!(self.dtype(), S => {
            storage.read::<S>()[..n].iter().map(|x| T::from_number(x.to_number())).collect()
        }))
    }

    /// The only element of a tensor that has one.
    ///
    /// ```
    /// assert_eq!(neurona::Tensor::from([2.0f32, 3.0]).sum()?.item::<f32>()?, 5.0);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return Err(self.error("item", "only a tensor with one element has an item; use to_vec or a reduction"));
        }
        let caller = Location::caller();
        let storage = engine::value(self).map_err(|e| e.at(called_at(caller)))?;
        Ok(with_storage_type!(self.dtype(), S => T::from_number(storage.read::<S>()[0].to_number())))
    }

    /// The same values as another element type.
    ///
    /// ```
    /// use neurona::{DType, Tensor};
    /// assert_eq!(Tensor::from([1.7f32, -1.7]).to_dtype(DType::I64)?.to_vec::<i64>()?, [1, -1]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() { Ok(self.clone()) } else { Tensor::apply(Cast { to: dtype }, &[self]) }
    }

    /// The same values on another device (`Device::cuda(0)`, `"cuda"`, `"cpu"`); computes the tensor first. The copy
    /// is apart from the graph: gradients do not flow through it.
    ///
    /// ```
    /// use neurona::{Device, Tensor};
    /// let device = Device::all().pop().unwrap_or_default();   // a GPU where there is one
    /// let y = Tensor::from([1.0f32, 2.0]).to(device)?.exp()?.to("cpu")?;
    /// assert_eq!(y.device(), Device::Cpu);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn to(&self, device: impl TryInto<Device, Error = impl Into<Error>>) -> Result<Tensor> {
        let device = device.try_into().map_err(Into::into)?.available()?;
        if self.node.device == Some(device) {
            return Ok(self.clone());
        }
        let place = here();
        let storage = engine::stored(self).map_err(|e| e.at(place))?;
        let storage =
            if storage.device() == device { storage } else { storage.moved_to(device, self.meta().bytes())? };
        Ok(Tensor::of_storage(self.meta().clone(), storage))
    }

    /// The same value, apart from the graph that computed it: no gradient flows through it.
    pub fn detach(&self) -> Tensor {
        if !self.node.requires_grad {
            return self.clone();
        }
        no_grad(|| self.reshape(self.shape())).unwrap_or_else(|_| self.clone())
    }

    /// Makes it a leaf that `backward` computes a gradient for; see [`Tensor::grad`].
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from([3.0f32]).requires_grad()?;
    /// (&x * &x)?.sum()?.backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn requires_grad(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(self.error("requires_grad", "only floating-point tensors have gradients"));
        }
        let source = Source::Variable(Arc::default());
        let node = Node::with_value(source, self.meta().clone(), self.device(), true, engine::stored(self)?);
        Ok(Tensor { node, out: 0 })
    }

    /// The gradient that `backward` has left for this leaf.
    pub fn grad(&self) -> Option<Tensor> {
        self.node.gradient_slot().and_then(|slot| slot.get())
    }

    /// Computes the gradient of this scalar by every parameter it depends on, and adds it to theirs.
    ///
    /// Like everything else it is computed when it is needed: by `optimizer.step()`, or when a gradient is read.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        if self.numel() != 1 {
            return Err(self.error("backward", "the loss must have one element; take its mean or sum first"));
        }
        if !self.node.requires_grad {
            return Err(self.error("backward", "nothing it depends on requires a gradient"));
        }
        let caller = Location::caller();
        let found = engine::trainable(self).map_err(|e| e.at(called_at(caller)))?;
        if self.node.spent.swap(true, Ordering::Relaxed) {
            return Err(self.error("backward", "was already called on this loss; compute the loss again"));
        }
        let inputs = std::iter::once(self).chain(found.iter().map(|(_, leaf)| leaf)).cloned().collect();
        let node = no_grad(|| Tensor::add_node(Backward.into(), inputs))?;
        let gradient = |out: usize| Tensor { node: node.clone(), out };
        // A gradient that is still pending runs first, so that graphs do not pile up.
        let pending: Vec<Tensor> = found.iter().filter_map(|(slot, _)| slot.get()).collect();
        if !pending.is_empty() {
            engine::force(&pending, &[])?;
        }
        drop(pending);
        for (out, (slot, _)) in found.iter().enumerate() {
            if let Some(old) = slot.get_or_set(gradient(out)) {
                slot.set(no_grad(|| old.add(&gradient(out)))?);
            }
        }
        // A variable owns its gradient, and a pending gradient its variable: computing it now lets both go.
        if found.iter().any(|(_, leaf)| matches!(leaf.node.source, Source::Variable(_))) {
            let gradients: Vec<Tensor> = (0..found.len()).map(gradient).collect();
            engine::force(&gradients, &[])?;
        }
        Ok(())
    }
}

/// Operands that their callers keep.
#[inline]
fn operands(inputs: &[&Tensor]) -> Inputs {
    let mut list = Inputs::with_capacity(inputs.len());
    inputs.iter().for_each(|t| list.push((*t).clone()));
    list
}
