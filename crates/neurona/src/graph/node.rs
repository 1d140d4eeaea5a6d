//! A node of the graph: one op applied to its inputs, with what is known of its results.

use super::version::Version;
use crate::Result;
use crate::cpu::storage::Storage;
use crate::error::Place;
use crate::ops::Op;
use crate::tensor::{Device, Meta, Number, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Most ops have one result or two.
pub(crate) type Metas = SmallVec<[Meta; 2]>;
/// Most ops have at most three operands.
pub(crate) type Inputs = SmallVec<[Tensor; 3]>;

/// Where a node's value comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Computed from other nodes.
    Op(Op),
    /// Given by the user; the value is there from the start.
    Data,
    /// The value that a cell had at one version.
    Cell(Version),
    /// Given by the user, with a gradient of its own.
    Variable(Arc<GradientSlot>),
    /// Plain numbers that a plan takes as inputs: learning rates, factors, random keys.
    Numbers(SmallVec<[Number; 2]>),
}

/// Where `backward` leaves the gradient of a leaf.
#[derive(Debug, Default)]
pub(crate) struct GradientSlot(Mutex<Option<Tensor>>);

impl GradientSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn get(&self) -> Option<Tensor> {
        self.lock().clone()
    }

    /// The gradient that is there already; sets this one when there is none.
    pub fn get_or_set(&self, gradient: Tensor) -> Option<Tensor> {
        let mut slot = self.lock();
        if slot.is_none() {
            *slot = Some(gradient);
            return None;
        }
        slot.clone()
    }

    /// The old gradient is dropped after the lock is released: it may hold a large graph.
    pub fn set(&self, gradient: Tensor) {
        let _old = self.lock().replace(gradient);
    }

    pub fn clear(&self) {
        let _old = self.lock().take();
    }
}

/// One op applied to its inputs.
#[derive(Debug)]
pub(crate) struct Node {
    pub source: Source,
    pub outputs: Metas,
    /// None for what is made of plain numbers alone: it goes wherever it is needed.
    pub device: Option<Device>,
    pub requires_grad: bool,
    pub place: Place,
    /// Set when `backward` was called on it: its graph may be used once.
    pub spent: AtomicBool,
    /// (walk number, index): where the current walk has put this node. Walks hold the engine's lock.
    pub mark: AtomicU64,
    /// Each result's value, once it is there. Every step reads those of all parameters several times, so it takes no
    /// lock.
    values: Values,
    state: Mutex<State>,
}

type Values = SmallVec<[OnceLock<Arc<Storage>>; 2]>;

/// What changes in a node's life: it lets go of its inputs when it has been computed.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub inputs: Inputs,
    /// Copies of values on other devices than the one they were computed on.
    copies: Vec<(usize, Arc<Storage>)>,
    /// It was part of a graph whose gradient has been taken, and cannot be differentiated any more.
    pub cut: bool,
}

impl Node {
    /// Inlined, as a node is large and would be copied on the way.
    #[inline(always)]
    pub fn new(
        source: Source,
        inputs: Inputs,
        outputs: Metas,
        device: Option<Device>,
        requires_grad: bool,
        place: Place,
    ) -> Arc<Self> {
        let values = match outputs.len() {
            1 => one(OnceLock::new()),
            several => (0..several).map(|_| OnceLock::new()).collect(),
        };
        Self::with_values(source, inputs, outputs, device, requires_grad, place, values)
    }

    pub fn with_value(
        source: Source,
        meta: Meta,
        device: Device,
        requires_grad: bool,
        value: Arc<Storage>,
    ) -> Arc<Self> {
        let (outputs, values) = (one(meta), one(OnceLock::from(value)));
        Self::with_values(source, Inputs::new(), outputs, Some(device), requires_grad, Place::default(), values)
    }

    #[inline(always)]
    fn with_values(
        source: Source,
        inputs: Inputs,
        outputs: Metas,
        device: Option<Device>,
        requires_grad: bool,
        place: Place,
        values: Values,
    ) -> Arc<Self> {
        Arc::new(Node {
            source,
            outputs,
            device,
            requires_grad,
            place,
            spent: AtomicBool::new(false),
            mark: AtomicU64::new(0),
            values,
            state: Mutex::new(State { inputs, ..State::default() }),
        })
    }

    /// The value of a result, when it is there.
    pub fn value(&self, out: usize) -> Option<&Arc<Storage>> {
        self.values.get(out)?.get()
    }

    /// Whether all its values are there.
    pub fn is_known(&self) -> bool {
        self.values.iter().all(|value| value.get().is_some())
    }

    /// Keeps the value of a result. One that was computed before, and now again, stays: it has the same bits.
    pub fn keep(&self, out: usize, value: &Arc<Storage>) {
        let _ = self.values[out].set(value.clone());
    }

    /// The value of a leaf where a plan needs it. What has no device of its own may have been computed on another; a
    /// copy is made once and lives as long as the node.
    pub fn value_on(&self, out: usize, device: Device) -> Result<Arc<Storage>> {
        let value = self.value(out).expect("a leaf has its value");
        if value.device() == device {
            return Ok(value.clone());
        }
        let mut state = self.state();
        let known = state.copies.iter().find(|(of, copy)| *of == out && copy.device() == device);
        if let Some((_, copy)) = known {
            return Ok(copy.clone());
        }
        let copy = value.moved_to(device, value.bytes())?;
        state.copies.push((out, copy.clone()));
        Ok(copy)
    }

    /// A value was overwritten where it lies: copies of it would be the old one.
    pub fn forget_copies(&self) {
        self.state().copies.clear();
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Where the gradient of this leaf goes, when it has one.
    pub fn gradient_slot(&self) -> Option<Arc<GradientSlot>> {
        match &self.source {
            Source::Variable(slot) => Some(slot.clone()),
            Source::Cell(version) => version.cell.upgrade().map(|cell| cell.gradient.clone()),
            _ => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match &self.source {
            Source::Op(op) => op.name(),
            Source::Data => "data",
            Source::Cell(_) => "cell",
            Source::Variable(_) => "variable",
            Source::Numbers(_) => "numbers",
        }
    }
}

/// A list of one.
#[inline]
pub(crate) fn one<T>(item: T) -> SmallVec<[T; 2]> {
    let mut list = SmallVec::new();
    list.push(item);
    list
}

/// Long chains are taken apart one node at a time: the compiler's recursive drop would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        let mut doomed = std::mem::take(&mut state.inputs);
        while let Some(tensor) = doomed.pop() {
            if let Some(mut node) = Arc::into_inner(tensor.node) {
                let state = node.state.get_mut().unwrap_or_else(|e| e.into_inner());
                doomed.extend(state.inputs.drain(..));
            }
        }
    }
}
