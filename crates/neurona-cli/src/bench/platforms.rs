//! One network of each kind on everything that this machine has: one core, all cores, the GPU with Neurona's kernels
//! and with the vendor's.

use super::training::{Training, best_mean};
use super::work::Network;
use crate::device::gpu_name;
use crate::failure::{Failure, Outcome, say};
use crate::pictures::{Bars, bars};
use neurona::{Device, Kernels};
use serde_json::json;
use std::path::Path;

const NETWORKS: [(Network, &str); 2] =
    [(Network::Mlp784, "fully connected (mlp784)"), (Network::CourseCnn, "convolutional (bn)")];
/// Images to a step when nobody says another.
const BATCH: usize = 128;

/// Where to train.
enum Platform {
    Cores(usize),
    Gpu(Kernels),
}

/// Measures, prints the table and draws the picture.
pub fn run(gpu: Option<Device>, batch: Option<usize>, seconds: f64, as_json: bool, picture: &Path) -> Outcome {
    let batch = batch.unwrap_or(BATCH);
    let cores = neurona::num_threads();
    let mut platforms = vec![("one core".to_string(), Platform::Cores(1))];
    if cores > 1 {
        platforms.push((format!("{cores} cores"), Platform::Cores(cores)));
    }
    match gpu {
        None => note(as_json, "no GPU here: its rows are absent")?,
        Some(gpu) => {
            platforms.push((format!("{}, own kernels", gpu_name(gpu)), Platform::Gpu(Kernels::Own)));
            let found = |name| neurona::cuda_report().parts.iter().any(|part| part.name == name && part.found.is_ok());
            match found("cuDNN") && found("cuBLASLt") {
                true => {
                    platforms.push((format!("{}, cuDNN and cuBLASLt", gpu_name(gpu)), Platform::Gpu(Kernels::Vendor)))
                }
                false => note(as_json, "cuDNN and cuBLASLt are not both here: their row is absent")?,
            }
        }
    }
    if !as_json {
        let heads = NETWORKS.map(|(_, title)| format!("{title:>26}"));
        say(format!("training with {batch} images to a step, images/s\n{:<34} {}", "", heads.join(" ")))?;
    }
    let before = neurona::kernels();
    let mut rows = Vec::new();
    for (title, platform) in platforms {
        let mut speeds = Vec::new();
        for (network, _) in NETWORKS {
            speeds.push(batch as f64 / seconds_of_a_step(network, batch, &platform, gpu, seconds)?);
        }
        if as_json {
            for ((network, _), speed) in NETWORKS.iter().zip(&speeds) {
                let row =
                    json!({ "platform": title, "train": network.name(), "batch": batch, "img_per_s": speed.round() });
                say(row)?;
            }
        } else {
            let cells: Vec<String> = speeds.iter().map(|speed| format!("{speed:>26.0}")).collect();
            say(format!("{title:<34} {}", cells.join(" ")))?;
        }
        rows.push((title, speeds));
    }
    neurona::set_num_threads(cores);
    neurona::set_kernels(before);
    let titles = NETWORKS.map(|(_, title)| title.to_string());
    let about = format!("Training, {batch} images to a step: images a second");
    let file = bars(&Bars { about, series: titles.to_vec(), rows })?;
    std::fs::write(picture, file).map_err(|e| Failure::file("write", picture, e))?;
    note(as_json, &format!("Drawn: {}", picture.display()))
}

/// A remark; JSON lines have none.
fn note(as_json: bool, text: &str) -> Outcome {
    if as_json { Ok(()) } else { say(text) }
}

fn seconds_of_a_step(
    network: Network,
    batch: usize,
    platform: &Platform,
    gpu: Option<Device>,
    seconds: f64,
) -> neurona::Result<f64> {
    match platform {
        Platform::Cores(threads) => {
            neurona::set_num_threads(*threads);
            let mut training = Training::new(network, batch, Device::Cpu)?;
            best_mean(seconds, || training.step()?.item::<f32>().map(drop))
        }
        Platform::Gpu(kernels) => {
            neurona::set_kernels(*kernels);
            Training::new(network, batch, gpu.unwrap_or_default())?.in_a_row(if batch > 1000 { 50 } else { 200 })
        }
    }
}
