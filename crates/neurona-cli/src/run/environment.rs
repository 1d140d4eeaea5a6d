//! Where a run ran.

use crate::device::gpu_name;
use crate::failure::Outcome;
use neurona::Device;
use neurona::train::RunDir;
use serde_json::{Value, json};

/// What may matter when a run is to be repeated: environment.json.
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
        "variables": variables,
    })
}

/// Adds what a run on a GPU leaves to know: the kernels it chose, and the most memory it had in use there.
pub fn note_gpu(run: &RunDir, peak_bytes: u64) -> Outcome {
    run.write("kernels.json", neurona::kernel_choices())?;
    let text = run.read("environment.json").unwrap_or_default();
    let mut environment: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
    environment["gpu_peak_bytes"] = json!(peak_bytes);
    Ok(run.write("environment.json", format!("{environment:#}\n"))?)
}

/// What the CPU calls itself, where the system tells.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gpu_leaves_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::open(folder.path()).unwrap();
        run.write("environment.json", environment(Device::Cpu).to_string()).unwrap();
        note_gpu(&run, 77).unwrap();
        let after: Value = serde_json::from_str(&run.read("environment.json").unwrap()).unwrap();
        assert_eq!((&after["gpu_peak_bytes"], &after["device"]), (&json!(77), &json!("cpu")));
        assert!(run.read("kernels.json").unwrap().starts_with('{'));
    }
}
