//! `neurona bench`: how fast this machine trains the networks that `bench/` measures PyTorch with, and how Neurona's
//! kernels compare with the vendor's.

mod against;
mod cpu;
mod gpu;
mod platforms;
mod training;
mod work;

use crate::device::{self, Amp, DeviceName, KernelsName};
use crate::failure::Outcome;
use crate::flags;
use clap::ValueEnum;
use neurona::Device;
use std::path::PathBuf;
use std::time::Instant;
use work::Work;

/// Measures training steps and inference on this machine, through the same calls that a program makes.
///
/// Each workload is a network and a batch size: lab (two convolutions, three linear layers), bn (three
/// convolutions with batch norm), mlp500 and mlp784 (linear layers), r18 (ResNet-18 for 32 by 32 pixels). A network's
/// name alone stands for the batch sizes that PyTorch is measured with on this kind of device.
///
/// On a GPU the batch lies there already; many steps in a row are timed with one wait at the end.
#[derive(clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  neurona bench --threads 2 --seconds 1 lab_b4 r18_b32
  neurona bench --device cuda --amp bf16 --json r18
  neurona bench --device cuda --against cudnn
  neurona bench --platforms"
)]
pub struct Args {
    /// Where to run.
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    device: DeviceName,
    /// Numbers to compute with; bf16 and f16 are for GPUs.
    #[arg(long, value_name = "NAME", default_value = "off")]
    amp: Amp,
    /// Whose matrix products and convolutions a GPU runs.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    kernels: KernelsName,
    /// Threads to run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = flags::threads)]
    threads: Option<usize>,
    /// Seconds to measure each of training and inference on CPU cores.
    #[arg(long, value_name = "S", default_value = "3", value_parser = flags::positive)]
    seconds: f64,
    /// Images to a step, instead of those that go with the workload's name.
    #[arg(long, value_name = "N", value_parser = flags::count)]
    batch: Option<usize>,
    /// Times single convolutions and matrix products: Neurona's kernels against the vendor's, and the choice between
    /// them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["works", "platforms", "batch", "amp", "kernels"])]
    against: Option<Against>,
    /// With --against, only those whose name has this in it.
    #[arg(long, value_name = "TEXT", requires = "against")]
    only: Option<String>,
    /// A fully connected and a convolutional network on one core, on all cores, and on the GPU with Neurona's kernels
    /// and with the vendor's: a table and a picture.
    #[arg(long, conflicts_with_all = ["works", "device", "kernels"])]
    platforms: bool,
    /// With --platforms, the file of the picture.
    #[arg(long, value_name = "FILE", default_value = "platforms.png", requires = "platforms")]
    picture: PathBuf,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// What to measure [default: all].
    #[arg(value_name = "WORK")]
    works: Vec<Work>,
}

/// Whom to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Convolutions by cuDNN, matrix products by cuBLASLt.
    Cudnn,
}

/// Runs the command; the process began at `begun`.
pub fn run(args: &Args, begun: Instant) -> Outcome {
    if let Some(threads) = args.threads {
        neurona::set_num_threads(threads);
    }
    if args.platforms {
        let (device, _) = device::find(DeviceName::Auto)?;
        device::apply(device, args.amp, KernelsName::Auto)?;
        let gpu = Some(device).filter(|device| *device != Device::Cpu);
        return platforms::run(gpu, args.batch, args.seconds, args.json, &args.picture);
    }
    let (device, _) = device::find(args.device)?;
    if args.against == Some(Against::Cudnn) {
        return against::run(device, args.only.as_deref(), args.json);
    }
    device::apply(device, args.amp, args.kernels)?;
    match (args.json, device) {
        (true, _) => {}
        (false, Device::Cpu) => cpu::head()?,
        (false, device) => gpu::head(device)?,
    }
    let works = if args.works.is_empty() { Work::usual(device) } else { args.works.clone() };
    let mut begun = Some(begun);
    for work in works {
        let (network, batches) = work.sizes(args.batch, device);
        for batch in batches {
            match device {
                Device::Cpu => cpu::run(network, batch, args.seconds, args.json)?,
                device => gpu::run(network, batch, device, begun.take(), args.json)?,
            }
        }
    }
    Ok(())
}
