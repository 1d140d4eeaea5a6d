//! A node of the graph: one op applied to its inputs, with what is known of its results.

use super::version::Version;
use crate::cpu::storage::Storage;
use crate::error::Place;
use crate::ops::Op;
use crate::tensor::{Device, Meta, Number, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

/// Most ops have one result.
pub(crate) type Metas = SmallVec<[Meta; 1]>;
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
    state: Mutex<State>,
}

/// What changes in a node's life: it is computed, and then lets go of its inputs.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub inputs: Inputs,
    pub values: SmallVec<[Option<Arc<Storage>>; 1]>,
    /// It was part of a graph whose gradient has been taken, and cannot be differentiated any more.
    pub cut: bool,
}

impl Node {
    pub fn new(
        source: Source,
        inputs: Inputs,
        outputs: Metas,
        device: Option<Device>,
        requires_grad: bool,
        place: Place,
    ) -> Arc<Self> {
        let values =
            if outputs.len() == 1 { SmallVec::from_buf([None]) } else { SmallVec::from_elem(None, outputs.len()) };
        Self::with_state(source, outputs, device, requires_grad, place, State { inputs, values, cut: false })
    }

    pub fn with_value(
        source: Source,
        meta: Meta,
        device: Device,
        requires_grad: bool,
        value: Arc<Storage>,
    ) -> Arc<Self> {
        let state = State { inputs: Inputs::new(), values: SmallVec::from_buf([Some(value)]), cut: false };
        Self::with_state(source, SmallVec::from_buf([meta]), Some(device), requires_grad, Place::default(), state)
    }

    fn with_state(
        source: Source,
        outputs: Metas,
        device: Option<Device>,
        requires_grad: bool,
        place: Place,
        state: State,
    ) -> Arc<Self> {
        Arc::new(Node {
            source,
            outputs,
            device,
            requires_grad,
            place,
            spent: AtomicBool::new(false),
            mark: AtomicU64::new(0),
            state: Mutex::new(state),
        })
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
