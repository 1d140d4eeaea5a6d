//! Where a run ran.

use crate::device::gpu_name;
use neurona::Device;
use serde_json::{Value, json};

/// What may matter when a run is to be repeated: environment.json. Written again at the end of a run on a GPU, it has
/// the most memory that was in use there.
pub fn environment(device: Device) -> Value {
    let command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let variables: std::collections::BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.to_string_lossy().into_owned())))
        .filter(|(name, _)| name.starts_with("NEURONA_"))
        .collect();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    json!({
        "neurona": env!("CARGO_PKG_VERSION"),
        "command": command,
        "started_unix": since.as_secs(),
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "cpu": cpu_name(),
        "cores": std::thread::available_parallelism().map_or(1, |n| n.get()),
        "threads": neurona::num_threads(),
        "device": device.to_string(),
        "gpu": (device != Device::Cpu).then(|| gpu_name(device)),
        "gpu_peak_bytes": Some(neurona::gpu_peak_memory()).filter(|bytes| *bytes > 0),
        "variables": variables,
    })
}

/// What the CPU calls itself, where the system tells.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
