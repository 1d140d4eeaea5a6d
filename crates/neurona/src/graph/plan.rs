//! A plan: the steps in order, and where every value lives. Made once for a graph, run for every batch.

use super::arena::{Arena, aligned};
use super::ir::{Ir, Kind, Leaf, Operand, Value};
use super::lasting::{Lasting, Preparation};
use super::node::Source;
use super::stretch::{self, Stretch};
use super::walk::{Trace, Words};
use crate::cpu::kernel::{Buf, Kernel, Prepared, Strands};
use crate::cpu::pace::Pace;
use crate::cpu::storage::Storage;
use crate::cuda;
use crate::error::Place;
use crate::ops::{Op, Run};
use crate::tensor::{DType, Device, Number};
use crate::{Error, Result};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a value lives while a plan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// Bytes of the arena from this offset.
    Arena(usize),
    /// The storage of a leaf of the trace.
    Leaf(usize),
    /// A constant of the plan.
    Constant(usize),
    /// The block of plain numbers, from this offset.
    Numbers(usize),
    /// A storage that outlives the plan.
    Kept(usize),
    /// No memory at all.
    Nowhere,
}

/// A kernel with the addresses it works on, as ranges of the plan's table.
pub(crate) struct Step {
    pub kernel: Machine,
    pub phases: Vec<usize>,
    /// The phase that the current run begins with: those before have been done.
    pub begin: usize,
    pub inputs: std::ops::Range<usize>,
    pub outputs: std::ops::Range<usize>,
    pub workspace: usize,
    pub about: About,
}

/// The code of a step, for the one device of its plan.
pub(crate) enum Machine {
    Cpu(Box<dyn Kernel>),
    Cuda(Box<dyn cuda::kernel::Kernel>),
}

impl Machine {
    fn new(op: &Op, inputs: &[Operand], outputs: &[Operand], device: Device) -> Result<Machine> {
        Ok(match device {
            Device::Cpu => Machine::Cpu(op.cpu(inputs, outputs)?),
            // A step without results would launch nothing; kernels need not care.
            Device::Cuda(_) if outputs.iter().all(|o| o.meta.shape.numel() == 0) => {
                Machine::Cuda(Box::new(cuda::kernel::Launches::default()))
            }
            Device::Cuda(index) => Machine::Cuda(op.cuda(inputs, outputs, cuda::Gpu::get(index)?)?),
        })
    }

    fn phases(&self) -> Vec<usize> {
        match self {
            Machine::Cpu(kernel) => kernel.phases(),
            Machine::Cuda(_) => Vec::new(),
        }
    }

    fn workspace(&self) -> usize {
        match self {
            Machine::Cpu(kernel) => kernel.workspace(),
            Machine::Cuda(kernel) => kernel.workspace(),
        }
    }

    fn scratch(&self) -> usize {
        match self {
            Machine::Cpu(kernel) => kernel.scratch(),
            Machine::Cuda(_) => 0,
        }
    }

    /// What the first phase makes of lasting inputs.
    pub fn prepared(&self) -> Option<Prepared> {
        match self {
            Machine::Cpu(kernel) => kernel.prepared(),
            Machine::Cuda(_) => None,
        }
    }

    /// How tasks keep to parts of the batch.
    pub fn strands(&self) -> Option<Strands> {
        match self {
            Machine::Cpu(kernel) => kernel.strands(),
            Machine::Cuda(_) => None,
        }
    }

    pub fn flops(&self) -> u64 {
        match self {
            Machine::Cpu(kernel) => kernel.flops(),
            Machine::Cuda(kernel) => kernel.flops(),
        }
    }

    pub fn cuda(&self) -> Result<&dyn cuda::kernel::Kernel> {
        match self {
            Machine::Cuda(kernel) => Ok(kernel.as_ref()),
            Machine::Cpu(_) => Err(Error::op("plan", "was made for CPU cores")),
        }
    }
}

/// What the debug output says of a step.
pub(crate) struct About {
    pub name: String,
    pub place: Place,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    pub bytes: usize,
}

/// A storage that outlives the plan.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// From the pool, this many bytes; or the storage of this leaf when nobody else uses it.
    Fresh { bytes: usize, instead: Option<usize> },
    /// The storage of a leaf: the value is the leaf itself under another shape.
    Leaf(usize),
    /// A constant.
    Constant(usize),
    /// Plain numbers, copied from this offset of the block.
    Numbers { offset: usize, bytes: usize },
}

/// One entry of the table of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub home: Home,
    pub bytes: usize,
}

pub(crate) struct Plan {
    pub words: Words,
    pub steps: Vec<Step>,
    /// All phases of all steps, as threads walk them.
    pub stretches: Vec<Stretch>,
    pub entries: Vec<Entry>,
    /// The addresses of the current run, parallel to `entries`.
    pub table: Vec<Buf>,
    /// Entries whose addresses differ from run to run.
    pub moving: Vec<usize>,
    /// The address of the arena that the table was made for.
    pub bound: usize,
    pub constants: Vec<Arc<Storage>>,
    /// Plain numbers: (leaf of the trace, offset, type); constants are already in the block.
    pub numbers: Vec<(usize, usize, DType)>,
    pub block: Vec<u8>,
    pub kept: Vec<Kept>,
    /// For each root of the trace, the kept storage.
    pub roots: Vec<usize>,
    /// For each write of the trace, the kept storage.
    pub writes: Vec<usize>,
    /// For each node of the trace, whether a gradient has been taken through it.
    pub consumed: Vec<bool>,
    pub arena: usize,
    pub scratch: usize,
    pub pace: Pace,
    /// What can be left out of later runs.
    pub preparations: Vec<Preparation>,
    /// What the plan keeps on a GPU.
    pub resident: Option<Box<cuda::runner::Resident>>,
}

impl Plan {
    /// Chooses kernels and places every value.
    pub fn new(ir: &Ir, trace: &Trace, walk: u32, device: Device) -> Result<Plan> {
        let mut plan = Plan {
            words: trace.words.clone(),
            steps: Vec::new(),
            stretches: Vec::new(),
            entries: Vec::new(),
            table: Vec::new(),
            moving: Vec::new(),
            bound: 0,
            constants: Vec::new(),
            numbers: Vec::new(),
            block: Vec::new(),
            kept: Vec::new(),
            roots: Vec::new(),
            writes: Vec::new(),
            consumed: consumed(trace, walk),
            arena: 0,
            scratch: 0,
            pace: Pace::default(),
            preparations: Vec::new(),
            resident: None,
        };
        // A GPU's plans are captured whole, with whatever they pack.
        let lasting = if device == Device::Cpu { Lasting::new(ir, trace) } else { Lasting::default() };
        // Gradients come with the same bits whether the step that uses them is in the plan or follows it: kernels are not
        // chosen by what lasts there.
        let spared = |v: Value| !trace.differentiates && lasting.has(v);
        let mut homes: HashMap<Value, Home> = HashMap::new();
        plan.place_leaves(ir, trace, &mut homes);
        plan.place_kept(ir, &mut homes);
        let mut arena = Arena::default();
        let mut ready = if device == Device::Cpu { HashMap::new() } else { compiled(ir, device) };
        for (index, node) in ir.nodes.iter().enumerate() {
            let Kind::Op(op) = &node.kind else { continue };
            if let Run::View = op.run() {
                continue;
            }
            let inputs: Vec<Operand> =
                node.inputs.iter().map(|v| Operand { lasting: spared(*v), ..ir.operand(*v) }).collect();
            let outputs: Vec<Operand> =
                (0..node.outputs.len()).map(|out| ir.operand(Value { node: index, out })).collect();
            let kernel = match ready.remove(&index) {
                Some(kernel) => kernel,
                None => Machine::new(op, &inputs, &outputs, device),
            };
            let kernel = kernel.map_err(|e| e.at(node.place))?;
            if let Machine::Cuda(kernel) = &kernel {
                kernel.stand_at(&node.place);
            }
            let step = plan.steps.len();
            let first = plan.entries.len();
            for v in &node.inputs {
                let source = origin(ir, *v);
                let home = match homes.get(&source) {
                    Some(home) => *home,
                    None => Home::Arena(arena.used(source, step)),
                };
                plan.entries.push(Entry { home, bytes: ir.meta(*v).bytes() });
            }
            let middle = plan.entries.len();
            for out in 0..node.outputs.len() {
                let v = Value { node: index, out };
                let bytes = ir.meta(v).bytes();
                let home = match homes.get(&v) {
                    Some(home) => *home,
                    None => Home::Arena(arena.made(Some(v), bytes, step)),
                };
                plan.entries.push(Entry { home, bytes });
            }
            let end = plan.entries.len();
            let workspace = kernel.workspace();
            let home = match workspace {
                0 => Home::Nowhere,
                bytes => Home::Arena(arena.made(None, bytes, step)),
            };
            plan.entries.push(Entry { home, bytes: workspace });
            plan.scratch = plan.scratch.max(kernel.scratch());
            let bytes = plan.entries[first..end].iter().map(|e| e.bytes).sum();
            plan.steps.push(Step {
                phases: kernel.phases(),
                begin: 0,
                kernel,
                inputs: first..middle,
                outputs: middle..end,
                workspace: end,
                about: About { name: op.describe(), place: node.place, inputs, outputs, bytes },
            });
        }
        // Until now an arena home was the number of a lifetime; now lifetimes get their offsets.
        let apart = arena.fits_apart(device);
        let offsets = if apart { arena.apart() } else { arena.offsets(device) };
        plan.arena = arena.size;
        for entry in &mut plan.entries {
            if let Home::Arena(lifetime) = &mut entry.home {
                *lifetime = offsets[*lifetime];
            }
        }
        plan.table = vec![Buf::empty(); plan.entries.len()];
        let moves = |i: &usize| matches!(plan.entries[*i].home, Home::Kept(_) | Home::Leaf(_));
        plan.moving = (0..plan.entries.len()).filter(moves).collect();
        plan.forbid_overwrites();
        plan.preparations = lasting.preparations(ir, &plan);
        plan.stretches = stretch::stretches(&plan, apart);
        Ok(plan)
    }

    fn place_leaves(&mut self, ir: &Ir, trace: &Trace, homes: &mut HashMap<Value, Home>) {
        for (node, ir_node) in ir.nodes.iter().enumerate() {
            let Kind::Leaf(leaf) = &ir_node.kind else { continue };
            let meta = &ir_node.outputs[0];
            let numbers = |plan: &mut Plan| {
                let offset = plan.block.len();
                plan.block.resize(offset + aligned(meta.bytes()), 0);
                offset
            };
            // A computed node that is taken as a value may have several results.
            for out in 0..ir_node.outputs.len() {
                let home = match leaf {
                    Leaf::Trace(i) if matches!(trace.nodes[*i].source, Source::Numbers(_)) => {
                        let offset = numbers(self);
                        self.numbers.push((*i, offset, meta.dtype));
                        Home::Numbers(offset)
                    }
                    Leaf::Trace(i) => Home::Leaf(leaf_slot(*i, out)),
                    Leaf::Numbers(values) => {
                        let offset = numbers(self);
                        write_numbers(&mut self.block[offset..], values, meta.dtype);
                        Home::Numbers(offset)
                    }
                    Leaf::Constant(storage) => {
                        self.constants.push(storage.clone());
                        Home::Constant(self.constants.len() - 1)
                    }
                };
                homes.insert(Value { node, out }, home);
            }
        }
    }

    /// Gives roots and written cells storages of their own; values that share memory share the storage.
    fn place_kept(&mut self, ir: &Ir, homes: &mut HashMap<Value, Home>) {
        let mut slots: HashMap<Value, usize> = HashMap::new();
        let mut slot = |plan: &mut Plan, v: Value, instead: Option<usize>| {
            let source = origin(ir, v);
            *slots.entry(source).or_insert_with(|| {
                let index = plan.kept.len();
                plan.kept.push(match homes.get(&source) {
                    Some(Home::Leaf(i)) => Kept::Leaf(*i),
                    Some(Home::Constant(i)) => Kept::Constant(*i),
                    Some(Home::Numbers(offset)) => Kept::Numbers { offset: *offset, bytes: ir.meta(source).bytes() },
                    _ => Kept::Fresh { bytes: ir.meta(source).bytes(), instead },
                });
                if matches!(plan.kept[index], Kept::Fresh { .. }) {
                    homes.insert(source, Home::Kept(index));
                }
                index
            })
        };
        self.roots = ir.roots.iter().map(|v| slot(self, *v, None)).collect();
        self.writes = ir
            .writes
            .iter()
            .map(|w| {
                let instead = w.leaf.filter(|leaf| {
                    let Kind::Op(op) = &ir.nodes[w.value.node].kind else { return false };
                    let inputs = &ir.nodes[w.value.node].inputs;
                    op.in_place(inputs.len()).iter().any(|(out, input)| {
                        *out == w.value.out
                            && matches!(ir.nodes[inputs[*input].node].kind, Kind::Leaf(Leaf::Trace(i)) if i == *leaf)
                    })
                });
                slot(self, w.value, instead.map(|leaf| leaf_slot(leaf, 0)))
            })
            .collect();
    }

    /// A cell may be overwritten in place only when no later step and no kept value needs what it held.
    fn forbid_overwrites(&mut self) {
        let mut last_read: HashMap<usize, usize> = HashMap::new();
        let mut written_at: HashMap<usize, usize> = HashMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            for entry in &self.entries[step.inputs.clone()] {
                if let Home::Leaf(leaf) = entry.home {
                    last_read.insert(leaf, index);
                }
            }
            for entry in &self.entries[step.outputs.clone()] {
                if let Home::Kept(kept) = entry.home {
                    written_at.insert(kept, index);
                }
            }
        }
        let shared: Vec<usize> =
            self.kept.iter().filter_map(|k| if let Kept::Leaf(l) = k { Some(*l) } else { None }).collect();
        let roots: Vec<usize> = self.roots.clone();
        for (index, kept) in self.kept.iter_mut().enumerate() {
            if let Kept::Fresh { instead, .. } = kept {
                let bad = instead.is_some_and(|leaf| {
                    last_read.get(&leaf) > written_at.get(&index) || shared.contains(&leaf) || roots.contains(&index)
                });
                if bad {
                    *instead = None;
                }
            }
        }
    }
}

/// The kernels of a plan for a GPU, by node, made on several threads: compiling those that are new takes a third of a
/// second each.
fn compiled(ir: &Ir, device: Device) -> HashMap<usize, Result<Machine>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(node) = ir.nodes.get(index) else { break };
            let Kind::Op(op) = &node.kind else { continue };
            if !matches!(op.run(), Run::View) {
                let inputs: Vec<Operand> = node.inputs.iter().map(|v| ir.operand(*v)).collect();
                let outputs: Vec<Operand> =
                    (0..node.outputs.len()).map(|out| ir.operand(Value { node: index, out })).collect();
                made.push((index, Machine::new(op, &inputs, &outputs, device)));
            }
        }
        made
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(16);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all: HashMap<usize, Result<Machine>> = work().into_iter().collect();
        // A thread that panicked leaves its nodes to the caller, which meets the same fault where it can be seen.
        all.extend(others.into_iter().flat_map(|other| other.join().unwrap_or_default()));
        all
    })
}

/// Leaves of the trace with several results: one number for node and result.
pub(crate) fn leaf_slot(node: usize, out: usize) -> usize {
    node << 16 | out
}

/// The value whose memory this one is: views have none of their own.
pub(crate) fn origin(ir: &Ir, mut v: Value) -> Value {
    while let Kind::Op(op) = &ir.nodes[v.node].kind {
        match op.run() {
            Run::View => v = ir.nodes[v.node].inputs[0],
            _ => break,
        }
    }
    v
}

/// Writes plain numbers as elements of `dtype`.
pub(crate) fn write_numbers(block: &mut [u8], numbers: &[Number], dtype: DType) {
    use crate::tensor::Element;
    crate::tensor::with_storage_type!(dtype, T => {
        for (bytes, number) in block.chunks_exact_mut(size_of::<T>()).zip(numbers) {
            bytes.copy_from_slice(&T::from_number(*number).to_ne_bytes());
        }
    })
}

/// Which nodes of the trace lie under the loss of a `backward`.
fn consumed(trace: &Trace, walk: u32) -> Vec<bool> {
    let mut under = vec![false; trace.nodes.len()];
    for index in (0..trace.nodes.len()).rev() {
        if trace.leaf[index] {
            continue;
        }
        let inputs = trace.nodes[index].state().inputs.clone();
        let backward = matches!(trace.nodes[index].source, Source::Op(Op::Backward(_)));
        let through: SmallVec<[usize; 4]> = inputs
            .iter()
            .take(if backward { 1 } else { inputs.len() })
            .filter_map(|t| Trace::position(&t.node, walk).map(|i| i as usize))
            .collect();
        if backward || under[index] {
            through.into_iter().for_each(|i| under[i] = true);
        }
    }
    under
}
