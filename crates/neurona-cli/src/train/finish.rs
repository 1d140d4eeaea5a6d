//! The end of a run: the best weights, judged once by images that nothing was chosen by.

use super::progress::memory;
use super::session::{Session, interrupted};
use crate::failure::{Failure, Outcome, say};
use crate::run::{Mistakes, note_gpu, write_story};
use crate::{judge, pipeline};
use neurona::Device;
use neurona::nn::Forward;
use neurona::train::{Checkpoint, RunDir, StopFlag, evaluate_with};

/// Writes the model, evaluates it, and makes pictures and report.
pub fn finish(session: &Session, net: &dyn Forward, folder: &RunDir, stop: &StopFlag) -> Outcome {
    let best = folder.path().join("checkpoints/best.safetensors");
    if best.is_file() {
        net.load_state_dict(&Checkpoint::open(&best)?.weights(), true)?;
    }
    let (split, data) = session.parts.judged_by();
    let config = &session.config;
    let loader = pipeline::plain_loader(data, &session.card, config.workers, config.skip_bad_images)?;
    let mut stopped = false;
    let evaluation = evaluate_with(net, &loader, &mut |_| {
        stopped = stop.is_raised();
        if stopped { Err(neurona::Error::Argument("interrupted".to_string())) } else { Ok(()) }
    });
    if stopped {
        return interrupted(folder);
    }
    let results = judge::results(&evaluation?, data.as_ref(), split);
    let card = session.card.clone().note(&format!("{split}_accuracy"), format!("{:.4}", results.accuracy));
    card.save(folder.path().join("model.safetensors"), net)?;
    folder.write("results.json", results.json()?)?;
    folder.write("confusion.csv", results.confusion_csv())?;
    if session.device != Device::Cpu {
        note_gpu(folder, neurona::gpu_peak_memory())?;
    }
    Mistakes::keep(folder, &results, data.as_ref())?;
    write_story(folder, &results)?;
    say(format!("\n{}", judge::summary(&results)))?;
    if session.device != Device::Cpu {
        say(format!("GPU memory in use at most: {}", memory(neurona::gpu_peak_memory())))?;
    }
    let skipped = loader.skipped().len();
    if skipped > 0 {
        say(format!("{skipped} images could not be read and were left out"))?;
    }
    let path = folder.path().display();
    say(format!("Saved in {path}: model.safetensors, report.html, pictures, metrics, checkpoints"))?;
    match results.accuracy.is_nan() {
        true => Err(Failure::Told("the network gives no numbers; try a smaller --lr".to_string())),
        false => say(format!("Try it: neurona predict {path} IMAGE")),
    }
}
