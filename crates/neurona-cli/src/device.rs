//! Where to compute, and how: flags that several commands share.

use crate::failure::{Failure, Outcome};
use crate::flags;
use clap::builder::{PossibleValue, TypedValueParser, ValueParserFactory};
use clap::{Arg, Command, ValueEnum};
use neurona::{DType, Device, Kernels};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

/// A device as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceName {
    /// The first GPU, or the CPU where there is none.
    Auto,
    /// One of these.
    Is(Device),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Auto => f.write_str("auto"),
            DeviceName::Is(device) => device.fmt(f),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DeviceName::Auto),
            other => other.parse().map(DeviceName::Is).map_err(|_| "it is auto, cpu, cuda, or cuda:1".to_string()),
        }
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for DeviceName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Reads a [`DeviceName`], and tells shells what to complete.
#[derive(Clone)]
pub struct DeviceParser;

impl TypedValueParser for DeviceParser {
    type Value = DeviceName;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<DeviceName, clap::Error> {
        let parse: fn(&str) -> Result<DeviceName, String> = str::parse;
        TypedValueParser::parse_ref(&parse, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named = |(name, help)| PossibleValue::new(name).help(help);
        let values = [
            ("auto", "The first GPU, or the CPU where there is none"),
            ("cpu", "The CPU's cores"),
            ("cuda", "The first NVIDIA GPU; cuda:1 is the second"),
        ];
        Some(Box::new(values.into_iter().map(named)))
    }
}

impl ValueParserFactory for DeviceName {
    type Parser = DeviceParser;
    fn value_parser() -> DeviceParser {
        DeviceParser
    }
}

/// Numbers to compute with on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amp {
    /// 32-bit floats.
    #[serde(alias = "none")]
    #[value(alias = "none")]
    Off,
    /// Matrix work in bf16.
    Bf16,
    /// Matrix work in f16, with losses scaled.
    F16,
}

/// Whose kernels run matrix products and convolutions on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelsName {
    /// Neurona's own.
    Own,
    /// cuDNN's and cuBLASLt's, where they are installed.
    Vendor,
    /// For each shape the faster one, timed once.
    Auto,
}

/// The name of a value as flags have it; none is hidden.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

impl fmt::Display for Amp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

impl fmt::Display for KernelsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

/// Where a command that uses a model computes.
#[derive(clap::Args)]
pub struct Computing {
    /// Where to compute.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    device: DeviceName,
    /// Numbers to compute with; bf16 and f16 are for GPUs.
    #[arg(long, value_name = "NAME", default_value = "off")]
    amp: Amp,
    /// Whose matrix products and convolutions a GPU runs.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    kernels: KernelsName,
    /// Threads to compute on [default: all cores].
    #[arg(long, value_name = "N", value_parser = flags::threads)]
    threads: Option<usize>,
}

impl Computing {
    /// Makes the process compute so; gives the device.
    pub fn begin(&self) -> Outcome<Device> {
        if let Some(threads) = self.threads {
            neurona::set_num_threads(threads);
        }
        let (device, _) = find(self.device)?;
        apply(device, self.amp, self.kernels)?;
        Ok(device)
    }
}

/// The device of this name; where it was chosen, why.
pub fn find(name: DeviceName) -> Outcome<(Device, Option<String>)> {
    match name {
        DeviceName::Is(Device::Cpu) => Ok((Device::Cpu, None)),
        DeviceName::Is(device) => match neurona::gpu_problem(device) {
            None => Ok((device, None)),
            Some(problem) => Err(Failure::Usage(format!(
                "--device {device}: {problem}; `neurona doctor` says what was looked for. --device cpu does without, \
                 and auto takes what there is"
            ))),
        },
        DeviceName::Auto => Ok(match neurona::gpu_problem(Device::cuda(0)) {
            None => (Device::cuda(0), Some(gpu_name(Device::cuda(0)))),
            Some(problem) => (Device::Cpu, Some(problem)),
        }),
    }
}

/// Refuses what has no effect there.
pub fn check(device: Device, amp: Amp, kernels: KernelsName) -> Outcome {
    if device == Device::Cpu && amp != Amp::Off {
        let problem = format!("--amp {amp} is for GPUs, and this runs on the CPU, in 32 bits; leave it out");
        return Err(Failure::Usage(problem));
    }
    if device == Device::Cpu && kernels != KernelsName::Auto {
        let problem = format!("--kernels {kernels} is for GPUs, and this runs on the CPU; leave it out");
        return Err(Failure::Usage(problem));
    }
    Ok(())
}

/// Makes the process compute so.
pub fn apply(device: Device, amp: Amp, kernels: KernelsName) -> Outcome {
    check(device, amp, kernels)?;
    neurona::set_autocast(match amp {
        Amp::Off => None,
        Amp::Bf16 => Some(DType::BF16),
        Amp::F16 => Some(DType::F16),
    })?;
    neurona::set_kernels(match kernels {
        KernelsName::Own => Kernels::Own,
        KernelsName::Vendor => Kernels::Vendor,
        KernelsName::Auto => Kernels::Auto,
    });
    Ok(())
}

/// What a GPU calls itself; nothing for the CPU.
pub fn gpu_name(device: Device) -> String {
    device.gpu().ok().flatten().map_or_else(String::new, |gpu| gpu.name)
}

/// Where things are computed, in words: `2 threads`, or `cuda:0 (NVIDIA H200), bf16`.
pub fn describe(device: Device) -> String {
    match device {
        Device::Cpu => format!("{} threads", neurona::num_threads()),
        gpu => {
            let mixed = neurona::autocast().map_or(String::new(), |dtype| format!(", {dtype}"));
            format!("{gpu} ({}){mixed}", gpu_name(gpu))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Is(Device::cuda(0))));
        for text in ["", "tpu", "cuda:", "cuda:x", "CPU"] {
            assert!(text.parse::<DeviceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_for_gpus_is_refused_on_the_cpu() {
        assert!(matches!(apply(Device::Cpu, Amp::F16, KernelsName::Auto), Err(Failure::Usage(_))));
        assert!(matches!(apply(Device::Cpu, Amp::Off, KernelsName::Own), Err(Failure::Usage(_))));
        apply(Device::Cpu, Amp::Off, KernelsName::Auto).unwrap();
        let far = find(DeviceName::Is(Device::cuda(60)));
        assert!(matches!(far, Err(Failure::Usage(text)) if text.contains("cuda:60") && text.contains("doctor")));
    }
}
