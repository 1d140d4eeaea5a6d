//! Forcing a value: look the trace's plan up, or make it; run it; store what it computed.

use super::cell::{Cell, CellState};
use super::node::{GradientSlot, Source};
use super::plan::{Kept, Plan, write_numbers};
use super::stretch::Stretch;
use super::version::Room;
use super::walk::Trace;
use super::{debug, gradient, ir, lower};
use crate::cpu::runner::Runner;
use crate::cpu::storage::{self, QuickHasher, Storage};
use crate::cuda;
use crate::tensor::{DType, Device, Tensor};
use crate::{Error, Result};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Plans that are kept; the one unused for longest goes first.
const PLANS: usize = 128;

/// What one device needs to run: its thread team and arena, and the plans made so far.
struct Engine {
    trace: Trace,
    walk: u32,
    plans: HashMap<Key, Vec<(Plan, u64)>, BuildHasherDefault<QuickHasher>>,
    clock: u64,
    stats: Stats,
    /// When the plan of the present call had been found, and how long it ran.
    ran: Option<(Instant, Duration)>,
    misses: debug::Misses,
    runner: Runner,
    gpus: HashMap<usize, cuda::runner::Runner>,
}

/// What a plan is found by.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Of the line.
    digest: u64,
    fuse: bool,
    device: Device,
    /// The type of matrix work on a GPU, and whose kernels do it.
    mixed: Option<DType>,
    kernels: cuda::choice::Kernels,
}

/// By the line alone: the rest hardly ever differs.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

/// How often plans were made and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Plans made.
    pub compiled: u64,
    /// Of these, plans that differ from an earlier one in a single attribute; the log names the op when they repeat.
    pub near_misses: u64,
    /// Plans run.
    pub runs: u64,
    /// Forwards that ran a second time because a value was read before `backward`.
    pub again: u64,
    /// Plans captured as one graph on a GPU.
    pub captured: u64,
    /// Runs that were a single launch.
    pub replayed: u64,
    /// Bytes of the arenas.
    pub arena: usize,
    /// Bytes of packed, folded and transformed parameters that are kept on CPU cores for the next inference.
    pub prepared: usize,
    /// Time spent in kernels.
    pub running: Duration,
    /// Time spent on binding a plan's memory, storing what it computed and letting its graph go. What a step takes
    /// beyond this and `running` is tracing and looking the plan up.
    pub storing: Duration,
}

static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| {
    Mutex::new(Engine {
        trace: Trace::default(),
        walk: 0,
        plans: HashMap::default(),
        clock: 0,
        stats: Stats::default(),
        ran: None,
        misses: debug::Misses::default(),
        runner: Runner::new(),
        gpus: HashMap::new(),
    })
});

static FUSE: AtomicBool = AtomicBool::new(true);

fn engine() -> MutexGuard<'static, Engine> {
    // A panic during a run (a bug) leaves no half-written state that the next run would trust.
    ENGINE.lock().unwrap_or_else(|e| e.into_inner())
}

/// How often plans were made and run in this process.
///
/// ```
/// let before = neurona::stats();
/// neurona::Tensor::from([1.0, 2.0]).exp()?.to_vec::<f64>()?;
/// assert_eq!(neurona::stats().runs, before.runs + 1);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn stats() -> Stats {
    let engine = engine();
    let gpus = || engine.gpus.values();
    Stats {
        arena: engine.runner.arena_bytes() + gpus().map(|gpu| gpu.arena_bytes()).sum::<usize>(),
        prepared: Room::taken(),
        near_misses: engine.misses.total,
        captured: gpus().map(|gpu| gpu.captured).sum(),
        replayed: gpus().map(|gpu| gpu.replayed).sum(),
        ..engine.stats
    }
}

/// Sets the number of threads that plans run on; the results do not depend on it.
pub fn set_num_threads(threads: usize) {
    engine().runner.set_threads(threads);
}

/// The number of threads that plans run on.
pub fn num_threads() -> usize {
    engine().runner.threads()
}

/// Switches fusion off or on again: without it every op is a step of its own. For tests and for finding faults.
pub fn set_fusion(on: bool) {
    FUSE.store(on, Ordering::Relaxed);
}

static MIXED: AtomicU8 = AtomicU8::new(0);

/// Mixed precision on GPUs: `Some(DType::BF16)` or `Some(DType::F16)` does matrix work in 16 bits from now on, with f32
/// sums, statistics and parameters; `None` does all in f32. It changes how plans run, not the types users see. With f16
/// use a [`GradScaler`](crate::optim::GradScaler). CPU cores always compute in f32.
///
/// ```
/// use neurona::{DType, set_autocast};
/// set_autocast(Some(DType::BF16))?;
/// assert!(set_autocast(Some(DType::I64)).is_err());
/// set_autocast(None)?;
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn set_autocast(dtype: Option<DType>) -> Result<()> {
    let code = match dtype {
        None | Some(DType::F32) => 0,
        Some(DType::BF16) => 1,
        Some(DType::F16) => 2,
        Some(other) => return Err(Error::Argument(format!("mixed precision works in bf16 or f16, not in {other}"))),
    };
    MIXED.store(code, Ordering::Relaxed);
    Ok(())
}

/// The type of matrix work on GPUs, when it is not f32.
pub fn autocast() -> Option<DType> {
    match MIXED.load(Ordering::Relaxed) {
        1 => Some(DType::BF16),
        2 => Some(DType::F16),
        _ => None,
    }
}

/// The storage of a tensor's value in host memory, computed now when it has not been yet.
pub(crate) fn value(tensor: &Tensor) -> Result<Arc<Storage>> {
    let storage = stored(tensor)?;
    if storage.device() == Device::Cpu { Ok(storage) } else { storage.moved_to(Device::Cpu, storage.bytes()) }
}

/// The storage of a tensor's value where it lies, computed now when it has not been yet.
pub(crate) fn stored(tensor: &Tensor) -> Result<Arc<Storage>> {
    if let Source::Numbers(numbers) = &tensor.node.source {
        let mut bytes = vec![0; tensor.meta().bytes()];
        write_numbers(&mut bytes, numbers, tensor.dtype());
        return Ok(Storage::copy_of(&bytes));
    }
    let known = |t: &Tensor| t.node.value(t.out).cloned();
    if let Some(storage) = known(tensor) {
        return Ok(storage);
    }
    force(std::slice::from_ref(tensor), &[])?;
    known(tensor).ok_or_else(|| Error::op(tensor.node.name(), "its graph has been let go and its value was not kept"))
}

/// Computes the tensors asked for, and the staged writes of the cells named and of all cells their graph reads.
pub(crate) fn force(asked: &[Tensor], cells: &[Cell]) -> Result<()> {
    let mut guard = engine();
    let engine = &mut *guard;
    let result = engine.force(asked, cells);
    // Let go of the nodes even when something failed; keep the vectors' memory.
    engine.trace.clear();
    if let Some((found, running)) = engine.ran.take() {
        engine.stats.running += running;
        engine.stats.storing += found.elapsed().saturating_sub(running);
    }
    result
}

/// Every leaf that a loss depends on and that wants a gradient, with the place for it.
pub(crate) fn trainable(loss: &Tensor) -> Result<Vec<(Arc<GradientSlot>, Tensor)>> {
    let mut engine = engine();
    engine.walk = engine.walk.wrapping_add(1).max(1);
    let walk = engine.walk;
    let mut found = Vec::with_capacity(16);
    let mut stack: SmallVec<[Tensor; 16]> = SmallVec::new();
    stack.push(loss.clone());
    while let Some(tensor) = stack.pop() {
        let node = &tensor.node;
        if Trace::position(node, walk).is_some() {
            continue;
        }
        node.mark.store((walk as u64) << 32, Ordering::Relaxed);
        if !matches!(node.source, Source::Op(_)) {
            found.extend(node.gradient_slot().map(|slot| (slot, tensor)));
            continue;
        }
        let state = node.state();
        if state.cut {
            return Err(Error::op("backward", "a part of the loss was used by an earlier backward; compute it again"));
        }
        let wanted = |t: &&Tensor| t.node.requires_grad && Trace::position(&t.node, walk).is_none();
        stack.extend(state.inputs.iter().filter(wanted).cloned());
    }
    Ok(found)
}

impl Engine {
    fn force(&mut self, asked: &[Tensor], cells: &[Cell]) -> Result<()> {
        loop {
            self.trace.line_up(asked, cells, &mut self.walk);
            // From here to the commit nobody else can read the cells that are written: what they hold is decided
            // once, and so is who still wants it.
            let written = std::mem::take(&mut self.trace.cells);
            let mut locked: SmallVec<[_; 32]> = written.iter().map(Cell::state).collect();
            let outcome = self.trace.agrees(&locked, self.walk).then(|| self.compute(asked, &written, &mut locked));
            if let Some(Err(_)) = outcome {
                // What cannot be computed would fail for whoever reads the cell next: it keeps what it has.
                locked.iter_mut().for_each(|cell| cell.unstage());
            }
            drop(locked);
            self.trace.cells = written;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn compute(&mut self, asked: &[Tensor], written: &[Cell], locked: &mut [MutexGuard<'_, CellState>]) -> Result<()> {
        self.trace.find_roots(asked, locked, self.walk);
        if self.trace.roots.is_empty() && self.trace.writes.is_empty() {
            return Ok(());
        }
        let device = self.trace.device()?;
        if let Device::Cuda(index) = device
            && !self.gpus.contains_key(&index)
        {
            self.gpus.insert(index, cuda::runner::Runner::new(index)?);
        }
        if self.trace.again {
            self.stats.again += 1;
            tracing::debug!("a value was read before backward(): its forward runs again");
        }
        let fuse = FUSE.load(Ordering::Relaxed) && !debug::settings().check;
        let mixed = if device == Device::Cpu { None } else { autocast() };
        let key = Key { digest: self.trace.words.digest(), fuse, device, mixed, kernels: cuda::choice::kernels() };
        self.clock += 1;
        let known =
            self.plans.get(&key).and_then(|list| list.iter().position(|(plan, _)| plan.words == self.trace.words));
        let place = match known {
            Some(place) => place,
            None => self.compile(key)?,
        };
        let list = self.plans.get_mut(&key).expect("found or made above");
        let (plan, used) = &mut list[place];
        *used = self.clock;
        self.stats.runs += 1;
        let found = Instant::now();
        let mut runner = match device {
            Device::Cpu => On::Cpu(&mut self.runner),
            Device::Cuda(index) => On::Cuda(self.gpus.get_mut(&index).expect("started above")),
        };
        let running = run(plan, &self.trace, written, locked, &mut runner, device)?;
        self.ran = Some((found, running));
        Ok(())
    }

    fn compile(&mut self, key: Key) -> Result<usize> {
        self.misses.report(&self.trace, self.plans.values().flatten().map(|(plan, _)| &plan.words));
        let expansion = gradient::expand(&self.trace)?;
        let graph = ir::build(&self.trace, &expansion, self.walk)?;
        let graph = lower::lower(graph, key.fuse, key.device, key.mixed)?;
        let plan = Plan::new(&graph, &self.trace, self.walk, key.device)?;
        if key.device != Device::Cpu {
            cuda::choice::save();
        }
        self.stats.compiled += 1;
        debug::show(&plan);
        if self.plans.values().map(Vec::len).sum::<usize>() >= PLANS {
            let oldest = self.plans.values().flatten().map(|(_, used)| *used).min().unwrap_or(0);
            self.plans.retain(|_, list| {
                list.retain(|(_, used)| *used != oldest);
                !list.is_empty()
            });
        }
        let list = self.plans.entry(key).or_default();
        list.push((plan, self.clock));
        Ok(list.len() - 1)
    }
}

/// What runs a plan.
enum On<'a> {
    Cpu(&'a mut Runner),
    Cuda(&'a mut cuda::runner::Runner),
}

fn run(
    plan: &mut Plan,
    trace: &Trace,
    written: &[Cell],
    locked: &mut [MutexGuard<'_, CellState>],
    runner: &mut On<'_>,
    device: Device,
) -> Result<Duration> {
    let held = &trace.outside;
    // A node that stays differentiable keeps its graph, and the graph keeps the old values. A run that is checked
    // may stop halfway, and then nothing must have been overwritten.
    let overwrite = !debug::settings().check && held.iter().all(|&i| plan.consumed[i] || !trace.nodes[i].requires_grad);

    let here = |storage: Arc<Storage>| match device {
        Device::Cpu => Ok(storage),
        device => storage.moved_to(device, storage.bytes()),
    };
    let leaf = |slot: usize| trace.nodes[slot >> 16].value(slot & 0xFFFF);
    let mut kept: SmallVec<[Arc<Storage>; 4]> = SmallVec::with_capacity(plan.kept.len());
    for (trace_leaf, offset, dtype) in &plan.numbers {
        if let Source::Numbers(numbers) = &trace.nodes[*trace_leaf].source {
            write_numbers(&mut plan.block[*offset..], numbers, *dtype);
        }
    }
    for k in &plan.kept {
        kept.push(match k {
            Kept::Leaf(slot) => leaf(*slot).expect("a leaf has its value").clone(),
            Kept::Constant(i) => plan.constants[*i].clone(),
            Kept::Numbers { offset, bytes } => here(Storage::copy_of(&plan.block[*offset..offset + bytes]))?,
            Kept::Fresh { bytes, instead } => {
                let own = instead.filter(|slot| overwrite && !trace.held(slot >> 16)).and_then(leaf);
                // The leaf and the pool hold it: nobody else.
                match own.filter(|storage| Arc::strong_count(storage) == 2) {
                    Some(storage) => storage.clone(),
                    None => storage::take(device, *bytes).map_err(|e| cuda::runner::advise(e, plan, trace))?,
                }
            }
        });
    }
    observe(true);
    let outcome = match runner {
        On::Cpu(runner) => runner.run(plan, trace, &kept),
        On::Cuda(runner) => {
            let start = Instant::now();
            runner.run(plan, trace, &kept).map(|()| start.elapsed())
        }
    };
    observe(false);
    let running = outcome?;

    for (at, slot) in trace.roots.iter().zip(&plan.roots) {
        trace.nodes[at.node as usize].keep(at.out as usize, &kept[*slot]);
    }
    for ((cell, slot), state) in written.iter().zip(&plan.writes).zip(locked) {
        state.commit(&kept[*slot], cell);
    }
    for &i in held {
        let node = &trace.nodes[i];
        if plan.consumed[i] || !node.requires_grad {
            let mut state = node.state();
            state.cut = node.requires_grad;
            let gone = std::mem::take(&mut state.inputs);
            drop(state);
            drop(gone);
        }
    }
    Ok(running)
}

/// The steps of the plan that ran last, as debug tables name them: how a test sees what was fused.
#[doc(hidden)]
pub fn latest_steps() -> Vec<String> {
    let engine = engine();
    let latest = engine.plans.values().flatten().max_by_key(|(_, used)| *used);
    latest.map_or_else(Vec::new, |(plan, _)| plan.steps.iter().map(|step| step.about.name.clone()).collect())
}

/// The stretches of the plan that ran last, each as the steps it goes through: how a test sees what needs no barrier.
#[doc(hidden)]
pub fn latest_stretches() -> Vec<Vec<String>> {
    let engine = engine();
    let Some((plan, _)) = engine.plans.values().flatten().max_by_key(|(_, used)| *used) else { return Vec::new() };
    let steps = |stretch: &Stretch| {
        let mut steps: Vec<usize> = stretch.links.iter().map(|link| link.step).collect();
        steps.dedup();
        steps.into_iter().map(|step| plan.steps[step].about.name.clone()).collect()
    };
    plan.stretches.iter().map(steps).collect()
}

static OBSERVER: OnceLock<fn(bool)> = OnceLock::new();

/// Calls `observer` with true before and with false after every run of a plan: how a test proves that running
/// one allocates nothing. It can be set once a process.
#[doc(hidden)]
pub fn observe_runs(observer: fn(bool)) {
    let _ = OBSERVER.set(observer);
}

fn observe(begins: bool) {
    if let Some(observer) = OBSERVER.get() {
        observer(begins);
    }
}
