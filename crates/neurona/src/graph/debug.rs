//! Seeing what the engine does: plans as text, each kernel's time, and where NaN first came from.

use super::plan::{Plan, Step};
use super::walk::{Trace, Words};
use crate::graph::ir::{Layout, Operand};
use std::collections::HashMap;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// What to show. From the environment, or set by [`set_debug`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// 1: plans when they are made; 2: also every kernel's time in every run.
    pub level: u8,
    /// Stop at the first NaN or infinity and name the op and layer that made it.
    pub check: bool,
}

impl Settings {
    /// Nothing to time and nothing to check while a plan runs.
    pub fn quiet(self) -> bool {
        self.level < 2 && !self.check
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(0);
static CHECK: AtomicBool = AtomicBool::new(false);
static READ: Once = Once::new();

pub(crate) fn settings() -> Settings {
    READ.call_once(|| {
        let level = std::env::var("NEURONA_DEBUG").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        LEVEL.fetch_max(level, Ordering::Relaxed);
        if std::env::var("NEURONA_CHECK").is_ok_and(|v| v != "0") {
            CHECK.store(true, Ordering::Relaxed);
        }
    });
    Settings { level: LEVEL.load(Ordering::Relaxed), check: CHECK.load(Ordering::Relaxed) }
}

/// Sets the debug level: 0 silent, 1 prints every plan when it is made, 2 also each kernel's time, GFLOP/s
/// and GB/s in every run. `NEURONA_DEBUG` does the same from outside. Output goes to standard error.
pub fn set_debug(level: u8) {
    settings();
    LEVEL.store(level, Ordering::Relaxed);
}

/// Stops a run at the first op whose result has a NaN or an infinity, with an error that names the op and
/// the layer. Slow: nothing is fused. `NEURONA_CHECK=1` does the same from outside.
pub fn set_check_finite(on: bool) {
    settings();
    CHECK.store(on, Ordering::Relaxed);
}

pub(crate) fn show(plan: &Plan) {
    if settings().level >= 1 {
        eprintln!("{}", text(plan));
    }
}

/// The plan as readable text, one line a step.
pub(crate) fn text(plan: &Plan) -> String {
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    let mut out = format!("plan: {} steps, arena {:.2} MiB\n", plan.steps.len(), mib(plan.arena));
    for (i, step) in plan.steps.iter().enumerate() {
        let list = |operands: &[Operand]| operands.iter().map(describe).collect::<Vec<_>>().join(" ");
        let place = step.about.place.module.as_deref().unwrap_or("");
        out += &format!(
            "{i:>4}  {:<28} {:<16} {} -> {}   tasks {:?}\n",
            step.about.name,
            place,
            list(&step.about.inputs),
            list(&step.about.outputs),
            step.phases
        );
    }
    out
}

fn describe(operand: &Operand) -> String {
    let layout = if operand.layout == Layout::ChannelsLast { "ⁿʰʷᶜ" } else { "" };
    format!("{}{}{layout}", operand.meta.dtype, operand.meta.shape)
}

/// Each kernel's time in one run.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<String>,
    pub total: Duration,
}

impl Report {
    pub fn add(&mut self, step: &Step, time: Duration) {
        self.total += time;
        if settings().level < 2 {
            return;
        }
        let seconds = time.as_secs_f64().max(1e-9);
        self.lines.push(format!(
            "{:>10.1} µs {:>8.2} GFLOP/s {:>8.2} GB/s  {:<28} {}",
            seconds * 1e6,
            step.kernel.flops() as f64 / seconds / 1e9,
            step.about.bytes as f64 / seconds / 1e9,
            step.about.name,
            step.about.place.module.as_deref().unwrap_or(""),
        ));
    }

    pub fn print(&self) {
        if settings().level >= 2 {
            eprintln!("{}\n{:>10.1} µs in all", self.lines.join("\n"), self.total.as_secs_f64() * 1e6);
        }
    }
}

/// Notices when plans are made again and again for graphs that differ in one attribute only.
#[derive(Default)]
pub(crate) struct Misses {
    by_op: HashMap<String, u32>,
    /// All of them.
    pub total: u64,
}

/// So many near misses at one op are no accident.
const SUSPICIOUS: u32 = 8;

impl Misses {
    pub fn report<'a>(&mut self, trace: &Trace, mut known: impl Iterator<Item = &'a Words>) {
        let Some(node) = known.find_map(|words| words.lone_difference(&trace.words)).map(|word| trace.node_of(word))
        else {
            return;
        };
        let node = &trace.nodes[node];
        let name = format!("{}{}{}", node.name(), node.place, node.place.line());
        self.total += 1;
        let count = self.by_op.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == SUSPICIOUS {
            tracing::warn!(
                "{SUSPICIOUS} plans were made that differ only in an attribute of {name}; \
                 make it a tensor or a plain operand so that one plan serves"
            );
        }
    }
}
