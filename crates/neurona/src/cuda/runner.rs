//! Runs plans on a GPU. The first run launches kernel by kernel; when the same plan comes again its launches are
//! captured as one graph, which is replayed from then on.
//!
//! In the graph a part waits only for those that it shares memory with (see [`super::order`]): what does not fill the GPU
//! runs beside what needs it not.
//!
//! A graph has its addresses built in. Those of parameters and of the arena stay; inputs and results that come at
//! other addresses from run to run get a fixed place of their own in device memory, and are copied there or from there.

use super::capture::{Capture, Graph};
use super::gpu::{Gpu, Stream};
use super::kernel::{Io, Slot, Work};
use super::memory::Block;
use super::order::{Touched, order};
use super::transfer::{Event, Ring};
use crate::cpu::storage::Storage;
use crate::error::{Error, Result};
use crate::graph::debug;
use crate::graph::node::Source;
use crate::graph::plan::{Home, Kept, Plan, Step};
use crate::graph::walk::Trace;
use std::sync::Arc;
use std::time::Duration;

/// The memory that all plans of a GPU share.
pub(crate) struct Runner {
    gpu: &'static Gpu,
    arena: Option<Block>,
    numbers: Ring,
    /// Graphs made, and launched.
    pub captured: u64,
    pub replayed: u64,
}

/// A plan that has been captured this often without settling is launched kernel by kernel for good.
const CAPTURES: u32 = 16;

/// Most plans have fewer bytes of plain numbers than this.
const NUMBERS: usize = 16 << 10;

/// What a plan keeps on its GPU from run to run.
pub(crate) struct Resident {
    /// Plain numbers of the current run.
    numbers: Option<Block>,
    constants: Vec<Arc<Storage>>,
    /// What comes at addresses that may differ from run to run.
    movers: Vec<Mover>,
    /// Device addresses, parallel to the plan's entries.
    table: Vec<u64>,
    arena: u64,
    graph: Option<Graph>,
    captures: u32,
    runs: u64,
}

struct Mover {
    home: Home,
    bytes: usize,
    /// Entries of the table that hold its address.
    entries: Vec<usize>,
    /// Cells are overwritten in place: when one does move, it moves for good.
    steady: bool,
    /// The address that the graph has.
    bound: u64,
    fixed: Option<Block>,
}

impl Runner {
    pub fn new(index: usize) -> Result<Runner> {
        let gpu = Gpu::get(index)?;
        gpu.enter()?;
        Ok(Runner { gpu, arena: None, numbers: Ring::new(32, NUMBERS)?, captured: 0, replayed: 0 })
    }

    pub fn arena_bytes(&self) -> usize {
        self.arena.as_ref().map_or(0, Block::bytes)
    }

    /// Adds all steps of a plan to the GPU's work. `kept` are the storages of the values that outlive the plan.
    pub fn run(&mut self, plan: &mut Plan, trace: &Trace, kept: &[Arc<Storage>]) -> Result<()> {
        self.gpu.enter()?;
        if self.arena_bytes() < plan.arena {
            // Let the old one go first: both at once may not fit.
            self.arena = None;
            let arena = self.gpu.allocate(plan.arena).map_err(|e| advise(e, plan, trace))?;
            self.arena = Some(arena);
        }
        let mut resident = match plan.resident.take() {
            Some(resident) => resident,
            None => Box::new(Resident::new(plan, trace, self.gpu)?),
        };
        let arena = self.arena.as_ref().map_or(0, Block::address);
        let outcome = self.advance(&mut resident, plan, trace, kept, arena);
        plan.resident = Some(resident);
        outcome
    }

    fn advance(
        &mut self,
        resident: &mut Resident,
        plan: &Plan,
        trace: &Trace,
        kept: &[Arc<Storage>],
        arena: u64,
    ) -> Result<()> {
        let gpu = self.gpu;
        let actual: Vec<Arc<Storage>> =
            resident.movers.iter().map(|mover| mover.storage(trace, kept, gpu)).collect::<Result<_>>()?;
        // A graph of other addresses must not be replayed, also when this run does without one.
        if resident.bind(plan, &actual, arena, gpu).map_err(|e| advise(e, plan, trace))? {
            resident.graph = None;
        }
        let guard = gpu.stream()?;
        let stream = *guard;
        if let Some(block) = &resident.numbers {
            self.numbers.send(&plan.block, block.address(), stream)?;
        }
        for (mover, storage) in resident.movers.iter().zip(&actual) {
            if let (Home::Leaf(_), Some(fixed)) = (mover.home, &mover.fixed) {
                gpu.copy(storage.address(), fixed.address(), mover.bytes, stream)?;
            }
        }
        let table = &resident.table;
        if !debug::settings().quiet() {
            examine(plan, table, gpu, stream)?;
        } else if resident.runs == 0 || resident.captures >= CAPTURES {
            (0..plan.steps.len()).try_for_each(|step| launch(plan, table, step, stream))?;
        } else {
            if resident.graph.is_none() {
                resident.captures += 1;
                self.captured += 1;
                resident.graph = Some(Graph::capture(stream, |capture| take_down(plan, table, stream, capture))?);
            }
            if let Some(graph) = &resident.graph {
                graph.launch(stream)?;
                self.replayed += 1;
            }
        }
        for (mover, storage) in resident.movers.iter().zip(&actual) {
            if let (Home::Kept(_), Some(fixed)) = (mover.home, &mover.fixed) {
                gpu.copy(fixed.address(), storage.address(), mover.bytes, stream)?;
            }
        }
        resident.runs += 1;
        Ok(())
    }
}

impl Resident {
    fn new(plan: &Plan, trace: &Trace, gpu: &Gpu) -> Result<Resident> {
        let constants = plan
            .constants
            .iter()
            .map(|storage| storage.moved_to(crate::Device::Cuda(gpu.index), storage.bytes()))
            .collect::<Result<_>>()?;
        let numbers = if plan.block.is_empty() { None } else { Some(gpu.allocate(plan.block.len())?) };
        let mut movers: Vec<Mover> = Vec::new();
        for &entry in &plan.moving {
            let (home, bytes) = (plan.entries[entry].home, plan.entries[entry].bytes);
            match movers.iter_mut().find(|mover| mover.home == home) {
                Some(mover) => {
                    mover.bytes = mover.bytes.max(bytes);
                    mover.entries.push(entry);
                }
                None => {
                    let steady = match home {
                        Home::Leaf(slot) => matches!(trace.nodes[slot >> 16].source, Source::Cell(_)),
                        Home::Kept(k) => matches!(plan.kept[k], Kept::Fresh { instead: Some(_), .. }),
                        _ => true,
                    };
                    movers.push(Mover { home, bytes, entries: vec![entry], steady, bound: 0, fixed: None });
                }
            }
        }
        Ok(Resident {
            numbers,
            constants,
            movers,
            table: vec![0; plan.entries.len()],
            arena: 0,
            graph: None,
            captures: 0,
            runs: 0,
        })
    }

    /// Writes this run's addresses into the table; tells whether any differs from the last run's.
    fn bind(&mut self, plan: &Plan, actual: &[Arc<Storage>], arena: u64, gpu: &Gpu) -> Result<bool> {
        let mut moved = self.arena != arena || self.runs == 0;
        if moved {
            self.arena = arena;
            for (address, entry) in self.table.iter_mut().zip(&plan.entries) {
                *address = match entry.home {
                    Home::Arena(offset) => arena + offset as u64,
                    Home::Constant(i) => self.constants[i].address(),
                    Home::Numbers(offset) => self.numbers.as_ref().map_or(0, Block::address) + offset as u64,
                    Home::Nowhere | Home::Kept(_) | Home::Leaf(_) => *address,
                };
            }
        }
        for (mover, storage) in self.movers.iter_mut().zip(actual) {
            if mover.fixed.is_some() || mover.bound == storage.address() {
                continue;
            }
            moved = true;
            mover.bound = storage.address();
            if self.runs > 0 && !mover.steady {
                let block = gpu.allocate(mover.bytes)?;
                mover.bound = block.address();
                mover.fixed = Some(block);
            }
            mover.entries.iter().for_each(|&entry| self.table[entry] = mover.bound);
        }
        Ok(moved)
    }
}

impl Mover {
    /// Where its value lies in this run. A leaf without a device of its own may lie in host memory.
    fn storage(&self, trace: &Trace, kept: &[Arc<Storage>], gpu: &Gpu) -> Result<Arc<Storage>> {
        match self.home {
            Home::Kept(k) => Ok(kept[k].clone()),
            Home::Leaf(slot) => trace.nodes[slot >> 16].value_on(slot & 0xFFFF, crate::Device::Cuda(gpu.index)),
            _ => unreachable!("only leaves and kept values move"),
        }
    }
}

/// The addresses of one step.
fn addresses<'a>(step: &Step, table: &'a [u64]) -> Io<'a> {
    Io { inputs: &table[step.inputs.clone()], outputs: &table[step.outputs.clone()], workspace: table[step.workspace] }
}

/// Adds where in the model it happened.
fn at(step: &Step, error: Error) -> Error {
    match error {
        Error::Cuda { what, problem } => {
            let about = &step.about;
            Error::Cuda { what: format!("{what} (for {}{}{})", about.name, about.place, about.place.line()), problem }
        }
        other => other,
    }
}

fn launch(plan: &Plan, table: &[u64], index: usize, stream: Stream) -> Result<()> {
    let step = &plan.steps[index];
    step.kernel.cuda()?.launch(&addresses(step, table), stream).map_err(|e| at(step, e))
}

/// Takes all parts of all steps down, each to run after those that it shares memory with.
fn take_down(plan: &Plan, table: &[u64], stream: Stream, capture: &mut Capture) -> Result<()> {
    let mut parts: Vec<(&Step, &dyn Work)> = Vec::new();
    for step in &plan.steps {
        parts.extend(step.kernel.cuda()?.parts().into_iter().map(|part| (step, part)));
    }
    let touched: Vec<Touched> = parts.iter().map(|(step, part)| touched(plan, table, step, *part)).collect();
    for ((step, part), after) in parts.iter().zip(order(&touched)) {
        capture.part(&after, || part.add(&addresses(step, table), stream)).map_err(|e| at(step, e))?;
    }
    Ok(())
}

/// The memory that a part reads and writes. Of a workspace it may use any part.
fn touched(plan: &Plan, table: &[u64], step: &Step, part: &dyn Work) -> Touched {
    let range = |entry: usize| table[entry]..table[entry] + plan.entries[entry].bytes as u64;
    let mut touched = Touched::default();
    for slot in part.touches() {
        match slot {
            Slot::Input(i) => touched.reads.push(range(step.inputs.start + i)),
            Slot::Output(i) => touched.writes.push(range(step.outputs.start + i)),
            Slot::Workspace(_) => touched.writes.push(range(step.workspace)),
            Slot::Null => {}
        }
    }
    touched
}

/// Runs step by step, with each one's time, and stops at the first that fails or gives NaN when that is asked.
fn examine(plan: &Plan, table: &[u64], gpu: &Gpu, stream: Stream) -> Result<()> {
    let mut report = debug::Report::default();
    let (start, end) = (Event::timed()?, Event::timed()?);
    for (index, step) in plan.steps.iter().enumerate() {
        start.record(stream)?;
        launch(plan, table, index, stream)?;
        end.record(stream)?;
        let failed = |e: Error| match e {
            Error::Cuda { problem, .. } => {
                Error::Cuda { what: format!("run {}{}", step.about.name, step.about.place), problem }
            }
            other => other,
        };
        end.wait().map_err(failed)?;
        report.add(step, Duration::from_secs_f64(end.since(&start)?));
        if debug::settings().check {
            for (address, operand) in table[step.outputs.clone()].iter().zip(&step.about.outputs) {
                let mut bytes = vec![0u8; operand.meta.bytes()];
                gpu.read(*address, &mut bytes, stream)?;
                crate::cpu::runner::check(step, operand, &bytes)?;
            }
        }
    }
    report.print();
    Ok(())
}

/// Adds to an error for lack of memory what takes the most, and a batch that may fit.
pub(crate) fn advise(error: Error, plan: &Plan, trace: &Trace) -> Error {
    let Error::OutOfMemory { asked, free, total, .. } = error else { return error };
    let mut largest: Vec<(String, usize)> = plan
        .steps
        .iter()
        .flat_map(|step| step.about.outputs.iter().map(move |o| (step, o)))
        .map(|(step, o)| {
            (format!("{}{} {}{}", step.about.name, step.about.place, o.meta.dtype, o.meta.shape), o.meta.bytes())
        })
        .collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    largest.truncate(3);
    let batch = trace.nodes.iter().zip(&trace.leaf).find_map(|(node, leaf)| {
        let data = *leaf && matches!(node.source, Source::Data) && node.outputs[0].shape.len() > 1;
        data.then(|| node.outputs[0].shape[0])
    });
    let advice = match batch {
        // What activations take grows with the batch; a tenth is left for the rest.
        Some(batch) if batch > 1 => {
            let fits = (batch as f64 * 0.9 * free as f64 / asked.max(1) as f64) as usize;
            format!("; a batch of {} should fit (this one has {batch})", fits.clamp(1, batch - 1))
        }
        _ => String::new(),
    };
    Error::OutOfMemory { asked, free, total, largest, advice }
}
