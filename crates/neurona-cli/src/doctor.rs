//! `neurona doctor`: what this machine has, what Neurona makes of it, and what is missing.

mod cuda;
mod machine;

use crate::data::{gibibytes, megabytes, word};
use crate::failure::{Outcome, say};
use cuda::Cuda;
use machine::Machine;
use neurona::data::download::{self, State};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

/// Shows what this machine has, what Neurona makes of it, and what is missing.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona doctor
  neurona doctor --json > machine.json")]
pub struct Args {
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Everything that is known.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Without optimisation everything is many times slower.
    optimised: bool,
    #[serde(flatten)]
    machine: Machine,
    cuda: Cuda,
    /// The kernels in use, and the threads.
    kernels: String,
    threads: usize,
    /// Where networks can run in this build.
    devices: Vec<String>,
    /// Variables that change what Neurona does.
    settings: Vec<String>,
    data_folder: Option<PathBuf>,
    data_folder_writable: bool,
    sets: Vec<SetReport>,
    /// Bytes of downloads that broke off; the next `data get` goes on with them.
    unfinished_bytes: u64,
    current_folder_writable: bool,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct SetReport {
    name: &'static str,
    state: &'static str,
    bytes: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let report = Report::gather();
    match args.json {
        // A struct of numbers and strings always has a JSON form.
        true => say(serde_json::to_string_pretty(&report).unwrap_or_default()),
        false => say(report.text()),
    }
}

impl Report {
    fn gather() -> Self {
        let data = download::data_folder().ok();
        let at = |data: &PathBuf| {
            let set = |set: &download::Set| SetReport {
                name: set.name,
                state: word(&set.state(data)),
                bytes: set.bytes(data),
            };
            download::sets().iter().map(set).collect()
        };
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
            machine: Machine::look(),
            cuda: Cuda::look(),
            kernels: format!("{:?}", neurona::cpu::simd::isa()).to_lowercase(),
            threads: neurona::num_threads(),
            devices: neurona::Device::all().iter().map(ToString::to_string).collect(),
            settings: settings(),
            data_folder_writable: data.as_deref().is_some_and(writable),
            sets: data.as_ref().map(at).unwrap_or_default(),
            unfinished_bytes: data.as_ref().map_or(0, |data| size(&data.join(".partial"))),
            data_folder: data,
            current_folder_writable: writable(Path::new(".")),
            advice: Vec::new(),
        };
        report.advice = report.advise();
        report
    }

    /// What is missing, and what to do.
    fn advise(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let mut when = |condition: bool, text: String| advice.extend(condition.then_some(text));
        let machine = &self.machine;
        when(!self.optimised, "this is a debug build: cargo build --release makes a faster one".into());
        let best = machine.best_kernels();
        let slower = best != self.kernels;
        when(slower, format!("NEURONA_ISA keeps it to {}; without it {best} would be used", self.kernels));
        when(
            best == "portable" && cfg!(target_arch = "x86_64"),
            "this CPU has no AVX2, which the fast kernels need: training takes far longer".into(),
        );
        if let Some(quota) = machine.cpu_quota.filter(|quota| (self.threads as f64) > quota.ceil()) {
            let threads = quota.ceil().max(1.0);
            when(
                true,
                format!(
                    "only {quota:.1} CPUs may be used here: NEURONA_THREADS={threads} is faster than {}",
                    self.threads
                ),
            );
        }
        let memory = machine.memory_limit_bytes.or(machine.memory_available_bytes);
        when(
            memory.is_some_and(|bytes| bytes < 1 << 30),
            "there is less than 1 GiB of memory: use small batches".into(),
        );
        self.cuda.advice(!machine.gpus.is_empty()).into_iter().for_each(|text| when(true, text));
        when(!self.current_folder_writable, "nothing can be written here: give train --output FOLDER".into());
        when(self.data_folder.is_none(), "there is no folder for data sets: set NEURONA_DATA".into());
        when(
            self.data_folder.is_some() && !self.data_folder_writable,
            "the folder for data sets cannot be written to: set NEURONA_DATA to one that can".into(),
        );
        let complete = word(&State::Complete);
        when(
            self.sets.iter().all(|set| set.state != complete),
            "no data set is there yet: neurona data get cifar10 (neurona train alone needs none)".into(),
        );
        advice
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("neurona {} on {}", self.version, self.machine.system)];
        let mut line = |title: &str, text: String| lines.push(format!("{title:<16} {text}"));
        let machine = &self.machine;
        let unknown = || "unknown".to_string();
        line("CPU", machine.cpu.clone().unwrap_or_else(unknown));
        line("features", list(&machine.cpu_features));
        line("kernels", self.kernels.clone());
        let quota = machine.cpu_quota.map_or(String::new(), |quota| format!(", of which {quota:.1} may be used"));
        line("cores", format!("{}{quota}; {} threads", machine.cores, self.threads));
        let bytes = |bytes: Option<u64>| bytes.map_or_else(unknown, gibibytes);
        let limit = machine.memory_limit_bytes.map_or(String::new(), |limit| format!(", limit {}", gibibytes(limit)));
        let available = bytes(machine.memory_available_bytes);
        line("memory", format!("{}, {available} available{limit}", bytes(machine.memory_bytes)));
        self.cuda.lines().into_iter().for_each(|(title, text)| line(title, text));
        let library = machine.libcuda.as_ref().map_or(String::new(), |path| format!(", {}", path.display()));
        let driver = machine.nvidia_driver.clone().unwrap_or_else(|| "none".to_string());
        line("kernel module", format!("{driver}{library}"));
        line("runs on", list(&self.devices));
        line("settings", list(&self.settings));
        let data = self.data_folder.as_ref().map_or_else(unknown, |data| data.display().to_string());
        line("data folder", data);
        for set in &self.sets {
            let size = if set.bytes == 0 { String::new() } else { format!(", {}", megabytes(set.bytes)) };
            line("", format!("{} {}{size}", set.name, set.state));
        }
        if self.unfinished_bytes > 0 {
            line("", format!("unfinished downloads: {}", megabytes(self.unfinished_bytes)));
        }
        line("current folder", if self.current_folder_writable { "writable" } else { "not writable" }.to_string());
        match self.advice.is_empty() {
            true => lines.push("\nNothing is missing.".to_string()),
            false => lines.push(format!("\nWorth knowing:\n- {}", self.advice.join("\n- "))),
        }
        lines.join("\n")
    }
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".to_string() } else { items.join(", ") }
}

fn settings() -> Vec<String> {
    let names = [
        "NEURONA_DATA",
        "NEURONA_CACHE",
        "NEURONA_THREADS",
        "NEURONA_ISA",
        "NEURONA_WINOGRAD",
        "NEURONA_DEBUG",
        "NEURONA_CHECK",
    ];
    let set = |name: &str| std::env::var(name).ok().map(|value| format!("{name}={value}"));
    names.iter().filter_map(|name| set(name)).collect()
}

/// Whether files can be made in a folder, or, where it is not there yet, in the one that it would be made in. Trying
/// is the only way to know: permissions do not tell of read-only disks.
fn writable(folder: &Path) -> bool {
    let Some(there) = folder.ancestors().find(|folder| folder.as_os_str().is_empty() || folder.exists()) else {
        return false;
    };
    let probe = there.join(format!(".neurona-probe-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&probe).is_ok();
    if made {
        let _ = fs::remove_file(&probe);
    }
    made
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |m| m.len()),
        _ => 0,
    };
    entries.map(bytes).sum()
}
