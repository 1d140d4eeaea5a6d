//! Cells: named storage with a version. Parameters, statistics and optimizer state live in them.

use super::engine;
use super::node::{GradientSlot, Node, Source};
use super::version::Version;
use crate::cpu::storage::Storage;
use crate::cuda::Gpu;
use crate::tensor::{Device, Meta, Tensor};
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A value that changes from step to step.
///
/// Reading a cell gives a tensor bound to its present version: it keeps that value for ever, whatever
/// is written later. Writing stages a tensor as the next value; it is computed and stored when the
/// graph it belongs to runs.
#[derive(Clone, Debug)]
pub struct Cell(pub(crate) Arc<CellInner>);

#[derive(Debug)]
pub(crate) struct CellInner {
    pub name: Mutex<Option<Arc<str>>>,
    /// The last walk that has met it.
    pub mark: AtomicU32,
    pub requires_grad: AtomicBool,
    pub gradient: Arc<GradientSlot>,
    state: Mutex<CellState>,
}

#[derive(Debug)]
pub(crate) struct CellState {
    pub version: u64,
    /// The present version as a leaf of graphs.
    pub leaf: Tensor,
    /// The next value, not computed yet.
    pub staged: Option<Tensor>,
    /// Whether there is one, as all versions of the cell see it.
    is_staged: Arc<AtomicBool>,
    /// How many staged values stand on each other without having been computed.
    pub depth: u32,
}

/// A train-mode forward whose output nobody reads leaves its statistics staged, and with them its whole
/// graph. After this many the next one runs them, so that such a loop does not grow without end.
const DEEPEST: u32 = 8;

impl Cell {
    /// A cell that holds this value; runs the tensor when it has not been computed yet.
    pub fn new(value: &Tensor, requires_grad: bool) -> Result<Self> {
        let storage = engine::stored(value)?;
        Ok(Cell::holding(value.meta().clone(), value.device(), requires_grad, storage))
    }

    /// A cell of zeros, made without running anything.
    pub(crate) fn zeros(meta: Meta, device: Device) -> Result<Self> {
        let storage = match device {
            Device::Cpu => Storage::copy_of(&vec![0u8; meta.bytes()]),
            Device::Cuda(index) => Gpu::get(index)?.zeros(meta.bytes())?,
        };
        Ok(Cell::holding(meta, device, false, storage))
    }

    /// Moves its present value, and its gradient when it has one, to another device.
    pub(crate) fn to(&self, device: Device) -> Result<()> {
        if self.state().leaf.device() == device {
            return Ok(());
        }
        engine::force(&[], std::slice::from_ref(self))?;
        let mut state = self.state();
        if state.leaf.device() != device {
            let moved = state.leaf.to(device)?;
            let storage = engine::stored(&moved)?;
            let (cell, meta) = (Arc::downgrade(&self.0), moved.meta().clone());
            state.leaf = leaf(cell, &state.is_staged, meta, device, self.requires_grad(), storage);
            state.version += 1;
        }
        drop(state);
        if let Some(gradient) = self.grad() {
            self.0.gradient.set(gradient.to(device)?);
        }
        Ok(())
    }

    fn holding(meta: Meta, device: Device, requires_grad: bool, storage: Arc<Storage>) -> Self {
        let is_staged = Arc::new(AtomicBool::new(false));
        Cell(Arc::new_cyclic(|weak| CellInner {
            name: Mutex::default(),
            mark: AtomicU32::new(0),
            requires_grad: AtomicBool::new(requires_grad),
            gradient: Arc::default(),
            state: Mutex::new(CellState {
                version: 0,
                leaf: leaf(weak.clone(), &is_staged, meta, device, requires_grad, storage),
                staged: None,
                is_staged,
                depth: 0,
            }),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, CellState> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The present value, bound to this version; a staged one when there is one.
    pub fn get(&self) -> Result<Tensor> {
        let state = self.state();
        match &state.staged {
            None => Ok(state.leaf.clone()),
            Some(staged) if state.depth < DEEPEST => Ok(staged.clone()),
            Some(_) => {
                drop(state);
                engine::force(&[], std::slice::from_ref(self))?;
                self.get()
            }
        }
    }

    /// The present value on a device, where the cell is brought first if it is on another.
    pub(crate) fn get_on(&self, device: Device) -> Result<Tensor> {
        let value = self.get()?;
        if value.device() == device {
            return Ok(value);
        }
        drop(value);
        self.to(device)?;
        self.get()
    }

    /// Stages the next value. It must have the cell's shape and type.
    pub fn stage(&self, value: Tensor) -> Result<()> {
        let mut state = self.state();
        self.check(&state, &value)?;
        state.depth = if state.staged.is_some() { state.depth + 1 } else { 1 };
        state.staged = Some(value);
        state.is_staged.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Replaces the value at once; whatever was staged or accumulated is forgotten.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let storage = engine::stored(value)?;
        let mut state = self.state();
        self.check(&state, value)?;
        let device = state.leaf.device();
        let storage =
            if storage.device() == device { storage } else { storage.moved_to(device, value.meta().bytes())? };
        state.commit(&storage, self);
        Ok(())
    }

    fn check(&self, state: &CellState, value: &Tensor) -> Result<()> {
        if value.meta() == state.leaf.meta() {
            return Ok(());
        }
        let operands = [("cell", state.leaf.meta()), ("value", value.meta())];
        Err(Error::operands("write", "the value does not have the cell's shape and type", &operands))
    }

    /// How often it has been written.
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// Its name in the model, once it is known.
    pub fn name(&self) -> Option<Arc<str>> {
        self.0.name.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    pub(crate) fn set_name(&self, name: Arc<str>) {
        *self.0.name.lock().unwrap_or_else(|e| e.into_inner()) = Some(name);
    }

    /// Its shape and element type.
    pub fn meta(&self) -> Meta {
        self.state().leaf.meta().clone()
    }

    /// The gradient that `backward` has left here.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.gradient.get()
    }

    /// Forgets the gradient.
    pub fn zero_grad(&self) {
        self.0.gradient.clear();
    }

    /// Whether `backward` computes a gradient for it.
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad.load(Ordering::Relaxed)
    }

    /// Freezes or thaws it.
    pub fn set_requires_grad(&self, requires_grad: bool) {
        self.0.requires_grad.store(requires_grad, Ordering::Relaxed);
        let mut state = self.state();
        let storage = state.leaf.node.value(0).cloned();
        if let Some(storage) = storage {
            let meta = state.leaf.meta().clone();
            let cell = Arc::downgrade(&self.0);
            state.leaf = leaf(cell, &state.is_staged, meta, state.leaf.device(), requires_grad, storage);
        }
    }
}

impl CellState {
    /// Forgets the staged value.
    pub fn unstage(&mut self) {
        self.depth = 0;
        self.staged = None;
        self.is_staged.store(false, Ordering::Relaxed);
    }

    /// Makes `storage` the present value.
    pub fn commit(&mut self, storage: &Arc<Storage>, cell: &Cell) {
        self.version += 1;
        self.unstage();
        // Written in place, which happens only when nobody else has the leaf: it now stands for the new version.
        if self.leaf.node.value(0).is_some_and(|own| Arc::ptr_eq(own, storage)) {
            self.leaf.node.forget_copies();
            if let Source::Cell(version) = &self.leaf.node.source {
                version.renew();
            }
        } else {
            let (meta, device) = (self.leaf.meta().clone(), self.leaf.device());
            let cell = (Arc::downgrade(&cell.0), cell.requires_grad());
            self.leaf = leaf(cell.0, &self.is_staged, meta, device, cell.1, storage.clone());
        }
    }
}

fn leaf(
    cell: Weak<CellInner>,
    staged: &Arc<AtomicBool>,
    meta: Meta,
    device: Device,
    requires_grad: bool,
    storage: Arc<Storage>,
) -> Tensor {
    let source = Source::Cell(Version::new(cell, staged.clone()));
    Tensor { node: Node::with_value(source, meta, device, requires_grad, storage), out: 0 }
}
