//! What the machine has, read from where its system tells. What cannot be known is absent, not guessed.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What the machine has.
#[derive(Serialize)]
pub struct Machine {
    pub system: String,
    pub cpu: Option<String>,
    /// The vector instructions that matter here.
    pub cpu_features: Vec<String>,
    /// Cores that this process may run on.
    pub cores: usize,
    /// How many of them a container leaves to it.
    pub cpu_quota: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub gpus: Vec<String>,
    pub nvidia_driver: Option<String>,
    /// The library that programs reach the driver through.
    pub libcuda: Option<PathBuf>,
}

impl Machine {
    /// Looks around.
    pub fn look() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory =
            |key: &str| field(&meminfo, key)?.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|n| n * 1024);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let driver = Path::new("/proc/driver/nvidia");
        Machine {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: field(&cpuinfo, "model name").map(str::to_string),
            cpu_features: features(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            cpu_quota: limit("cpu.max").as_deref().and_then(quota),
            memory_bytes: memory("MemTotal"),
            memory_available_bytes: memory("MemAvailable"),
            // No limit is the word max.
            memory_limit_bytes: limit("memory.max").and_then(|text| text.trim().parse().ok()),
            gpus: gpus(&driver.join("gpus")),
            nvidia_driver: fs::read_to_string(driver.join("version")).ok().and_then(|text| driver_version(&text)),
            libcuda: LIBRARIES.iter().map(|folder| Path::new(folder).join("libcuda.so.1")).find(|path| path.exists()),
        }
    }

    /// The kernels that this CPU could run.
    pub fn best_kernels(&self) -> &'static str {
        let has = |name: &str| self.cpu_features.iter().any(|feature| feature == name);
        let avx2 = has("avx2") && has("fma");
        match avx2 && ["avx512f", "avx512bw", "avx512vl", "avx512dq"].iter().all(|name| has(name)) {
            true => "avx512",
            false if avx2 => "avx2",
            false => "portable",
        }
    }
}

/// Where Linux systems keep it.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/lib/wsl/lib",
];

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    macro_rules! found { ($($name:tt),*) => {
        [$(($name, is_x86_feature_detected!($name))),*].iter().filter(|(_, there)| *there).map(|(name, _)| name.to_string()).collect()
    } }
    found!(
        "sse4.2",
        "avx",
        "f16c",
        "fma",
        "avx2",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512dq",
        "avx512vnni",
        "avx512bf16"
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<String> {
    Vec::new()
}

/// The first `key : value` of such a text.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value =
        |line: &'a str| line.split_once(':').filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
    text.lines().find_map(value)
}

/// A limit of this process's control group (version 2), or of the root of what the container sees.
fn limit(file: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_start_matches('/');
    let root = Path::new("/sys/fs/cgroup");
    [root.join(own), root.to_path_buf()].iter().find_map(|folder| fs::read_to_string(folder.join(file)).ok())
}

/// `150000 100000` is one and a half CPUs; `max 100000` is no limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// One folder a GPU, with a file that names it.
fn gpus(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("information")).ok()?;
            field(&text, "Model").map(str::to_string)
        })
        .collect();
    names.sort();
    names
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 …`.
fn driver_version(text: &str) -> Option<String> {
    let numbers = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    field(text, "NVRM version")?.split_whitespace().find(numbers).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_system() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: other\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2.00GHz"));
        assert_eq!(field(text, "model"), None);
        assert_eq!((quota("150000 100000\n"), quota("max 100000"), quota("")), (Some(1.5), None, None));
        let nvrm =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:\n";
        assert_eq!(driver_version(nvrm).as_deref(), Some("535.104.05"));
        assert_eq!(driver_version("nothing"), None);
    }

    #[test]
    fn gpus_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let gpu = folder.path().join("0000:17:00.0");
        fs::create_dir(&gpu).unwrap();
        fs::write(gpu.join("information"), "Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\n").unwrap();
        assert_eq!(gpus(folder.path()), ["NVIDIA H200"]);
        assert!(gpus(Path::new("/no/such")).is_empty());
    }

    #[test]
    fn the_kernels_in_use_are_ones_the_cpu_has() {
        let machine = Machine::look();
        assert!(machine.cores >= 1);
        let chosen = format!("{:?}", neurona::cpu::simd::isa()).to_lowercase();
        if std::env::var_os("NEURONA_ISA").is_none() {
            assert_eq!(machine.best_kernels(), chosen);
        }
    }
}
