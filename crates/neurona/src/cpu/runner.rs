//! Runs plans: binds their addresses, then sends the team through the steps.

use super::kernel::{Buf, Io, share};
use super::rounds::Walk;
use super::storage::{GAP, Storage};
use super::team::Team;
use crate::error::{Error, Result};
use crate::graph::debug;
use crate::graph::ir::Operand;
use crate::graph::lasting::{self, Preparation};
use crate::graph::plan::{Entry, Home, Machine, Plan, Step};
use crate::graph::stretch::Stretch;
use crate::graph::walk::Trace;
use crate::tensor::{DType, Device};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The thread team and the memory that all plans share.
pub(crate) struct Runner {
    team: Team,
    arena: Storage,
    scratch: Storage,
}

impl Runner {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = std::env::var("NEURONA_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(cores);
        Runner { team: Team::new(threads), arena: Storage::zeroed(0), scratch: Storage::zeroed(0) }
    }

    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    pub fn set_threads(&mut self, threads: usize) {
        if threads != self.threads() {
            self.team = Team::new(threads);
        }
    }

    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Runs all steps; says how long they took. `kept` are the storages of the values that outlive the plan.
    pub fn run(&mut self, plan: &mut Plan, trace: &Trace, kept: &[Arc<Storage>]) -> Result<Duration> {
        if self.arena.bytes() < plan.arena {
            // Let the old one go first: both at once may not fit.
            self.arena = Storage::zeroed(0);
            self.arena = Storage::zeroed(plan.arena);
        }
        let scratch = (plan.scratch + GAP).next_multiple_of(64);
        if self.scratch.bytes() < scratch * self.threads() {
            self.scratch = Storage::zeroed(scratch * self.threads());
        }
        bind(plan, trace, kept, self.arena.buf())?;
        lasting::prepare(plan, trace, self.arena.buf());
        let all_scratch = self.scratch.buf();
        let scratch_of = move |thread: usize| all_scratch.part::<u8>(thread * scratch, scratch);
        let (steps, table) = (plan.steps.as_slice(), plan.table.as_slice());
        if debug::settings().quiet() {
            // All in one place: each line that a worker has to fetch from its leader's core is a wait before it begins.
            let stretches = plan.stretches.as_slice();
            let walk = move |walk: &mut Walk<'_>| {
                let scratch = scratch_of(walk.thread());
                stretches.iter().for_each(|stretch| run_stretch(stretch, steps, table, walk, scratch));
            };
            let start = Instant::now();
            if plan.pace.alone() {
                self.team.run_alone(&walk)
            } else {
                self.team.run(&walk)
            }
            let time = start.elapsed();
            plan.pace.ran(time);
            lasting::keep(plan, trace);
            return Ok(time);
        }
        let mut report = debug::Report::default();
        for step in steps.iter().filter(|step| step.begin < step.phases.len()) {
            let start = Instant::now();
            self.team.run(&|walk| {
                for (phase, &tasks) in step.phases.iter().enumerate().skip(step.begin) {
                    walk.phase(tasks, tasks_of(step, phase, table, scratch_of(walk.thread())));
                }
            });
            report.add(step, start.elapsed());
            if debug::settings().check {
                for (buf, operand) in table[step.outputs.clone()].iter().zip(&step.about.outputs) {
                    // SAFETY: the step has ended; nobody writes until the next one starts.
                    check(step, operand, unsafe { buf.slice::<u8>() })?;
                }
            }
        }
        report.print();
        lasting::keep(plan, trace);
        Ok(report.total)
    }
}

/// One thread's share of a stretch: parts of the batch from its beginning to its end, or its phases one after the other.
fn run_stretch(stretch: &Stretch, steps: &[Step], table: &[Buf], walk: &mut Walk<'_>, scratch: Buf) {
    let parts = stretch.parts(steps, walk.threads());
    if parts > 1 {
        return walk.phase(parts, |part| {
            for link in stretch.due(steps) {
                let run = tasks_of(&steps[link.step], link.phase, table, scratch);
                share(link.tasks, parts, part).for_each(run);
            }
        });
    }
    for link in stretch.due(steps) {
        walk.phase(link.tasks, tasks_of(&steps[link.step], link.phase, table, scratch));
    }
}

/// What runs tasks of a phase.
#[inline]
fn tasks_of<'a>(step: &'a Step, phase: usize, table: &'a [Buf], scratch: Buf) -> impl Fn(usize) + 'a {
    let io = Io {
        inputs: &table[step.inputs.clone()],
        outputs: &table[step.outputs.clone()],
        workspace: table[step.workspace],
        scratch,
    };
    move |task| {
        if let Machine::Cpu(kernel) = &step.kernel {
            kernel.run(phase, task, &io);
        }
    }
}

/// Fills the plan's table with this run's addresses. Those inside the arena stay from run to run.
fn bind(plan: &mut Plan, trace: &Trace, kept: &[Arc<Storage>], arena: Buf) -> Result<()> {
    let Plan { table, entries, constants, block, bound, moving, preparations, .. } = plan;
    if *bound != arena.ptr::<u8>() as usize {
        *bound = arena.ptr::<u8>() as usize;
        preparations.iter_mut().for_each(Preparation::unbind);
        for (buf, entry) in table.iter_mut().zip(entries.iter()) {
            *buf = match entry.home {
                Home::Arena(offset) => arena.part::<u8>(offset, entry.bytes),
                Home::Constant(i) => constants[i].buf().part::<u8>(0, entry.bytes),
                Home::Numbers(offset) => Buf::new(block[offset..].as_mut_ptr(), entry.bytes),
                Home::Nowhere | Home::Kept(_) | Home::Leaf(_) => Buf::empty(),
            };
        }
    }
    for &i in moving.iter() {
        let Entry { home, bytes } = entries[i];
        let buf = match home {
            Home::Kept(k) => kept[k].buf().part::<u8>(0, bytes),
            Home::Leaf(slot) => {
                let (node, out) = (&trace.nodes[slot >> 16], slot & 0xFFFF);
                let buf = match node.value(out).filter(|value| value.device() == Device::Cpu) {
                    Some(value) => value.buf(),
                    None => node.value_on(out, Device::Cpu)?.buf(),
                };
                buf.part::<u8>(0, bytes)
            }
            _ => continue,
        };
        // Most stay where they were, and workers still have these lines in their caches: unless they are written.
        if table[i] != buf {
            table[i] = buf;
        }
    }
    Ok(())
}

/// Looks for NaN and infinity in what a step has written.
pub(crate) fn check(step: &Step, operand: &Operand, bytes: &[u8]) -> Result<()> {
    fn values<const N: usize>(bytes: &[u8], wide: fn([u8; N]) -> f64) -> impl Iterator<Item = f64> {
        bytes.as_chunks::<N>().0.iter().map(move |b| wide(*b))
    }
    let bad = match operand.meta.dtype {
        DType::F32 => first_bad(values(bytes, |b| f32::from_ne_bytes(b) as f64)),
        DType::F64 => first_bad(values(bytes, f64::from_ne_bytes)),
        DType::F16 => first_bad(values(bytes, |b| half::f16::from_ne_bytes(b).to_f64())),
        DType::BF16 => first_bad(values(bytes, |b| half::bf16::from_ne_bytes(b).to_f64())),
        _ => None,
    };
    match bad {
        None => Ok(()),
        Some((first, value, count)) => {
            let (op, place) = (step.about.name.clone(), step.about.place);
            Err(Error::NotFinite { op, place, count, first, value })
        }
    }
}

fn first_bad(values: impl Iterator<Item = f64>) -> Option<(usize, f64, usize)> {
    let mut bad = values.enumerate().filter(|(_, x)| !x.is_finite());
    let (first, value) = bad.next()?;
    Some((first, value, 1 + bad.count()))
}
