//! `neurona convert`: weights from one kind of file to another.

use crate::failure::{Failure, Outcome, say};
use neurona::io::{self, Format, StateDict, inspect, pth, safetensors};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the tensors of a weights file as another kind of file, under the same names.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona convert resnet18.pth resnet18.safetensors
  neurona convert model.safetensors model.pth           torch.load(\"model.pth\", weights_only=True) reads it")]
pub struct Args {
    /// A .safetensors, .pth or .pt file
    from: PathBuf,
    /// The file to write; its ending says which kind
    to: PathBuf,
    /// The key of the dict to take, for checkpoints that hold several
    #[arg(long)]
    key: Option<String>,
    /// Writes over a file that is there
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args) -> Outcome {
    let to_pth = match args.to.extension().and_then(|e| e.to_str()) {
        Some("pth" | "pt") => true,
        Some("safetensors") => false,
        _ => return Err(Failure::Told(format!("{}: its ending is not .safetensors, .pth or .pt", args.to.display()))),
    };
    if args.to.exists() && !args.force {
        return Err(Failure::Told(format!("{} is there already; --force writes over it", args.to.display())));
    }
    let (state, metadata) = read(&args.from, args.key.as_deref())?;
    if to_pth {
        if !metadata.is_empty() {
            let keys: Vec<&str> = metadata.keys().map(String::as_str).collect();
            warn(format!("{} has no place for notes; lost: {}", args.to.display(), keys.join(", ")));
        }
        pth::save(&args.to, &state)?;
    } else {
        safetensors::save(&args.to, &state, &metadata)?;
    }
    say(format!("{}: {} tensors", args.to.display(), state.len()))
}

/// Tensors and notes; tells what of a checkpoint stays behind.
fn read(path: &Path, key: Option<&str>) -> Outcome<(StateDict, BTreeMap<String, String>)> {
    match inspect::format(path)? {
        Format::Safetensors if key.is_some() => Err(Failure::Told("--key is for PyTorch checkpoints".into())),
        Format::Safetensors => Ok(safetensors::load_with_metadata(path)?),
        Format::Pth | Format::OldPth => {
            let found = pth::load_with(path, key)?;
            if !found.key.is_empty() {
                say(format!("tensors are under the key {}", found.key))?;
            }
            if !found.prefix.is_empty() {
                say(format!("{} was taken off every name", found.prefix))?;
            }
            let names = |list: &[(String, String)]| {
                list.iter().map(|(name, kind)| format!("{name} ({kind})")).collect::<Vec<_>>().join(", ")
            };
            if !found.ignored.is_empty() {
                warn(format!("not tensors of the model, left out: {}", names(&found.ignored)));
            }
            if !found.converted.is_empty() {
                warn(format!("became i64: {}", names(&found.converted)));
            }
            Ok((found.state, [("format".to_string(), "pt".to_string())].into()))
        }
        _ => Ok((io::load(path)?, BTreeMap::new())),
    }
}

fn warn(text: String) {
    // Standard error may be closed; the file is written all the same.
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}
