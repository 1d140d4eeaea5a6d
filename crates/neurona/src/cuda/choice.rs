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
use std::sync::{LazyLock, Mutex};

/// Whose kernels run matrix products and convolutions on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// Neurona's own.
    Own,
    /// cuBLASLt's and cuDNN's, where they are installed and can do it.
    Vendor,
    /// For each shape the one that was faster when both were timed.
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
    own: Vec<Candidate>,
    vendor: impl Fn(Option<&str>) -> Result<Vec<Candidate>>,
    gpu: &Gpu,
) -> Result<Box<dyn Kernel>> {
    let which = kernels();
    // With the names of ours: a version that knows another way times it.
    let names: Vec<&str> = own.iter().map(|c| c.name.as_str()).collect();
    let (major, minor) = gpu.capability;
    let key = format!("{} sm_{major}{minor} {problem} {which:?} {}", gpu.name, names.join(","));
    let known = MEMORY.lock().unwrap_or_else(|e| e.into_inner()).known.get(&key).cloned();
    let ours = |name: &String| own.iter().any(|c| c.name == *name);
    let theirs = match &known {
        _ if which == Kernels::Own => Vec::new(),
        Some(name) if ours(name) => Vec::new(),
        Some(name) => match vendor(Some(name))? {
            // Of another version of the library.
            gone if gone.is_empty() => vendor(None)?,
            found => found,
        },
        None => vendor(None)?,
    };
    let mut candidates = own;
    if which == Kernels::Vendor && !theirs.is_empty() {
        candidates.clear();
    }
    candidates.extend(theirs);
    if candidates.is_empty() {
        return Err(Error::Cuda { what: format!("run {problem}"), problem: "no kernel can do it".into() });
    }
    if candidates.len() == 1 {
        return Ok(candidates.remove(0).kernel);
    }
    let mut memory = MEMORY.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(at) = memory.known.get(&key).and_then(|name| candidates.iter().position(|c| c.name == *name)) {
        let name = candidates[at].name.clone();
        memory.used.insert(key, name);
        return Ok(candidates.swap_remove(at).kernel);
    }
    let best = fastest(inputs, outputs, &candidates, gpu)?;
    memory.known.insert(key.clone(), candidates[best].name.clone());
    memory.used.insert(key, candidates[best].name.clone());
    memory.changed = true;
    Ok(candidates.swap_remove(best).kernel)
}

/// What was timed, in this process or an earlier one, and what plans of this process use of it.
struct Memory {
    known: BTreeMap<String, String>,
    used: BTreeMap<String, String>,
    changed: bool,
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
    let memory = MEMORY.lock().unwrap_or_else(|e| e.into_inner());
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
        MEMORY.lock().unwrap_or_else(|e| e.into_inner()).known.extend(earlier);
    }
}

/// Keeps what was timed for later processes. Another process may have written meanwhile: its choices stay.
pub(crate) fn save() {
    let mut memory = MEMORY.lock().unwrap_or_else(|e| e.into_inner());
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
const MORE_ROUNDS: usize = 9;

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
