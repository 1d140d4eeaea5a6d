//! What lasts from run to run: cells that a plan reads and does not write, and whatever follows from them alone.
//!
//! In inference that is every parameter. Steps that compute something from parameters only (batch norm as a scale and
//! a shift), and first phases of kernels that pack or transform them, are done once for each version of these cells
//! and skipped after that.

use super::ir::{Ir, Kind, Leaf, Value};
use super::node::Source;
use super::plan::{Entry, Home, Plan, origin};
use super::version::{Found, Room, Version};
use super::walk::{Trace, Words};
use crate::cpu::kernel::Buf;
use crate::ops::Run;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The values of a graph that last.
#[derive(Default)]
pub(crate) struct Lasting(HashMap<Value, Recipe>);

/// How a value follows from cells: ops, operands before them, and the cells' leaves in the order they are met.
#[derive(Clone, Default)]
struct Recipe {
    words: Words,
    leaves: Vec<usize>,
}

/// What follows from more leaves than this (those met twice count twice) would take long to look up.
const LEAVES: usize = 64;

impl Lasting {
    pub fn new(ir: &Ir, trace: &Trace) -> Self {
        let written = |leaf: usize| ir.writes.iter().any(|w| w.leaf == Some(leaf));
        let mut lasting = Lasting::default();
        for (index, node) in ir.nodes.iter().enumerate() {
            let recipe = match &node.kind {
                Kind::Leaf(Leaf::Trace(i)) => {
                    let cell = matches!(trace.nodes[*i].source, Source::Cell(_)) && !written(*i);
                    cell.then(|| Recipe { words: Words::default(), leaves: vec![*i] })
                }
                Kind::Leaf(_) => None,
                Kind::Op(op) => lasting.join(&node.inputs, op),
            };
            if let Some(recipe) = recipe {
                for out in 0..node.outputs.len() {
                    let mut recipe = recipe.clone();
                    recipe.words.write_usize(out);
                    lasting.0.insert(Value { node: index, out }, recipe);
                }
            }
        }
        lasting
    }

    /// Whether a value stays the same from run to run.
    pub fn has(&self, v: Value) -> bool {
        self.0.contains_key(&v)
    }

    /// What `made` of these values follows from, when all of them last.
    fn join(&self, values: &[Value], made: &impl Hash) -> Option<Recipe> {
        let mut all = Recipe::default();
        for v in values {
            let one = self.0.get(v)?;
            all.words.append(&one.words);
            all.leaves.extend(&one.leaves);
        }
        made.hash(&mut all.words);
        all.words.write_usize(values.len());
        (1..=LEAVES).contains(&all.leaves.len()).then_some(all)
    }

    /// What a plan's steps can leave out once it is there.
    pub fn preparations(&self, ir: &Ir, plan: &Plan) -> Vec<Preparation> {
        let steps = || {
            let computed = |kind: &Kind| matches!(kind, Kind::Op(op) if !matches!(op.run(), Run::View));
            ir.nodes.iter().enumerate().filter(move |(_, node)| computed(&node.kind)).zip(&plan.steps)
        };
        let in_arena = |entry: &Entry| matches!(entry.home, Home::Arena(_));
        let mut found: Vec<Preparation> = Vec::new();
        let mut makers: HashMap<Value, usize> = HashMap::new();
        // Operands of each step that only a preparation reads.
        let mut private: Vec<Vec<usize>> = vec![Vec::new(); plan.steps.len()];
        for (number, ((index, node), step)) in steps().enumerate() {
            let Kind::Op(op) = &node.kind else { continue };
            let outputs = &plan.entries[step.outputs.clone()];
            if let Some(recipe) = self.join(&node.inputs, op).filter(|_| outputs.iter().all(in_arena)) {
                let mut new = Preparation::new(number, step.phases.len(), recipe);
                for (out, entry) in step.outputs.clone().enumerate() {
                    makers.insert(Value { node: index, out }, found.len());
                    new.places.push((entry, new.bytes));
                    new.bytes += plan.entries[entry].bytes.next_multiple_of(64);
                }
                private[number] = (0..node.inputs.len()).collect();
                found.push(new);
            } else if let Some(prepared) = step.kernel.prepared().filter(|_| step.phases.len() > 1) {
                let values: Vec<Value> = prepared.inputs.iter().map(|i| node.inputs[*i]).collect();
                let bytes = plan.entries[step.workspace].bytes;
                if let Some(recipe) = self.join(&values, &(prepared.form, bytes)) {
                    let mut new = Preparation::new(number, 1, recipe);
                    new.bytes = bytes;
                    new.places.push((step.workspace, 0));
                    new.wanted = true;
                    private[number] = prepared.inputs;
                    found.push(new);
                }
            }
        }
        for (number, ((_, node), step)) in steps().enumerate() {
            for (position, v) in node.inputs.iter().enumerate() {
                let source = origin(ir, *v);
                let Some(&maker) = makers.get(&source) else { continue };
                let offset = found[maker].places[source.out].1;
                found[maker].places.push((step.inputs.start + position, offset));
                match found.iter().position(|p| p.step == number).filter(|_| private[number].contains(&position)) {
                    Some(reader) => found[maker].readers.push(reader),
                    None => found[maker].wanted = true,
                }
            }
        }
        for preparation in &mut found {
            // What a step spreads out (one row for every image) is as soon made as read.
            let read: usize = plan.entries[plan.steps[preparation.step].inputs.clone()].iter().map(|e| e.bytes).sum();
            let dense = preparation.phases == 1 || preparation.bytes <= 2 * read + 4096;
            preparation.keeps = preparation.wanted && dense && preparation.bytes > 0;
        }
        found
    }
}

/// A step, or the first phase of one, that depends on lasting values only.
pub(crate) struct Preparation {
    step: usize,
    /// Phases of the step that can be left out when it is there.
    phases: usize,
    /// How it follows from leaves of the trace. It hangs at the first one's version.
    form: Arc<Words>,
    leaves: Vec<usize>,
    /// Entries of the plan's table that are its memory, with their offsets there.
    places: Vec<(usize, usize)>,
    bytes: usize,
    /// Later preparations that read it; it is not needed when they are there and nobody else wants it.
    readers: Vec<usize>,
    wanted: bool,
    /// Whether it is kept from run to run.
    keeps: bool,
    /// In this run: nothing to do, whether it is there or not needed.
    done: bool,
    /// In this run: its memory, when it is not in the arena.
    room: Option<Arc<Room>>,
    /// Where the table has its places: an address, or 0 for the arena.
    bound: usize,
}

fn version(trace: &Trace, leaf: usize) -> &Version {
    match &trace.nodes[leaf].source {
        Source::Cell(version) => version,
        _ => unreachable!("a plan's key says which leaves are cells"),
    }
}

impl Preparation {
    /// Phases of this step that runs may leave out.
    pub fn spares(&self, step: usize) -> usize {
        if self.step == step && (self.keeps || !self.wanted) { self.phases } else { 0 }
    }

    fn new(step: usize, phases: usize, recipe: Recipe) -> Self {
        Preparation {
            step,
            phases,
            form: Arc::new(recipe.words),
            leaves: recipe.leaves,
            places: Vec::new(),
            bytes: 0,
            readers: Vec::new(),
            wanted: false,
            keeps: false,
            done: false,
            room: None,
            bound: 0,
        }
    }

    /// The numbers of the versions it is made of.
    fn numbers<'a>(&'a self, trace: &'a Trace) -> impl Iterator<Item = u64> + Clone + 'a {
        self.leaves.iter().map(|leaf| version(trace, *leaf).number())
    }

    /// Finds what is there, or where to make it.
    fn look(&mut self, trace: &Trace, needed: bool) {
        (self.done, self.room) = (!needed, None);
        if needed && self.keeps {
            match version(trace, self.leaves[0]).find(&self.form, self.numbers(trace)) {
                Found::Kept(room) => (self.done, self.room) = (true, Some(room)),
                Found::Known => self.room = Room::take(self.bytes),
                // Kept from the second time on that it is made of the same versions: where each run has others, as
                // between steps of training, memory for all that is packed would be taken for nothing.
                Found::New => {}
            }
        }
    }

    /// Writes its addresses to the table.
    fn bind(&mut self, table: &mut [Buf], entries: &[Entry], arena: Buf) {
        let address = self.room.as_ref().map_or(0, |room| room.buf().ptr::<u8>() as usize);
        if std::mem::replace(&mut self.bound, address) == address {
            return;
        }
        for &(index, offset) in &self.places {
            let Entry { home, bytes } = entries[index];
            table[index] = match (&self.room, home) {
                (Some(room), _) => room.buf().part::<u8>(offset, bytes),
                (None, Home::Arena(offset)) => arena.part::<u8>(offset, bytes),
                _ => table[index],
            };
        }
    }

    /// The table was bound to an arena anew.
    pub fn unbind(&mut self) {
        self.bound = 0;
    }
}

/// Before a run: what is there is bound, and its phases are left out.
pub(crate) fn prepare(plan: &mut Plan, trace: &Trace, arena: Buf) {
    let Plan { preparations, steps, table, entries, .. } = plan;
    // Readers come first: they say what is needed.
    for index in (0..preparations.len()).rev() {
        let (upto, later) = preparations.split_at_mut(index + 1);
        let this = &mut upto[index];
        let needed = this.wanted || this.readers.iter().any(|reader| !later[reader - index - 1].done);
        this.look(trace, needed);
        this.bind(table, entries, arena);
        let begin = if this.done { this.phases } else { 0 };
        // Written only when it changes: workers have the step in their caches.
        if steps[this.step].begin != begin {
            steps[this.step].begin = begin;
        }
    }
}

/// After a run: what it has made is kept with the versions it was made of.
pub(crate) fn keep(plan: &mut Plan, trace: &Trace) {
    for preparation in &mut plan.preparations {
        if let Some(room) = preparation.room.take().filter(|_| !preparation.done) {
            version(trace, preparation.leaves[0]).keep(&preparation.form, preparation.numbers(trace), room);
        }
    }
}
