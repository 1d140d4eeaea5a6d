//! Which of several kernels that do the same is used: ours, the vendor's, or the one that was faster when both were
//! timed on this GPU. What was timed once is remembered, in the user's cache folder and with the run: the same choice
//! gives the same bits.

use super::compiler;
use super::gpu::Gpu;
use super::kernel::Kernel;
use super::timing::Bench;
use crate::graph::ir::Operand;
use crate::io::atomic;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// Whose kernels run matrix products and convolutions on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// Neurona's own.
    Own,
    /// cuBLASLt's and cuDNN's, where they are installed and can do it.
    Vendor,
    /// For each shape the faster of the two, as timed.
    #[default]
    Auto,
}

impl FromStr for Kernels {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "own" => Ok(Kernels::Own),
            "vendor" => Ok(Kernels::Vendor),
            "auto" => Ok(Kernels::Auto),
            other => Err(Error::Argument(format!("'{other}' is no choice of kernels; there are own, vendor and auto"))),
        }
    }
}

static CHOICE: AtomicU8 = AtomicU8::new(2);

/// Chooses whose kernels new plans use.
///
/// ```
/// use neurona::{Kernels, kernels, set_kernels};
/// set_kernels("own".parse()?);
/// assert_eq!(kernels(), Kernels::Own);
/// set_kernels(Kernels::Auto);
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn set_kernels(kernels: Kernels) {
    CHOICE.store(kernels as u8, Ordering::Relaxed);
}

/// Whose kernels new plans use.
pub fn kernels() -> Kernels {
    [Kernels::Own, Kernels::Vendor, Kernels::Auto][CHOICE.load(Ordering::Relaxed) as usize]
}

/// One way to do it.
pub(crate) struct Candidate {
    /// Stable from run to run: it is what is remembered.
    pub name: String,
    pub kernel: Box<dyn Kernel>,
}

/// The candidate to use for a problem, which `problem` describes in full: one of ours, or of those that `vendor` gives.
/// It is asked for a single one by its name when that one is remembered, because making all of them takes time.
pub(crate) fn choose(
    problem: &str,
    inputs: &[Operand],
    outputs: &[Operand],
    mut own: Vec<Candidate>,
    vendor: impl Fn(Option<&str>) -> Result<Vec<Candidate>>,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    // With the names of ours: a version that knows another way times it.
    let names = own.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(",");
    let contest = Contest { problem, names, inputs, outputs, vendor, gpu };
    let winner = match kernels() {
        Kernels::Vendor => match contest.winner(Kernels::Vendor, &mut own)? {
            None => contest.winner(Kernels::Own, &mut own)?,
            theirs => theirs,
        },
        which => contest.winner(which, &mut own)?,
    };
    let nobody = || Error::Cuda { what: format!("run {problem}"), problem: "no kernel can do it".into() };
    winner.map(|candidate| candidate.kernel).ok_or_else(nobody)
}

/// A problem that several kernels can do.
struct Contest<'a, V> {
    problem: &'a str,
    names: String,
    inputs: &'a [Operand],
    outputs: &'a [Operand],
    vendor: V,
    gpu: &'a Gpu,
}

impl<V: Fn(Option<&str>) -> Result<Vec<Candidate>>> Contest<'_, V> {
    /// The fastest of whose kernels these are, remembered or timed. `auto` lets the winners of both sides meet, so that
    /// it is never slower than the better of `own` and `vendor` by more than a last timing of the two can err.
    fn winner(&self, which: Kernels, own: &mut Vec<Candidate>) -> Result<Option<Candidate>> {
        let Gpu { name: gpu, capability: (major, minor), .. } = self.gpu;
        let key = format!("{gpu} sm_{major}{minor} {} {which:?} {}", self.problem, self.names);
        let known = Memory::lock().known.get(&key).cloned();
        if let Some(known) = known {
            let ours = own.iter().position(|c| c.name == known).map(|at| own.swap_remove(at));
            // One of another version of the library is not found.
            let found = match ours {
                None if which != Kernels::Own => (self.vendor)(Some(&known))?.pop(),
                ours => ours,
            };
            if found.is_some() {
                Memory::lock().used.insert(key, known);
                return Ok(found);
            }
        }
        let mut candidates = match which {
            Kernels::Own => std::mem::take(own),
            Kernels::Vendor => (self.vendor)(None)?,
            Kernels::Auto => {
                let ours = self.winner(Kernels::Own, own)?;
                ours.into_iter().chain(self.winner(Kernels::Vendor, own)?).collect()
            }
        };
        if candidates.len() < 2 {
            return Ok(candidates.pop());
        }
        // Held meanwhile: two that time at once would disturb each other, and the second takes what the first found.
        let mut memory = Memory::lock();
        let known = memory.known.get(&key).and_then(|name| candidates.iter().position(|c| c.name == *name));
        let best = match known {
            Some(at) => at,
            None => fastest(self.inputs, self.outputs, &candidates, self.gpu)?,
        };
        let best = candidates.swap_remove(best);
        memory.changed |= known.is_none();
        memory.known.insert(key.clone(), best.name.clone());
        memory.used.insert(key, best.name.clone());
        Ok(Some(best))
    }
}

/// What was timed, in this process or an earlier one, and what plans of this process use of it.
struct Memory {
    known: BTreeMap<String, String>,
    used: BTreeMap<String, String>,
    changed: bool,
}

impl Memory {
    fn lock() -> MutexGuard<'static, Memory> {
        MEMORY.lock().unwrap_or_else(|e| e.into_inner())
    }
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(|| {
    let known = file().and_then(|path| std::fs::read(path).ok()).and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Mutex::new(Memory { known: known.unwrap_or_default(), used: BTreeMap::new(), changed: false })
});

fn file() -> Option<PathBuf> {
    compiler::folder().map(|folder| folder.join("choices.json"))
}

/// The kernels that this process's plans chose on GPUs, as JSON to keep with a run.
///
/// ```
/// assert!(neurona::kernel_choices().starts_with('{'));
/// ```
pub fn kernel_choices() -> String {
    let memory = Memory::lock();
    serde_json::to_string_pretty(&memory.used).unwrap_or_default()
}

/// Takes over the choices of an earlier run, which [`kernel_choices`] gave: they come before anything timed here, so
/// that the same run gives the same bits. Text that is something else is ignored.
///
/// ```
/// neurona::remember_kernel_choices(&neurona::kernel_choices());
/// ```
pub fn remember_kernel_choices(text: &str) {
    if let Ok(earlier) = serde_json::from_str::<BTreeMap<String, String>>(text) {
        Memory::lock().known.extend(earlier);
    }
}

/// Keeps what was timed for later processes. Another process may have written meanwhile: its choices stay.
pub(crate) fn save() {
    let mut memory = Memory::lock();
    let Some(path) = file().filter(|_| memory.changed) else { return };
    memory.changed = false;
    let stored = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut all: BTreeMap<String, String> = stored.unwrap_or_default();
    all.extend(memory.known.clone());
    if let (Some(folder), Ok(text)) = (path.parent(), serde_json::to_vec_pretty(&all)) {
        // Whoever cannot keep them times again: slower, not wrong.
        let _ = std::fs::create_dir_all(folder);
        let _ = atomic::write(&path, |file| file.write_all(&text));
    }
}

/// Rounds in which all candidates are timed, and then those that came this near to the fastest: the order among them may
/// be chance, or hold only until the GPU has warmed up.
const ROUNDS: usize = 3;
const NEAR: f64 = 1.1;
const MORE_ROUNDS: usize = 15;

/// Times every candidate on memory of its own and gives the place of the fastest. One that fails is passed over.
fn fastest(inputs: &[Operand], outputs: &[Operand], candidates: &[Candidate], gpu: &Gpu) -> Result<usize> {
    let workspace = candidates.iter().map(|c| c.kernel.workspace()).max().unwrap_or(0);
    let bench = Bench::new(inputs, outputs, workspace, gpu)?;
    let race = |places: &[usize], rounds: usize| -> Result<Vec<(f64, usize)>> {
        let kernels: Vec<&dyn Kernel> = places.iter().map(|place| &*candidates[*place].kernel).collect();
        let mut times = Vec::new();
        for (place, time) in places.iter().zip(bench.race(&kernels, rounds)?) {
            let name = &candidates[*place].name;
            match time {
                Ok(seconds) => {
                    tracing::debug!("{name}: {:.1} µs", seconds * 1e6);
                    times.push((seconds, *place));
                }
                Err(e) => tracing::debug!("{name} cannot do it: {e}"),
            }
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(times)
    };
    let all: Vec<usize> = (0..candidates.len()).collect();
    let mut times = race(&all, ROUNDS)?;
    let limit = times.first().map_or(0.0, |(least, _)| least * NEAR);
    let near: Vec<usize> = times.iter().filter(|(seconds, _)| *seconds <= limit).map(|(_, place)| *place).collect();
    if near.len() > 1 {
        times = race(&near, MORE_ROUNDS)?;
    }
    Ok(times.first().map_or(0, |(_, place)| *place))
}
