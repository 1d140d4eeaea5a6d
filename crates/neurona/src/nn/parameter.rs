//! The leaves of a model: parameters, buffers, the training switch, and a layer's own path.

use super::{Item, Module, Visitor};
use crate::graph::cell::Cell;
use crate::tensor::Scope;
use crate::{Error, ModuleName, Result, Shape, Tensor};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A tensor that is trained.
///
/// ```
/// use neurona::{Tensor, nn::Parameter};
/// let p = Parameter::new(&Tensor::from([1.0f32, 2.0]))?;
/// p.get()?.sum()?.backward()?;
/// assert_eq!(p.grad().unwrap().to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Parameter(Cell);

/// A tensor that is saved with the model but not trained: running statistics.
#[derive(Clone, Debug)]
pub struct Buffer(Cell);

macro_rules! cell {
    ($Type:ident, $grad:literal) => {
        impl $Type {
            /// One that starts with this value.
            pub fn new(value: &Tensor) -> Result<Self> {
                Ok($Type(Cell::new(value, $grad)?))
            }

            /// Its present value; later changes do not show in it.
            pub fn get(&self) -> Result<Tensor> {
                self.0.get()
            }

            /// Replaces its value; shape and type must be the same.
            pub fn set(&self, value: &Tensor) -> Result<()> {
                self.0.set(value)
            }

            /// Its shape.
            pub fn shape(&self) -> Shape {
                self.0.meta().shape
            }

            /// The storage behind it.
            pub fn cell(&self) -> &Cell {
                &self.0
            }
        }
    };
}
cell!(Parameter, true);
cell!(Buffer, false);

impl Parameter {
    /// Its gradient, once `backward` has run.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.grad()
    }

    /// Replaces its gradient, which may be a tensor that has not been computed yet; shape and type must be the
    /// parameter's. This is how gradients are clipped or scaled inside the step's plan.
    ///
    /// ```
    /// use neurona::{Tensor, nn::Parameter};
    /// let p = Parameter::new(&Tensor::from([1.0f32, 2.0]))?;
    /// p.set_grad(&Tensor::from([3.0f32, 4.0]))?;
    /// assert_eq!(p.grad().unwrap().to_vec::<f32>()?, [3.0, 4.0]);
    /// assert!(p.set_grad(&Tensor::from([3.0f32])).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn set_grad(&self, gradient: &Tensor) -> Result<()> {
        let meta = self.0.meta();
        if *gradient.meta() != meta {
            let operands = [("parameter", &meta), ("gradient", gradient.meta())];
            return Err(Error::operands(
                "set_grad",
                "the gradient does not have the parameter's shape and type",
                &operands,
            ));
        }
        self.0.0.gradient.set(gradient.detach());
        Ok(())
    }

    /// Forgets its gradient.
    pub fn zero_grad(&self) {
        self.0.zero_grad();
    }

    /// Whether `backward` computes its gradient.
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    /// Freezes it (`false`) or thaws it.
    pub fn set_requires_grad(&self, requires_grad: bool) {
        self.0.set_requires_grad(requires_grad);
    }
}

impl Module for Parameter {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.item(Item::Parameter(self));
    }
}

impl Module for Buffer {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.item(Item::Buffer(self));
    }
}

/// Whether a layer is training; starts true.
#[derive(Debug)]
pub struct Mode {
    training: AtomicBool,
    held: AtomicBool,
}

impl Default for Mode {
    fn default() -> Self {
        Mode { training: AtomicBool::new(true), held: AtomicBool::new(false) }
    }
}

impl Mode {
    /// Whether the layer is training.
    pub fn training(&self) -> bool {
        self.training.load(Ordering::Relaxed) && !self.held.load(Ordering::Relaxed)
    }

    /// Holds the layer in evaluation mode whatever it is switched to (`true`), or lets go of it.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Switches it.
    pub fn set(&self, training: bool) {
        self.training.store(training, Ordering::Relaxed);
    }
}

impl Module for Mode {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.item(Item::Mode(self));
    }
}

/// The path of the layer that has it as a field, known once the model has been visited (for its parameters,
/// its mode, or to load it).
#[derive(Debug, Default)]
pub struct ModulePath(AtomicU32);

impl ModulePath {
    /// The path.
    pub fn get(&self) -> Option<ModuleName> {
        ModuleName::of(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, path: &str) {
        // Visiting a part on its own gives a shorter path than visiting the model it belongs to.
        if self.get().is_none_or(|known| known.len() <= path.len()) {
            self.0.store(ModuleName::new(path).map_or(0, ModuleName::number), Ordering::Relaxed);
        }
    }

    /// Until the result is dropped, ops are built in this layer's name.
    pub(crate) fn enter(&self) -> Scope {
        Scope::enter(self.get())
    }
}

impl Module for ModulePath {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.place(self);
    }
}
