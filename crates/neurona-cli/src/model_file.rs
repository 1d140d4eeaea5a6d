//! Models by their files.

use crate::failure::{Failure, Outcome};
use neurona::io::{Format, inspect};
use neurona::models::{self, Card};
use neurona::nn::Forward;
use std::path::{Path, PathBuf};

/// A model by its file or by the folder of its run.
pub fn open(path: &Path) -> Outcome<(Box<dyn Forward>, Card)> {
    let file = find(path)?;
    match other(&file) {
        Some(problem) => Err(Failure::Told(format!("{}: {problem}", file.display()))),
        None => Ok(models::open(file)?),
    }
}

/// The model's file: the path itself, or the one in the folder of a run.
fn find(path: &Path) -> Outcome<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let file = path.join("model.safetensors");
    match file.is_file() {
        true => Ok(file),
        false => {
            let problem = "has no model.safetensors: it is not the folder of a run that ended";
            Err(Failure::Usage(format!("{}: {problem}", path.display())))
        }
    }
}

/// What a file is that is no model, and what it is good for. Files that cannot be read are left to whoever opens them.
fn other(file: &Path) -> Option<String> {
    const START: &str = "`neurona train DATA --model NAME --weights FILE` starts from them";
    let name = |kind: &str| format!("is {kind}, which does not say what network its weights belong to");
    match inspect::format(file).ok()? {
        Format::Safetensors => {
            let notes = inspect::inspect(file).ok()?.metadata.into_iter().collect();
            let none = matches!(Card::from_metadata(&notes), Ok(None));
            none.then(|| format!("{}; {START}", name("a safetensors file without a model card")))
        }
        Format::Pth => {
            let convert = "`neurona convert FILE OUT.safetensors` makes a safetensors file of them";
            Some(format!("{}; {START}, and {convert}", name("a PyTorch checkpoint")))
        }
        Format::OldPth => Some(format!(
            "{}; in Python, save it anew: torch.save(torch.load(path, weights_only=True), path); then {START}",
            name("a PyTorch checkpoint from before version 1.6")
        )),
        Format::Onnx => Some(
            "is an ONNX file, which this command does not run; `neurona inspect FILE` lists what is in it, and programs \
             read it with neurona::io::onnx::import"
                .to_string(),
        ),
        _ => None,
    }
}
