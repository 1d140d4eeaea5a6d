//! GPUs and the software that they are used through.

use crate::data::{gibibytes, megabytes};
use neurona::{CudaReport, cuda_report};
use serde::Serialize;
use std::path::PathBuf;

/// What there is of CUDA.
#[derive(Serialize)]
pub struct Cuda {
    gpus: Vec<Gpu>,
    parts: Vec<Part>,
    kernel_folder: Option<PathBuf>,
    kernel_files: usize,
    kernel_bytes: u64,
}

#[derive(Serialize)]
struct Gpu {
    device: String,
    name: Option<String>,
    compute_capability: Option<String>,
    multiprocessors: Option<usize>,
    memory_bytes: Option<usize>,
    memory_free_bytes: Option<usize>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Part {
    name: &'static str,
    version: Option<String>,
    problem: Option<String>,
    without: Option<&'static str>,
}

impl Cuda {
    /// Looks around; starts the GPUs there are.
    pub fn look() -> Self {
        let CudaReport { parts, gpus, kernel_folder, kernel_files, kernel_bytes } = cuda_report();
        let gpu = |(i, found): (usize, Result<neurona::GpuInfo, String>)| {
            let problem = found.as_ref().err().cloned();
            let known = found.ok();
            Gpu {
                device: format!("cuda:{i}"),
                compute_capability: known.as_ref().map(|g| format!("{}.{}", g.capability.0, g.capability.1)),
                multiprocessors: known.as_ref().map(|g| g.multiprocessors),
                memory_bytes: known.as_ref().map(|g| g.total),
                memory_free_bytes: known.as_ref().map(|g| g.free),
                name: known.map(|g| g.name),
                problem,
            }
        };
        let part = |part: neurona::CudaPart| Part {
            name: part.name,
            version: part.found.as_ref().ok().cloned(),
            problem: part.found.err(),
            without: part.without,
        };
        Cuda {
            gpus: gpus.into_iter().enumerate().map(gpu).collect(),
            parts: parts.into_iter().map(part).collect(),
            kernel_folder,
            kernel_files,
            kernel_bytes,
        }
    }

    /// Titles and texts: GPUs, then what they are used through.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&str, String)> = self.gpus.iter().map(|gpu| ("GPU", gpu.words())).collect();
        if lines.is_empty() {
            lines.push(("GPU", "none".to_string()));
        }
        for part in &self.parts {
            let words = part.problem.as_ref().map(|problem| format!("not found: {problem}"));
            lines.push((part.name, words.or(part.version.clone()).unwrap_or_default()));
        }
        let folder = self.kernel_folder.as_ref().map(|folder| {
            format!("{}, {} files, {}", folder.display(), self.kernel_files, megabytes(self.kernel_bytes))
        });
        lines.push(("compiled kernels", folder.unwrap_or_else(|| "no folder to keep them in".to_string())));
        lines
    }

    /// What is missing, on a machine that has a GPU as far as the system (`known`) or the driver tells.
    pub fn advice(&self, known: bool) -> Vec<String> {
        let mut advice = Vec::new();
        if known
            && self.gpus.is_empty()
            && self.parts.iter().all(|part| part.name != "driver" || part.problem.is_none())
        {
            advice.push("there is a GPU, but the driver does not show it: is it kept from this container?".to_string());
        }
        let broken = self.gpus.iter().filter_map(|gpu| Some(format!("{}: {}", gpu.device, gpu.problem.as_ref()?)));
        advice.extend(broken);
        if known || !self.gpus.is_empty() {
            let missing = self.parts.iter().filter(|part| part.problem.is_some());
            advice.extend(missing.filter_map(|part| Some(format!("without {} {}", part.name, part.without?))));
        }
        if !self.gpus.is_empty() && self.kernel_folder.is_none() {
            advice.push("kernels are compiled anew every time: set NEURONA_CACHE to a folder".to_string());
        }
        advice
    }
}

impl Gpu {
    fn words(&self) -> String {
        let Gpu { device, problem, .. } = self;
        if let Some(problem) = problem {
            return format!("{device}: {problem}");
        }
        let memory = |bytes: Option<usize>| gibibytes(bytes.unwrap_or(0) as u64);
        format!(
            "{device}: {}, compute capability {}, {} multiprocessors, {}, {} free",
            self.name.as_deref().unwrap_or("unnamed"),
            self.compute_capability.as_deref().unwrap_or("unknown"),
            self.multiprocessors.unwrap_or(0),
            memory(self.memory_bytes),
            memory(self.memory_free_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &'static str, found: bool) -> Part {
        let (version, problem) = if found { (Some("1.2".into()), None) } else { (None, Some("gone".into())) };
        Part { name, version, problem, without: Some("it is slow") }
    }

    #[test]
    fn only_who_has_a_gpu_is_told_what_it_lacks() {
        let parts = || vec![part("driver", false), part("NVRTC", false)];
        let mut cuda = Cuda { gpus: vec![], parts: parts(), kernel_folder: None, kernel_files: 0, kernel_bytes: 0 };
        assert!(cuda.advice(false).is_empty());
        assert_eq!(cuda.advice(true), ["without driver it is slow", "without NVRTC it is slow"]);
        cuda.parts[0] = part("driver", true);
        assert!(cuda.advice(true)[0].contains("does not show it"));
        cuda.gpus.push(Gpu {
            device: "cuda:0".into(),
            name: Some("H200".into()),
            compute_capability: Some("9.0".into()),
            multiprocessors: Some(132),
            memory_bytes: Some(141 << 30),
            memory_free_bytes: Some(140 << 30),
            problem: None,
        });
        let lines = cuda.lines();
        assert_eq!(lines[0].1, "cuda:0: H200, compute capability 9.0, 132 multiprocessors, 141.0 GiB, 140.0 GiB free");
        assert_eq!((lines[1].1.as_str(), lines[2].1.as_str()), ("1.2", "not found: gone"));
        assert!(cuda.advice(false).iter().any(|line| line.contains("NEURONA_CACHE")));
    }

    #[test]
    fn this_machine() {
        let cuda = Cuda::look();
        assert_eq!(cuda.gpus.len(), neurona::Device::all().len() - 1);
        assert!(cuda.lines().len() >= cuda.parts.len() + 2);
    }
}
